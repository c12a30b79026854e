"""What `produce` can be told."""

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """What the input is."""

    LINES = "lines"
    JSON = "json"
    CSV = "csv"
    RAW = "raw"


class Acks(StrEnum):
    """Whose acknowledgement a record waits for."""

    ALL = "all"
    LEADER = "leader"
    NONE = "none"


class Compression(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Spread(StrEnum):
    """How records find their partition."""

    KEY = "murmur2"
    CRC32 = "crc32"
    STICKY = "sticky"
    ROUND_ROBIN = "round_robin"


class OnError(StrEnum):
    """What a record that cannot be sent means for those behind it."""

    CONTINUE = "continue"
    STOP = "stop"


FileOption = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="FILE", help="Read this file, - for stdin; repeatable."),
]
FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        help="lines: a record a line. json: an object a line, as `consume -o json` prints. "
        "csv: a header line, then a JSON object a row. raw: bytes between delimiters.",
    ),
]
DelimiterOption = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="TEXT",
        help="raw: what ends a record, '' for none (each input is one record); csv: what is "
        "between fields. Escapes: \\n \\t \\r \\0 \\\\ \\xHH.  [default: \\n; csv: a comma]",
    ),
]
QuoteOption = Annotated[
    str, typer.Option("--quote", metavar="CHARACTER", help="csv: what fields are quoted with.")
]
KeySeparatorOption = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help="lines, raw: a record is KEY, this text, VALUE. Escapes as above.",
    ),
]
KeyFieldOption = Annotated[
    str | None,
    typer.Option(
        "--key-field",
        metavar="NAME",
        help="The key is this member of the JSON on a line, or this column of a CSV.",
    ),
]
TimestampFieldOption = Annotated[
    str | None,
    typer.Option(
        "--timestamp-field",
        metavar="NAME",
        help="The timestamp is this member or column: milliseconds since 1970, or ISO 8601.",
    ),
]
NullValueOption = Annotated[
    str | None,
    typer.Option(
        "--null-value",
        metavar="TEXT",
        help="A key, value or CSV field that is this text is null (a tombstone).",
    ),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="For each record; repeatable."),
]
PartitionOption = Annotated[
    int | None,
    typer.Option(
        "--partition", "-p", metavar="NUMBER", min=0, help="Send everything to this partition."
    ),
]
PartitionerOption = Annotated[
    Spread | None,
    typer.Option(
        "--partitioner",
        help="murmur2, crc32: by the key's hash, without a key as sticky. sticky: one until a "
        "batch is full. round_robin: one after the other. Goes before what JSON records say.  "
        "[default: murmur2]",
    ),
]
AcksOption = Annotated[
    Acks,
    typer.Option("--acks", help="Whose acknowledgement to wait for."),
]
CompressionOption = Annotated[
    Compression, typer.Option("--compression", help="How batches are compressed.")
]
CompressionLevelOption = Annotated[
    int | None,
    typer.Option(
        "--compression-level",
        metavar="LEVEL",
        help="How hard gzip (1 to 9) or zstd (1 to 22) try.  [default: the codec's own]",
    ),
]
LingerOption = Annotated[
    int,
    typer.Option("--linger", metavar="MS", min=0, help="A batch waits so long for more, ms."),
]
BatchSizeOption = Annotated[
    int,
    typer.Option("--batch-size", metavar="BYTES", min=1, help="A full batch, bytes."),
]
OnErrorOption = Annotated[
    OnError,
    typer.Option("--on-error", help="Whether a record that cannot be sent ends the rest."),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print where each record is stored.")
]
