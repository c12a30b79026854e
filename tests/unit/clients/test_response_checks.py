"""An inconsistent response raises UnknownServerError, whichever field is wrong."""

from collections.abc import Callable

import pytest

from quorumlog.clients.topology import check_topic, described_topic
from quorumlog.errors import UnknownServerError, UnknownTopicOrPartition
from quorumlog.proto import admin_pb2
from quorumlog.runtime.error_detail import encode_error


def answer(*partitions: int) -> admin_pb2.DescribeTopicsResponse:
    """What a broker says of topic "t" with these partitions."""
    response = admin_pb2.DescribeTopicsResponse()
    topic = response.results.add(name="t").topic
    topic.name = "t"
    for partition in partitions:
        topic.partitions.add(partition=partition)
    return response


def test_the_topic_that_was_asked_for_is_returned() -> None:
    assert len(described_topic(answer(1, 0, 2), "t").partitions) == 3


def test_the_error_in_its_place_is_raised() -> None:
    response = admin_pb2.DescribeTopicsResponse()
    response.results.add(name="t").error.CopyFrom(encode_error(UnknownTopicOrPartition("gone")))
    with pytest.raises(UnknownTopicOrPartition, match="gone"):
        described_topic(response, "t")


@pytest.mark.parametrize("partitions", [(), (1,), (0, 0), (0, 2), (-1, 0)])
def test_partitions_that_are_missing_or_twice_make_no_sense(partitions: tuple[int, ...]) -> None:
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


def test_a_created_topic_is_the_one_that_was_asked_for() -> None:
    with pytest.raises(UnknownServerError, match="'t' where other was asked for"):
        check_topic(answer(0).results[0].topic, "other")
