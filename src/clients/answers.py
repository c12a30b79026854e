"""What a broker's answer must look like before anything of it is believed. Pure.

A broker of another version, or something else that speaks the protocol, may answer anything that
parses. What makes no sense is an UnknownServerError, which is not repeated by itself: the caller
learns of it, and a background task goes on as after any other refusal.
"""

from ..errors import QuorumlogError, UnknownServerError
from ..proto import admin_pb2
from ..runtime.error_detail import decode_error


def described_topic(
    answer: admin_pb2.DescribeTopicsResponse, name: str
) -> admin_pb2.TopicDescription:
    """Return the one topic that was asked for; raises the error that was answered in its place,
    and UnknownServerError for an answer to something else."""
    if [result.name for result in answer.results] != [name]:
        raise senseless(f"describes {len(answer.results)} topics where {name} was asked for")
    result = answer.results[0]
    if result.HasField("error"):
        raise decode_error(result.error)
    return check_topic(result.topic, name)


def check_topic(topic: admin_pb2.TopicDescription, name: str) -> admin_pb2.TopicDescription:
    """Return a description if it is of this topic and has each partition once."""
    if topic.name != name:
        raise senseless(f"describes {topic.name!r} where {name} was asked for")
    numbers = sorted(entry.partition for entry in topic.partitions)
    if not numbers or numbers != list(range(len(numbers))):
        raise senseless(f"describes {name} with the partitions {numbers[:10]}")
    return topic


def senseless(what: str) -> QuorumlogError:
    """Return the error for an answer that makes no sense."""
    return UnknownServerError(f"the broker {what}: is it a broker of this version?")
