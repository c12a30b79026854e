"""`quorumlog consume`: print records of topics, or write them to a file.

`reader` and `writers` do the work; they are imported when the command is called.
"""

from datetime import UTC, datetime

import typer

from ..options import BootstrapOption
from ..output import print_raw
from .options import (
    DelimiterOption,
    EndOption,
    GroupOption,
    IsolationLevel,
    IsolationOption,
    MaxRecordsOption,
    OverwriteOption,
    PartitionOption,
    RecordOutputOption,
    StartOption,
    TemplateOption,
    TimeoutOption,
    ToFileOption,
    TopicsArgument,
    UntilEndOption,
    VerboseOption,
)

EXAMPLES = """\b
Examples:
  quorumlog consume flights                          # all records, then new ones
  quorumlog consume flights --from latest            # only new records
  quorumlog consume flights --from -10 --until-end   # the last ten records of each partition
  quorumlog consume flights --from -1h --to -30m     # from an hour to half an hour ago
  quorumlog consume flights -e --format '{offset}\\t{key}\\t{value}'
  quorumlog consume flights -e --to-file flights.parquet
  quorumlog consume flights --group billing --timeout 5   # records that the group has not read
  quorumlog consume paths -e -o raw --delimiter '\\0' | xargs -0 ls -d

\b
Offsets: earliest or beginning, latest or end, an offset (42), a number of records before the
end of each partition (-5), a duration ago (-90s, -15m, -1h, -2d), a time
(2024-12-31T18:00+01:00; UTC without a zone), milliseconds since 1970 (1735689600000ms).
"""


def consume(
    topics: TopicsArgument,
    start: StartOption = "earliest",
    end: EndOption = None,
    until_end: UntilEndOption = False,
    max_records: MaxRecordsOption = None,
    timeout: TimeoutOption = None,
    partition: PartitionOption = None,
    group: GroupOption = None,
    isolation: IsolationOption = IsolationLevel.READ_COMMITTED,
    template: TemplateOption = None,
    delimiter: DelimiterOption = None,
    to_file: ToFileOption = None,
    overwrite: OverwriteOption = False,
    verbose: VerboseOption = False,
    bootstrap: BootstrapOption = None,
    output: RecordOutputOption = None,
) -> None:
    """Print records, and wait for new ones until Ctrl-C, --until-end, --to, --max or --timeout.

    Records are ordered within each partition, not across partitions. Values that are not UTF-8 are
    printed in base64. On a terminal control characters and other hidden ones are escaped (\\x1b),
    except with --format or -o raw.
    """
    from .. import settings
    from . import writers
    from .membership import check_group_options, fill_as_member, read_as_member
    from .reader import ReadBounds, choose_partitions, read
    from .record_files import RecordFile

    now = datetime.now(UTC)
    bounds = ReadBounds(
        start=writers.offset_option("--from", start, now),
        end=None if end is None else writers.offset_option("--to", end, now),
        until_end=until_end,
        records=max_records,
        idle_ms=None if timeout is None else max(1, round(timeout * 1000)),
        isolation_level=isolation.value,
    )
    file = None
    if to_file is not None:
        writers.check_file_options(
            output=output, template=template, delimiter=delimiter, verbose=verbose
        )
        file = RecordFile(to_file, overwrite=overwrite)
    elif overwrite:
        raise typer.BadParameter("--overwrite needs --to-file")
    write = writers.writer_of(output, template, delimiter, verbose=verbose)
    if group is not None:
        check_group_options(bounds, partition or [])
    with settings.open_log(bootstrap=bootstrap) as log:
        partitions = choose_partitions(log, topics, partition or [])
        if group is not None and file is not None and file.is_read_when_closed:
            fill_as_member(log, list(partitions), bounds, group, file)
            return
        if group is None:
            records = read(log, partitions, bounds)
        else:
            records = read_as_member(log, list(partitions), bounds, group)
        if file is None:
            for some in records:
                print_raw(b"".join(map(write, some)))
        else:
            writers.fill(file, records)
