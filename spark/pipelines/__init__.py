"""Ready pipelines: functions to import, and the commands of `python -m quorumlog.spark`.

Each function starts a session unless it gets one, and returns a `PipelineReport`; `verify` returns
a `VerifyReport`. Importing this package imports neither Spark nor a client.
"""

from typing import TYPE_CHECKING

from quorumlog.spark.pipelines.files import from_files
from quorumlog.spark.pipelines.lake import compact, to_lake
from quorumlog.spark.pipelines.report import OnProgress, PipelineProgress, PipelineReport

if TYPE_CHECKING:
    from quorumlog.spark.pipelines.topic_mirror import mirror
    from quorumlog.spark.pipelines.topic_verification import verify

__all__ = [
    "compact",
    "from_files",
    "mirror",
    "to_lake",
    "verify",
    "OnProgress",
    "PipelineReport",
    "PipelineProgress",
]


def __getattr__(name: str) -> object:
    """Import `mirror` or `verify` at first use: their modules import PySpark."""
    if name == "mirror":
        from quorumlog.spark.pipelines.topic_mirror import mirror

        return mirror
    if name == "verify":
        from quorumlog.spark.pipelines.topic_verification import verify

        return verify
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
