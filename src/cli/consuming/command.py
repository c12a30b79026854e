"""`quorumlog consume`: records of topics, printed or written into a file.

The work is in `reading` and `receiving`, which are loaded when the command is called.
"""

from datetime import UTC, datetime

import typer

from ..options import BootstrapOption
from .options import (
    DelimiterOption,
    EndOption,
    GroupOption,
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
  quorumlog consume flights                          from the beginning, then what comes
  quorumlog consume flights --from latest            only what comes
  quorumlog consume flights --from -10 --until-end   the ten last records of each partition
  quorumlog consume flights --from -1h --to -30m     half an hour, an hour ago
  quorumlog consume flights -e --format '{offset}\\t{key}\\t{value}'
  quorumlog consume flights -e --to-file flights.parquet
  quorumlog consume flights --group billing --timeout 5   what the group has not read yet
  quorumlog consume paths -e -o raw --delimiter '\\0' | xargs -0 ls -d

\b
Places in a log: earliest or beginning, latest or end, an offset (42), the last records of
each partition (-5), so long ago (-90s, -15m, -1h, -2d), a time (2024-12-31T18:00+01:00; UTC
unless it says otherwise), milliseconds since 1970 (1735689600000ms).
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
    template: TemplateOption = None,
    delimiter: DelimiterOption = None,
    to_file: ToFileOption = None,
    overwrite: OverwriteOption = False,
    verbose: VerboseOption = False,
    bootstrap: BootstrapOption = None,
    output: RecordOutputOption = None,
) -> None:
    """Print records, waiting for new ones until Ctrl-C, --until-end, --to, --max or --timeout.

    Records come in the order of each partition; partitions take turns. What is no text is printed
    in base64, and a terminal is shown control characters as \\x1b, unless --format or -o raw is
    given.
    """
    from .. import settings
    from . import receiving
    from .membership import check_group_options, fill_as_member, read_as_member
    from .reading import Stretch, choose_partitions, read
    from .record_files import RecordFile

    now = datetime.now(UTC)
    stretch = Stretch(
        start=receiving.place_of("--from", start, now),
        end=None if end is None else receiving.place_of("--to", end, now),
        until_end=until_end,
        records=max_records,
        idle_ms=None if timeout is None else max(1, round(timeout * 1000)),
    )
    file = None
    if to_file is not None:
        receiving.check_file_options(
            output=output, template=template, delimiter=delimiter, verbose=verbose
        )
        file = RecordFile(to_file, overwrite=overwrite)
    elif overwrite:
        raise typer.BadParameter("--overwrite needs --to-file")
    write = receiving.writer_of(output, template, delimiter, verbose=verbose)
    if group is not None:
        check_group_options(stretch, partition or [])
    with settings.open_log(bootstrap=bootstrap) as log:
        partitions = choose_partitions(log, topics, partition or [])
        if group is not None and file is not None and file.is_read_when_closed:
            fill_as_member(log, list(partitions), stretch, group, file)
            return
        if group is None:
            records = read(log, partitions, stretch)
        else:
            records = read_as_member(log, list(partitions), stretch, group)
        if file is None:
            for some in records:
                typer.echo(b"".join(map(write, some)), nl=False)
        else:
            receiving.fill(file, records)
