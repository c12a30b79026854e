"""The topics of a subscription, also from malformed bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.broker.groups.consumer_protocol import topics_of

from .classic.play import subscription


def test_topics_are_read_regardless_of_the_bytes_behind_them() -> None:
    assert topics_of(subscription("a", "häfen", tail=b"")) == frozenset({"a", "häfen"})
    assert topics_of(subscription("a", "a", tail=b"\x00\x00\x00\x01x and more")) == frozenset({"a"})
    assert topics_of(subscription()) == frozenset()


def test_a_later_version_is_read_alike() -> None:
    assert topics_of(b"\x00\x03" + subscription("a")[2:]) == frozenset({"a"})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00",
        b"\xff\xff" + subscription("a")[2:],
        subscription("abc", tail=b"")[:-1],
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x7f\xff\xff\xff" + b"\x00\x01a",
        b"\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x00\x00\x02\x00\x03abc",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_bytes_that_are_no_subscription_have_no_topics(content: bytes) -> None:
    assert topics_of(content) is None


@given(st.lists(st.text(max_size=9), max_size=5), st.binary(max_size=9), st.integers(0, 60))
def test_a_subscription_that_is_cut_is_known_or_shorter(
    topics: list[str], tail: bytes, keep: int
) -> None:
    whole = subscription(*topics, tail=tail)
    assert topics_of(whole) == frozenset(topics)
    assert topics_of(whole[:keep]) in (None, frozenset(topics))


@given(st.binary(max_size=40))
def test_no_bytes_harm(content: bytes) -> None:
    topics_of(content)
