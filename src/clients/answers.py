"""Validation of broker responses. Pure.

A broker of another version, or another program that speaks the protocol, may return any message
that parses. An inconsistent response raises UnknownServerError, which is not retried: the caller
gets the error, and a background task treats it like any other failed request.
"""

from ..errors import QuorumlogError, UnknownServerError
from ..proto import admin_pb2
from ..runtime.error_detail import decode_error


def described_topic(
    answer: admin_pb2.DescribeTopicsResponse, name: str
) -> admin_pb2.TopicDescription:
    """Return the description of topic `name`; raise the error that the broker returned in its
    place.

    Raises UnknownServerError if the response describes another topic.
    """
    if [result.name for result in answer.results] != [name]:
        raise senseless(f"describes {len(answer.results)} topics where {name} was asked for")
    result = answer.results[0]
    if result.HasField("error"):
        raise decode_error(result.error)
    return check_topic(result.topic, name)


def check_topic(topic: admin_pb2.TopicDescription, name: str) -> admin_pb2.TopicDescription:
    """Return the description if it is of topic `name` and numbers its partitions without gaps.

    Raises UnknownServerError otherwise.
    """
    if topic.name != name:
        raise senseless(f"describes {topic.name!r} where {name} was asked for")
    numbers = sorted(entry.partition for entry in topic.partitions)
    if not numbers or numbers != list(range(len(numbers))):
        raise senseless(f"describes {name} with the partitions {numbers[:10]}")
    return topic


def senseless(what: str) -> QuorumlogError:
    """Return the error for an inconsistent response; `what` is a predicate of the broker."""
    return UnknownServerError(f"the broker {what}: is it a broker of this version?")
