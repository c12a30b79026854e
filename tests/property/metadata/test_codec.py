"""Commands and replies keep their values when they are encoded and decoded."""

from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from immutables import Map
from tests.kit.stepwise import complete

from quorumlog.errors import InvalidRequest, QuorumlogError
from quorumlog.ids import NodeId, Offset, TopicId
from quorumlog.metadata import (
    AlteredPartition,
    AlterPartitions,
    BrokerImage,
    ListChange,
    PartitionsAltered,
    RegisterBroker,
    RelayedCommand,
    Reply,
    Submitted,
)
from quorumlog.metadata.codec import (
    decode_broker,
    decode_command,
    decode_isr_changes,
    decode_isr_results,
    decode_registration,
    decode_reply,
    encode_broker,
    encode_command,
    encode_isr_changes,
    encode_isr_results,
    encode_new_broker,
    encode_registration,
    encode_reply,
)
from quorumlog.metadata.commands import Relayed
from quorumlog.proto import controller_pb2

TEXT = st.text(max_size=8)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# An element of a list has no comma and no space at its ends.
ELEMENT = st.text("ab. ", max_size=4).map(str.strip)
GIVEN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: INT32,
    bool: st.booleans(),
    bytes: st.binary(max_size=16),
    float: st.floats(allow_nan=False),
    Offset: INT64,
    NodeId: INT32,
    TopicId: st.binary(min_size=16, max_size=16),
    QuorumlogError: st.builds(
        lambda text, topic, partition: InvalidRequest(text, topic=topic, partition=partition),
        TEXT,
        TEXT,
        st.none() | INT32,
    ),
    ListChange: st.builds(
        ListChange,
        name=TEXT,
        parts=st.lists(ELEMENT, min_size=1, max_size=3).map(tuple),
        is_removal=st.booleans(),
    ),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type, as in the declarations of commands."""
    if kind in GIVEN:
        return GIVEN[kind]
    if kind is type(None):
        return st.none()
    args, origin = get_args(kind), get_origin(kind)
    if origin in (UnionType, Union):
        return st.one_of([values_of(each) for each in args])
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values_of(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*[values_of(each) for each in args])
    if origin is Map:
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=3).map(Map)
    if hasattr(kind, "__supertype__"):
        return values_of(kind.__supertype__)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    hints = get_type_hints(kind)
    if is_dataclass(kind):
        names = tuple(each.name for each in fields(kind))
    else:
        names = kind._fields if issubclass(kind, tuple) else kind.__struct_fields__
    return st.builds(kind, **{name: values_of(hints[name]) for name in names})


def plain(value: Any) -> Any:
    """Return a value with errors as text, which are equal only if they are the same object."""
    if isinstance(value, QuorumlogError):
        return type(value).__name__, value.message, value.topic, value.partition
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    if isinstance(value, msgspec.Struct):
        fields = ((name, plain(getattr(value, name))) for name in value.__struct_fields__)
        return type(value).__name__, *fields
    return value


def reply_of(command: Any) -> Any:
    """Return the reply type of a command type."""
    (base,) = command.__orig_bases__
    return get_args(base)[0]


COMMANDS = get_args(Relayed)


def test_every_relayed_command_and_every_reply_has_a_declaration() -> None:
    fields = controller_pb2.RelayRequest.DESCRIPTOR.oneofs_by_name["command"].fields
    assert {each.__base__ for each in COMMANDS} == {RelayedCommand}
    assert set(COMMANDS) == set(RelayedCommand.__subclasses__())
    assert len(COMMANDS) == len(fields)
    replies = {reply_of(each) for each in COMMANDS}
    assert replies | {PartitionsAltered} == set(get_args(Reply))


@pytest.mark.parametrize("kind", COMMANDS)
def test_command_keeps_its_value(kind: Any) -> None:
    @given(values_of(kind))
    @settings(max_examples=40, deadline=None)
    def check(command: Any) -> None:
        wire = encode_command(command).SerializeToString()
        assert decode_command(controller_pb2.RelayRequest.FromString(wire)) == command

    check()


@pytest.mark.parametrize("kind", COMMANDS)
def test_reply_keeps_its_value(kind: Any) -> None:
    @given(values_of(kind), values_of(reply_of(kind)), INT64, st.booleans())
    @settings(max_examples=40, deadline=None)
    def check(command: Any, reply: Any, offset: int, applied: bool) -> None:
        submitted = Submitted(reply=reply, offset=Offset(offset), applied=applied)
        response = complete(encode_reply(command, submitted))
        wire = controller_pb2.RelayResponse.FromString(response.SerializeToString())
        decoded = complete(decode_reply(command, wire))
        assert plain(decoded.reply) == plain(reply)
        names = {field.name for field, _ in getattr(wire, wire.WhichOneof("reply")).ListFields()}
        if "metadata_offset" in names:
            assert decoded.offset == offset
        if names & {"usable", "applied"}:
            assert decoded.applied == applied

    check()


@given(values_of(RegisterBroker))
@settings(max_examples=40, deadline=None)
def test_registration_keeps_its_value(command: RegisterBroker) -> None:
    wire = encode_registration(command).SerializeToString()
    assert decode_registration(controller_pb2.BrokerRegistration.FromString(wire)) == command


@given(values_of(BrokerImage), st.integers(0, 2**40))
@settings(max_examples=40, deadline=None)
def test_broker_keeps_its_value_in_a_snapshot(broker: BrokerImage, offset: int) -> None:
    record = encode_broker(broker)
    assert decode_broker(record, Offset(offset)) == broker
    record.ClearField("broker_epoch")
    assert decode_broker(record, Offset(offset)) == replace(broker, epoch=Offset(offset))


@given(values_of(RegisterBroker), st.integers(0, 2**40))
@settings(max_examples=40, deadline=None)
def test_new_broker_is_fenced_and_has_the_offset_of_its_record(
    command: RegisterBroker, offset: int
) -> None:
    broker = decode_broker(encode_new_broker(command), Offset(offset))
    assert (broker.id, broker.epoch) == (command.broker_id, offset)
    assert broker.fenced
    assert not broker.stopping
    for name in ("incarnation_id", "directory_id", "rack", "features", "kafka_listeners"):
        assert getattr(broker, name) == getattr(command, name)


@given(values_of(AlterPartitions), st.data())
@settings(max_examples=40, deadline=None)
def test_isr_changes_and_their_results_keep_their_values(
    command: AlterPartitions, data: st.DataObject
) -> None:
    named = {(change.topic_id, change.partition) for change in command.changes}
    assume(len(named) == len(command.changes))
    wire = encode_isr_changes(command).SerializeToString()
    assert decode_isr_changes(controller_pb2.AlterPartitionsRequest.FromString(wire)) == command
    result, count = values_of(AlteredPartition | QuorumlogError), len(named)
    results = data.draw(st.lists(result, min_size=count, max_size=count).map(tuple))
    reply = PartitionsAltered(results=results)
    wire = encode_isr_results(command, reply).SerializeToString()
    response = controller_pb2.AlterPartitionsResponse.FromString(wire)
    assert plain(decode_isr_results(response)) == plain(reply)
    assert [(each.topic_id, each.partition) for each in response.results] == [
        (change.topic_id, change.partition) for change in command.changes
    ]
