"""A pipeline in a process that kills its whole session at a step, for test_pipelines.

killed_pipeline.py '{"pipeline": "to_lake", "step": ..., "arguments": {"bootstrap": ..., ...}}'
"""

import json
import os
import signal
import sys
from typing import Any

from pyspark.sql import DataFrameWriter

from quorumlog.spark import pipelines

STEPS = {
    "written": ("open", "table.json.partial"),  # the files of batch 0 are not decided
    "decided": ("os.rename", ".parquet"),  # they are decided, but not in the table
    "moved": ("os.rmdir", "batch-1"),  # in the table; Spark has not committed it
}


def end() -> None:
    """Kill the driver and its JVM, as a power cut does."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


def kill_at(step: str) -> None:
    """Kill at the file operation of a step, or after the first batch write."""
    if step == "sent":
        save = DataFrameWriter.save

        def save_and_end(writer: DataFrameWriter) -> None:
            save(writer)
            end()

        DataFrameWriter.save = save_and_end  # type: ignore[method-assign,assignment]
        return
    operation, name = STEPS[step]

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == operation and str(arguments[0]).endswith(name):
            end()

    sys.addaudithook(watch)


def main() -> None:
    plan = json.loads(sys.argv[1])
    kill_at(plan["step"])
    getattr(pipelines, plan["pipeline"])(**plan["arguments"])


if __name__ == "__main__":
    main()
