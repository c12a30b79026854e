"""DescribeLogDirs: return the sizes of partitions on this broker's disk (KIP-113, KIP-827).

Null asks for all partitions. Partitions that are not on this broker are left out, known or not. A
log with an error is left out too, and its error is the directory's. Replicas never move between
directories here, and none lags behind the high watermark of this broker.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ....api.partitions import LogDirUsage
from ....errors import QuorumlogError
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..encoding_offload import encode_if_large
from ..error_codes import code_of
from ..item_results import by_topic, outcome

FIRST_WITH_ERROR: Final = 3
"""The first version with a top-level error; earlier ones carry it in a directory without a name."""


async def describe_log_dirs(broker: BrokerContext, call: Call) -> Answer:
    """Describe the directories; unopened logs are opened for it."""
    wanted = _wanted(call.body)
    topics = [name for name in wanted or () if broker.image.topic(name) is not None]
    usage = await outcome(
        broker.api.partitions.describe_log_dir(
            topics, call.context, directory_only=wanted is not None and not topics
        )
    )
    if isinstance(usage, QuorumlogError):
        code = code_of(usage)
        nameless = {"error_code": code, "log_dir": ""}
        return {
            "error_code": code,
            "results": [nameless] if call.version < FIRST_WITH_ERROR else [],
        }
    body = {"error_code": 0, "results": (_directory(each, wanted) for each in (usage,))}
    return await encode_if_large(broker, call, body, elements=len(usage.logs))


def _wanted(body: Any) -> Mapping[str, set[int]] | None:
    if body.topics is None:
        return None
    wanted: dict[str, set[int]] = {}
    for topic in body.topics:
        wanted.setdefault(topic.topic, set()).update(topic.partitions)
    return wanted


def _directory(directory: LogDirUsage, wanted: Mapping[str, Iterable[int]] | None) -> Fields:
    logs = [
        log
        for log in directory.logs
        if wanted is None or log.partition in wanted.get(log.topic, ())
    ]
    errors = (log.error.code for log in logs if log.error is not None)
    sizes = (
        (
            log.topic,
            {"partition_index": log.partition, "partition_size": log.size_bytes, **NOT_MOVED},
        )
        for log in logs
        if log.error is None
    )
    return {
        "error_code": next(errors, 0),
        "log_dir": directory.path,
        "topics": by_topic(sizes, topic_as="name", partitions_as="partitions"),
        "total_bytes": directory.capacity_bytes,
        "usable_bytes": directory.free_bytes,
    }


NOT_MOVED: Final = {"offset_lag": 0, "is_future_key": False}

API: Final = KafkaApi(
    key=35, name="DescribeLogDirs", low=1, high=5, flexible=2, handle=describe_log_dirs
)
