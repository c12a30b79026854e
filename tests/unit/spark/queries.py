"""Runs of a query, and what its group has committed."""

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from quorumlog.spark.offsets import TopicPartition
from quorumlog.spark.source import QuorumlogSource

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = ReadAllAvailable()


def reader(script: Any, **options: str) -> Any:
    """A new run of the query `q`."""
    given = {"bootstrap": script.address, "subscribe": "t", "groupId": "q", **options}
    made = QuorumlogSource(given)
    return made.streamReader(made.schema())


def committed(script: Any) -> dict[TopicPartition, int]:
    return {place: offset for place, (offset, _) in script.groups["q"].items()}
