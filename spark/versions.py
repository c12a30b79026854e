"""The differences between the supported versions of Spark, 4.0 to 4.3.

The only module that checks the version. A flag is true if Spark's API has the classes, whatever the
version number says, because vendors port features back. Classes that some version lacks are
imported from here: a stand-in takes the place of a missing one, so that the other modules import
and define their classes on every version.

| Spark | adds |
|---|---|
| 4.1 | Arrow batches for the writer of a stream, pushed filters, Unix sockets to Python workers |
| 4.2 | limits of micro-batches, several micro-batches with Trigger.AvailableNow |
"""

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import datasource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

SPARK_VERSION_MIN: Final = (4, 0)


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor of a version such as "4.1.0.dev3"."""
    match = re.match(r"(\d+)\.(\d+)", text)
    assert match is not None, f"not a version of Spark: {text!r}"
    return int(match[1]), int(match[2])


SPARK_VERSION: Final = parse_version(pyspark.__version__)
"""Major and minor version of this process's PySpark: on executors and in the processes in which the
driver plans, the version of Spark."""

HAS_STREAM_ARROW_WRITER: Final = hasattr(datasource, "DataSourceStreamArrowWriter")
"""True if the writer of a stream gets Arrow batches; otherwise it gets rows."""

HAS_PUSHDOWN: Final = hasattr(datasource.DataSourceReader, "pushFilters")
"""True if a reader is offered filters."""

HAS_UNIX_SOCKETS: Final = SPARK_VERSION >= (4, 1)
"""True if Spark can reach its Python workers by Unix sockets."""

HAS_ADMISSION_CONTROL: bool
"""True if a stream reader gets its position and a limit, and can prepare for
Trigger.AvailableNow."""

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
else:
    DataSourceStreamArrowWriter = getattr(
        datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
    )
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        HAS_ADMISSION_CONTROL = True
    except ImportError:
        HAS_ADMISSION_CONTROL = False

        class ReadLimit:
            """Stand-in."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """Stand-in."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """Stand-in."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """Stand-in."""


def to_arrow_schema(schema: StructType) -> "pa.Schema":
    """Return the Arrow schema that Spark requires of batches with these columns."""
    from pyspark.sql.pandas import types

    if "timezone" in inspect.signature(types.to_arrow_schema).parameters:
        return types.to_arrow_schema(schema, timezone="UTC")
    return types.to_arrow_schema(schema)  # older ones have UTC as the default


__all__ = [
    "HAS_ADMISSION_CONTROL",
    "HAS_PUSHDOWN",
    "HAS_STREAM_ARROW_WRITER",
    "HAS_UNIX_SOCKETS",
    "SPARK_VERSION",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "parse_version",
    "to_arrow_schema",
]
