"""Lets Spark find the data source `quorumlog` without any registration.

Spark imports every top-level module named `pyspark_*` when it first looks for a Python data source,
and one that fails to import breaks all the others. So this holds nothing but the source, and never
raises: what went wrong is said when the format is used.
"""

try:
    from quorumlog.spark.source import QuorumlogSource as DefaultSource
except Exception as error:  # whatever it is, other people's data sources must go on working
    from typing import NoReturn

    from pyspark.sql.datasource import DataSource

    _REASON = f"quorumlog cannot be imported in Spark's Python ({type(error).__name__}: {error})"

    class DefaultSource(DataSource):  # type: ignore[no-redef]  # stands in for the one above
        """Says why the real one is not there."""

        @classmethod
        def name(cls) -> str:
            """Return the format's name."""
            return "quorumlog"

        def schema(self) -> NoReturn:
            """Say what is wrong."""
            raise ImportError(_REASON)

        def reader(self, schema: object) -> NoReturn:
            """Say what is wrong."""
            raise ImportError(_REASON)

        def streamReader(self, schema: object) -> NoReturn:
            """Say what is wrong."""
            raise ImportError(_REASON)

        def writer(self, schema: object, overwrite: bool) -> NoReturn:
            """Raise ImportError with the reason."""
            raise ImportError(_REASON)

        def streamWriter(self, schema: object, overwrite: bool) -> NoReturn:
            """Raise ImportError with the reason."""
            raise ImportError(_REASON)


__all__ = ["DefaultSource"]
