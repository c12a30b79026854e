"""Options of `quorumlog produce`."""

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """The formats of the input."""

    LINES = "lines"
    JSON = "json"
    CSV = "csv"
    RAW = "raw"


class Acks(StrEnum):
    """The replicas that must acknowledge a record."""

    ALL = "all"
    LEADER = "leader"
    NONE = "none"


class Compression(StrEnum):
    """The codecs of batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Partitioner(StrEnum):
    """The partitioners of records."""

    KEY = "murmur2"
    CRC32 = "crc32"
    STICKY = "sticky"
    ROUND_ROBIN = "round_robin"


class OnError(StrEnum):
    """The reaction to a record that cannot be sent."""

    CONTINUE = "continue"
    STOP = "stop"


FileOption = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="FILE", help="Read this file, - for stdin; repeatable"),
]
FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        help="Input format: lines (one record per line), json (one object per line, as `consume "
        "-o json` prints), csv (one JSON object per row) or raw (bytes between delimiters)",
    ),
]
DelimiterOption = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="TEXT",
        help="raw: terminator of records, '' for one record per input; csv: separator of fields; "
        "escapes are \\n \\t \\r \\0 \\\\ \\xHH  [default: \\n; csv: a comma]",
    ),
]
QuoteOption = Annotated[
    str, typer.Option("--quote", metavar="CHARACTER", help="csv: quote character")
]
KeySeparatorOption = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help="lines, raw: separator of key and value; escapes as for --delimiter",
    ),
]
KeyFieldOption = Annotated[
    str | None,
    typer.Option(
        "--key-field",
        metavar="NAME",
        help="Use this member of a JSON line, or this CSV column, as the key",
    ),
]
TimestampFieldOption = Annotated[
    str | None,
    typer.Option(
        "--timestamp-field",
        metavar="NAME",
        help="Use this member or column as the timestamp: milliseconds since 1970, or ISO 8601",
    ),
]
NullValueOption = Annotated[
    str | None,
    typer.Option(
        "--null-value",
        metavar="TEXT",
        help="Send null for keys, values and CSV fields equal to this text (a null value is a "
        "tombstone)",
    ),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="NAME=VALUE", help="Add this header to each record; repeatable"
    ),
]
PartitionOption = Annotated[
    int | None,
    typer.Option(
        "--partition", "-p", metavar="NUMBER", min=0, help="Send all records to this partition"
    ),
]
PartitionerOption = Annotated[
    Partitioner | None,
    typer.Option(
        "--partitioner",
        help="murmur2 or crc32 (hash of the key; sticky without a key), sticky (one partition per "
        "batch) or round_robin; overrides the partition of JSON records  [default: murmur2]",
    ),
]
AcksOption = Annotated[
    Acks,
    typer.Option("--acks", help="Replicas that must acknowledge a record"),
]
CompressionOption = Annotated[Compression, typer.Option("--compression", help="Codec of batches")]
CompressionLevelOption = Annotated[
    int | None,
    typer.Option(
        "--compression-level",
        metavar="LEVEL",
        help="Level of gzip (1 to 9) or zstd (1 to 22)  [default: the codec's own]",
    ),
]
LingerOption = Annotated[
    int,
    typer.Option("--linger", metavar="MS", min=0, help="Time a batch waits for more records"),
]
BatchSizeOption = Annotated[
    int,
    typer.Option("--batch-size", metavar="BYTES", min=1, help="Size of a full batch"),
]
OnErrorOption = Annotated[
    OnError,
    typer.Option("--on-error", help="Continue or stop after a record that cannot be sent"),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print the partition and offset of each record")
]
