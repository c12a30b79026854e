"""`quorumlog produce`: produce the lines, JSON objects, CSV rows or raw bytes of an input.

`sender` does the work; it is imported when the command is called.
"""

from ..options import BootstrapOption, Output, OutputOption, TopicArgument
from .options import (
    Acks,
    AcksOption,
    BatchSizeOption,
    Compression,
    CompressionLevelOption,
    CompressionOption,
    DelimiterOption,
    FileOption,
    Format,
    FormatOption,
    HeaderOption,
    KeyFieldOption,
    KeySeparatorOption,
    LingerOption,
    NullValueOption,
    OnError,
    OnErrorOption,
    Partitioner,
    PartitionerOption,
    PartitionOption,
    QuoteOption,
    TimestampFieldOption,
    VerboseOption,
)

EXAMPLES = """\b
Examples:
  echo hello | quorumlog produce greetings
  quorumlog produce flights --file flights.jsonl --key-field carrier
  quorumlog produce flights --format csv --file a.csv --file b.csv --key-field carrier
  quorumlog produce pairs --key-separator : --header source=shell
  find . -print0 | quorumlog produce paths --format raw --delimiter '\\0'
  quorumlog produce images --format raw --delimiter '' --file logo.png
  quorumlog consume a --until-end -o json | quorumlog produce b --format json
"""


def produce(
    topic: TopicArgument,
    file: FileOption = None,
    format_: FormatOption = Format.LINES,
    delimiter: DelimiterOption = None,
    quote: QuoteOption = '"',
    key_separator: KeySeparatorOption = None,
    key_field: KeyFieldOption = None,
    timestamp_field: TimestampFieldOption = None,
    null_value: NullValueOption = None,
    header: HeaderOption = None,
    partition: PartitionOption = None,
    partitioner: PartitionerOption = None,
    acks: AcksOption = Acks.ALL,
    compression: CompressionOption = Compression.NONE,
    compression_level: CompressionLevelOption = None,
    linger: LingerOption = 5,
    batch_size: BatchSizeOption = 983_040,
    on_error: OnErrorOption = OnError.CONTINUE,
    verbose: VerboseOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Produce each line, JSON object, CSV row or delimited piece of the input as one record.

    A record that cannot be delivered is reported with its line, and the exit code is then 1. Ctrl-C
    prints how many records were stored, failed, or have an unknown outcome.
    """
    from .. import settings
    from ..names import partitions_of
    from . import sender
    from .inputs import STDIN, check_readable
    from .report import Report

    form = sender.input_format(
        format_=format_,
        delimiter=delimiter,
        quote=quote,
        key_separator=key_separator,
        key_field=key_field,
        timestamp_field=timestamp_field,
        null_value=null_value,
        headers=header or [],
    )
    sender.check_options(partition, partitioner, compression, compression_level)
    paths = file or [STDIN]
    as_json = output is Output.JSON
    check_readable(paths)
    with settings.open_log(bootstrap=bootstrap) as log:
        partitions = partitions_of(log, topic, wanted=partition)  # fails before any input is read
        with log.producer(
            partitioner=(partitioner or Partitioner.KEY).value,
            acks=acks,
            compression=compression,
            compression_level=compression_level,
            linger_ms=linger,
            batch_size=batch_size,
        ) as producer:
            work = sender.Sending(
                producer=producer,
                report=Report(verbose=verbose, as_json=as_json),
                topic=topic,
                partitions=partitions,
                partition=partition,
                on_error=on_error,
                keeps_partition=partitioner is None,
            )
            sender.print_prompt(paths, as_json=as_json)
            work.run(paths, form, show_progress=not (verbose or as_json))
    work.end()
