"""Runs of a query, and what its group has committed."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from quorumlog.spark.offsets import IDS, TopicPartition
from quorumlog.spark.source import QuorumlogSource

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = ReadAllAvailable()


def reader(script: Any, **options: str) -> Any:
    """A new run of the query `q`."""
    selection = {} if "assign" in options else {"subscribe": "t"}
    given = {"bootstrap": script.address, **selection, "groupId": "q", **options}
    made = QuorumlogSource(given)
    return made.streamReader(made.schema())


def committed(script: Any) -> dict[TopicPartition, int]:
    return {place: offset for place, (offset, _) in script.groups["q"].items()}


def positions(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Offsets as Spark has them, without the ids of what they are of."""
    return {topic: ends for topic, ends in nested.items() if topic != IDS}
