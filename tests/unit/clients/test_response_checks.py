"""An inconsistent response raises UnknownServerError, whichever field is wrong."""

from collections.abc import Callable

import pytest

from quorumlog.clients.topology import check_topic, described_topic
from quorumlog.errors import UnknownServerError, UnknownTopicOrPartition
from quorumlog.proto import admin_pb2
from quorumlog.runtime.error_detail import encode_error


def answer(*partitions: int) -> admin_pb2.DescribeTopicsResponse:
    """Return a description of topic "t" with these partitions."""
    response = admin_pb2.DescribeTopicsResponse()
    topic = response.results.add(name="t").topic
    topic.name = "t"
    for partition in partitions:
        topic.partitions.add(partition=partition)
    return response


def test_requested_topic_is_returned() -> None:
    assert len(described_topic(answer(1, 0, 2), "t").partitions) == 3


def test_error_of_the_topic_is_raised() -> None:
    response = admin_pb2.DescribeTopicsResponse()
    response.results.add(name="t").error.CopyFrom(encode_error(UnknownTopicOrPartition("gone")))
    with pytest.raises(UnknownTopicOrPartition, match="gone"):
        described_topic(response, "t")


@pytest.mark.parametrize("partitions", [(), (1,), (0, 0), (0, 2), (-1, 0)])
def test_missing_or_duplicate_partitions_are_invalid(partitions: tuple[int, ...]) -> None:
    with pytest.raises(UnknownServerError, match="t with the partitions"):
        described_topic(answer(*partitions), "t")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda response: response.results.pop(),
        lambda response: response.results.append(response.results[0]),
        lambda response: setattr(response.results[0], "name", "other"),
        lambda response: setattr(response.results[0].topic, "name", "other"),
        lambda response: response.results[0].ClearField("topic"),
    ],
)
def test_a_response_to_another_request_is_invalid(
    spoil: Callable[[admin_pb2.DescribeTopicsResponse], None],
) -> None:
    response = answer(0)
    spoil(response)
    with pytest.raises(UnknownServerError):
        described_topic(response, "t")


def test_created_topic_must_be_the_requested_one() -> None:
    with pytest.raises(UnknownServerError, match="'t' where other was asked for"):
        check_topic(answer(0).results[0].topic, "other")
