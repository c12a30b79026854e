"""Validation of topic names, with the reason of each refusal."""

import pytest

from quorumlog.errors import InvalidTopic
from quorumlog.metadata.topic_names import check_topic_name, collision_key


@pytest.mark.parametrize("name", ["a", "flights", "A.b_c-9", "x" * 249, "...", "_"])
def test_legal_names_pass(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        (".", 'named "."'),
        ("..", r'named "\.\."'),
        ("x" * 250, "250"),
        ("a b", "illegal characters ' '"),
        ("a/b", "illegal"),
        ("é", "illegal"),
        ("a\n", "illegal"),
        ("../etc", "illegal"),
        (
            "__cluster_metadata",
            "reserved for the metadata log",
        ),  # its records would be stored in that log
    ],
)
def test_illegal_names_are_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(InvalidTopic, match=why):
        check_topic_name(name)


def test_names_that_differ_in_dot_and_underscore_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a.b") != collision_key("a-b")
