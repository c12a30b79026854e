"""Encoding of snapshots, control records and quorum-state, and the examples in the docs."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.errors import CorruptionError, InvalidRequest, SnapshotDamaged
from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset
from quorumlog.raftlog.control_records import (
    Control,
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    control_batch,
    decode_control,
    decode_controls,
    encode_control,
    entry_kind,
)
from quorumlog.raftlog.hard_state import HardState, decode_hard_state, encode_hard_state
from quorumlog.raftlog.log_view import EntryKind, SnapshotId
from quorumlog.raftlog.snapshot_format import (
    BATCH_BYTES,
    CHECKPOINT_SUFFIX,
    PART_SUFFIX,
    SnapshotDecoder,
    SnapshotEncoder,
    checkpoint_name,
    snapshot_of_name,
)
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.records.batch import iterate_batches, parse_header

from .durable import PAIR, data, snapshot_bytes, snapshot_id

PAGE = (Path(__file__).parents[3] / "docs" / "storage_format.md").read_text()
SECTION = PAGE.partition("## Snapshots of the metadata\n")[2].partition("\n## ")[0]
ID = DirectoryId(bytes(range(16)))
ONE = VoterSet.of([(Voter(NodeId(1), ID), "host1:9093")])

node_ids = st.integers(0, 2**31 - 1).map(NodeId)
voters = st.builds(Voter, node_ids, st.binary(min_size=16, max_size=16).map(DirectoryId))
ports = st.integers(0, 70_000).map(str) | st.sampled_from(["", "007", "+1", "x"])
addresses = st.builds("{}:{}".format, st.text(max_size=20), ports) | st.text(max_size=40)
voter_sets = st.lists(
    st.tuples(voters, addresses), max_size=4, unique_by=lambda member: member[0].node_id
).map(VoterSet.of)
controls = st.one_of(
    st.builds(
        LeaderChange,
        node_ids,
        st.lists(voters, max_size=5).map(tuple),
        st.lists(voters, max_size=3).map(tuple),
    ),
    st.builds(SnapshotHeader, st.integers(0, 2**63 - 1).map(Offset)),
    st.builds(SnapshotFooter, st.binary(min_size=16, max_size=16)),
    st.builds(KRaftVersion, st.integers(0, 9)),
    voter_sets,
)


# --- control records ---------------------------------------------------------------------------


@pytest.mark.slow
@given(controls)
@settings(max_examples=100, deadline=None)
def test_a_control_record_is_read_as_it_was_written(control: Control) -> None:
    assert decode_control(*encode_control(control)) == control


@pytest.mark.slow
@given(controls, st.data())
@settings(max_examples=100, deadline=None)
def test_a_control_record_that_is_cut_or_has_more_is_refused(
    control: Control, draw: st.DataObject
) -> None:
    key, value = encode_control(control)
    with pytest.raises(ValueError, match=r"bytes"):
        decode_control(key, value + b"\0")
    with pytest.raises(ValueError):  # noqa: PT011 # whatever is missing first
        decode_control(key, value[: draw.draw(st.integers(0, len(value) - 1))])


@pytest.mark.slow
@given(st.binary(min_size=4, max_size=4) | st.just(b"\0\0\0\6"), st.binary(max_size=60))
@settings(max_examples=150, deadline=None)
def test_arbitrary_bytes_are_a_record_or_corruption(key: bytes, value: bytes) -> None:
    with suppress(ValueError, InvalidRequest):
        encode_control(decode_control(key, value))


def test_voters_out_of_order_are_corruption() -> None:
    key, value = encode_control(PAIR)
    member = (len(value) - 4) // 2
    twice = value[:3] + value[3 : 3 + member] * 2 + value[-1:]
    with pytest.raises(InvalidRequest, match="ascending"):
        decode_control(key, twice)


def test_batches_have_their_kind_of_entry() -> None:
    leader = LeaderChange(NodeId(1), (), ())
    for batch, kind in [
        (data(5, b"a").payload, (EntryKind.DATA, None)),
        (control_batch(leader, base_offset=5, epoch=1), (EntryKind.LEADER_CHANGE, None)),
        (control_batch(PAIR, base_offset=5, epoch=1), (EntryKind.VOTERS, PAIR)),
    ]:
        assert entry_kind(batch, 0, parse_header(batch)) == kind
    for wrong in ([SnapshotFooter(b"")], [PAIR, PAIR]):
        batch = control_batch(*wrong, base_offset=5, epoch=1)
        with pytest.raises(CorruptionError, match="not valid in a log"):
            entry_kind(batch, 0, parse_header(batch))


def test_lengths_of_more_than_a_byte_are_read_back() -> None:
    many = tuple(Voter(NodeId(n), ID) for n in range(300))
    for control in (
        LeaderChange(NodeId(1), many, ()),
        VoterSet.of((voter, "x" * 300) for voter in many),
    ):
        assert decode_control(*encode_control(control)) == control


# --- snapshot files ----------------------------------------------------------------------------


def test_names_sort_as_snapshots_do_and_are_read_back() -> None:
    found = [snapshot_id(9, epoch=12), snapshot_id(10, epoch=3), snapshot_id(2**40, epoch=13)]
    names = [checkpoint_name(snapshot) for snapshot in found]
    assert names == sorted(names)
    assert [snapshot_of_name(name) for name in names] == found
    for other in (
        "x.checkpoint",
        "leader-epoch-checkpoint",
        checkpoint_name(found[0], PART_SUFFIX),
        names[0][1:],
        names[0].replace("0", "-", 1),
    ):
        assert snapshot_of_name(other) is None


@pytest.mark.slow
@given(st.lists(st.lists(st.binary(max_size=300), max_size=5), max_size=6), st.integers(1, 500))
@settings(max_examples=50, deadline=None)
def test_a_snapshot_is_read_in_any_pieces_as_it_was_written(
    slices: list[list[bytes]], size: int
) -> None:
    snapshot = snapshot_id(77, epoch=4)
    content = snapshot_bytes(snapshot, *slices)
    decoder = SnapshotDecoder(snapshot, with_values=True)
    found: list[bytes] = []
    for position in range(0, len(content), size):
        for values in decoder.feed(content[position : position + size]):
            found += values
    assert decoder.finish() == PAIR
    assert found == [value for values in slices for value in values]


def read(snapshot: SnapshotId, content: bytes) -> None:
    """Read and validate a complete snapshot file."""
    decoder = SnapshotDecoder(snapshot, with_values=True)
    decoder.feed(content)
    decoder.finish()


@pytest.mark.slow
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_any_change_of_a_snapshot_is_damage(draw: st.DataObject) -> None:
    """A flipped bit, a truncation, an insertion, a duplicate or missing chunk."""
    snapshot = snapshot_id(77, epoch=4)
    content = snapshot_bytes(snapshot, [b"abc", b"d"], [b"e"] * 9, [b"f" * 50])
    at = draw.draw(st.integers(0, len(content) - 1))
    end = draw.draw(st.integers(at + 1, len(content)))
    match draw.draw(st.sampled_from(["flip", "cut", "twice", "missing"])):
        case "flip":
            bit = 1 << draw.draw(st.integers(0, 7))
            changed = content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
        case "cut":
            changed = content[:at]
        case "twice":
            changed = content[:end] + content[at:end] + content[end:]
        case _:
            changed = content[:at] + content[end:]
    with pytest.raises(SnapshotDamaged):
        read(snapshot, changed)


def test_a_whole_batch_that_is_missing_or_from_elsewhere_is_damage() -> None:
    """Their CRCs are right; the offsets and the checksum detect them."""
    snapshot = snapshot_id(77, epoch=4)
    content = snapshot_bytes(snapshot, [b"a"], [b"b"], [b"c"])
    starts = [position for position, _ in iterate_batches(content)]
    without = content[: starts[2]] + content[starts[3] :]
    other = snapshot_bytes(snapshot, [b"a"], [b"X"], [b"c"])
    mixed = content[: starts[2]] + other[starts[2] : starts[3]] + content[starts[3] :]
    for changed, words in [(without, "expected offset"), (mixed, "checksum does not match")]:
        with pytest.raises(SnapshotDamaged, match=words):
            SnapshotDecoder(snapshot, with_values=False).feed(changed)


def test_a_snapshot_under_another_name_is_damage() -> None:
    content = snapshot_bytes(snapshot_id(77, epoch=4), [b"a"])
    for wrong in (snapshot_id(78, epoch=4), snapshot_id(77, epoch=5)):
        with pytest.raises(SnapshotDamaged):
            SnapshotDecoder(wrong, with_values=False).feed(content)


def test_large_slices_become_several_batches() -> None:
    encoder = SnapshotEncoder(snapshot_id(1), PAIR)
    encoder.header()
    values = [b"x" * (BATCH_BYTES // 3)] * 7
    sizes = [header.record_count for _, header in iterate_batches(encoder.batches(values))]
    assert sizes == [3, 3, 1] or sizes == [2, 2, 2, 1]
    large = encoder.batches([b"y" * (BATCH_BYTES * 2), b"z"])
    assert [header.record_count for _, header in iterate_batches(large)] == [1, 1]


# --- epoch and vote ----------------------------------------------------------------------------


@pytest.mark.slow
@given(st.integers(0, 2**31 - 1), st.none() | voters)
def test_epoch_and_vote_are_read_as_they_were_written(epoch: int, vote: Voter | None) -> None:
    state = HardState(Epoch(epoch), vote)
    assert decode_hard_state(encode_hard_state(state)) == state


@pytest.mark.slow
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_changed_quorum_state_is_corruption_or_equal(draw: st.DataObject) -> None:
    """Otherwise a flipped bit in a number would be another epoch or another vote."""
    state = HardState(Epoch(1234), Voter(NodeId(5), ID))
    content = bytearray(encode_hard_state(state))
    at = draw.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        found = decode_hard_state(bytes(content))
    except CorruptionError:
        return
    assert found == state


# --- the page ----------------------------------------------------------------------------------


def test_the_voters_of_the_page_are_what_the_encoder_makes() -> None:
    rows = re.findall(r"^\| (\d+) \| `([0-9a-f ]+)` \|", SECTION, re.MULTILINE)
    shown = bytes.fromhex("".join(content for _, content in rows))
    assert shown.hex(" ") == encode_control(ONE)[1].hex(" ")
    position = 0
    for at, content in rows:
        assert int(at) == position
        position += len(bytes.fromhex(content))


def test_the_records_of_the_page_are_what_the_encoder_makes() -> None:
    rows = re.findall(r"^(\d) (\w+) +((?:[0-9a-f]{2} )+)", SECTION, re.MULTILINE)
    shown = {(int(kind), name): bytes.fromhex(content) for kind, name, content in rows}
    made = {}
    for control in (SnapshotHeader(Offset(42)), KRaftVersion(), SnapshotFooter(bytes(range(16)))):
        key, value = encode_control(control)
        made[key[3], type(control).__name__] = value
    assert shown == made


def test_the_page_names_the_files_and_the_batches() -> None:
    assert checkpoint_name(SnapshotId(Offset(42), Epoch(3))) in PAGE
    assert checkpoint_name(SnapshotId(Offset(0), Epoch(0))).removesuffix(CHECKPOINT_SUFFIX) in PAGE
    assert PART_SUFFIX in SECTION
    content = snapshot_bytes(snapshot_id(42, epoch=3), [b"v"], voters=ONE)
    first, *_ = iterate_batches(content)
    header = [type(one).__name__ for one in decode_controls(content, first[0])]
    assert header == ["SnapshotHeader", "KRaftVersion", "VoterSet"]
