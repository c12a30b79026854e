"""Ready pipelines: functions to import, and the commands of `python -m quorumlog.spark`.

Each function takes the parameters of its command, starts a session unless it gets one, and returns
a `PipelineReport`. Importing this package imports neither Spark nor a client.
"""

from quorumlog.spark.pipelines.files import from_files
from quorumlog.spark.pipelines.lake import compact, to_lake
from quorumlog.spark.pipelines.report import OnProgress, PipelineProgress, PipelineReport

__all__ = ["compact", "from_files", "to_lake", "OnProgress", "PipelineReport", "PipelineProgress"]
