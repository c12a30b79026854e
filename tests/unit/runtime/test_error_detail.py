"""Every error of the table with all its fields survives the transmission."""

import inspect
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.errors import (
    ERRORS,
    CorruptionError,
    NotController,
    NotLeaderOrFollower,
    QuorumlogError,
    UnknownServerError,
)
from quorumlog.proto import errors_pb2
from quorumlog.runtime.error_detail import decode_error, encode_error

numbers = st.sampled_from([-1, 0]) | st.integers(min_value=-1, max_value=2**31 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.text(),
    "partition": st.sampled_from([None, 0]) | st.integers(min_value=0, max_value=2**31 - 1),
    "leader_id": numbers,
    "leader_address": st.text(),
    "leader_epoch": numbers,
    "path": st.text(),
    "position": st.sampled_from([-1, 0]) | st.integers(min_value=-1, max_value=2**63 - 1),
    "number": st.integers(min_value=-1, max_value=2**63 - 1),
    "write_id": st.integers(min_value=-1, max_value=2**63 - 1),
    "task": st.integers(min_value=-1, max_value=2**63 - 1),
    "metadata_offset": st.integers(min_value=-1, max_value=2**63 - 1),
}
# Errors of a producer or of a Spark read: not transmitted, or with their message only.
LOCAL = {"NOT_DELIVERED", "ROWS_NOT_DELIVERED", "UNDECODABLE_VALUE"}


def keywords(kind: type[QuorumlogError]) -> list[str]:
    """Return the keyword arguments of the class. A name without values here fails the test."""
    if kind.name in LOCAL:
        return ["topic", "partition"]
    return [
        name
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]


@pytest.mark.long
@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.name)
@settings(max_examples=25)  # of each of seventy kinds, which share the encoding of fields
@given(data=st.data())
def test_every_error_round_trips_with_all_its_fields(
    kind: type[QuorumlogError], data: st.DataObject
) -> None:
    values = {name: data.draw(VALUES[name], label=name) for name in keywords(kind)}
    error = kind(data.draw(st.text(), label="message"), **values)
    raw = encode_error(error).SerializeToString()
    back = decode_error(errors_pb2.Error.FromString(raw))
    assert type(back) is kind
    assert vars(back) == vars(error)
    assert back.args == error.args


def test_absent_hints_are_unknown_not_zero() -> None:
    """Zero is a valid node, epoch and position."""
    for kind in (NotLeaderOrFollower, NotController, CorruptionError):
        message = encode_error(kind("m"))
        assert not message.HasField("leader_id")
        assert not message.HasField("leader_epoch")
        assert not message.HasField("position")
    message = encode_error(CorruptionError("m", position=0))
    assert message.HasField("position")


def test_unknown_error_of_a_newer_peer_keeps_its_message() -> None:
    message = errors_pb2.Error(code=99, name="NEWER", message="not known here", topic="t")
    error = decode_error(message)
    assert isinstance(error, UnknownServerError)
    assert str(error) == "t: NEWER (99): not known here"
