"""Invariants across the nodes of a quorum: each violation is planted and named."""

import pytest
from tests.simulation.checkers.quorum_invariants import (
    METADATA_FOLDER,
    CommittedHistory,
    DurableLog,
)
from tests.simulation.checkers.quorum_logs import compare_logs
from tests.simulation.cluster.registers import Applied

from quorumlog.ids import DirectoryId, Epoch, NodeId
from quorumlog.raftlog.hard_state import HardState, encode_hard_state
from quorumlog.raftlog.voters import Voter
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.simulation import SimWorld
from quorumlog.simulation.disk import DiskTruncation, DiskWrite, FileBody

DATA = "/data"
SEGMENT = f"{DATA}/{METADATA_FOLDER}/{0:020d}.log"


def applied(base_offset: int, end_offset: int, digest: bytes = b"d") -> Applied:
    return Applied(base_offset=base_offset, end_offset=end_offset, epoch=1, digest=digest)


def test_equal_replicas_pass_also_after_a_snapshot() -> None:
    history = CommittedHistory()
    history.applied("n1", applied(1, 2, b"x"), [b"a"])
    history.applied("n1", applied(2, 4, b"y"), [b"b", b"c"])
    history.applied("n2", applied(1, 2, b"x"), [b"a"])
    history.restored("n3", applied(6, 6, b"y"))  # control batches follow the last values
    assert (history.end_offset, history.offset_of(b"c"), history.batches) == (4, 3, 3)


def test_another_state_at_the_same_offset_is_found() -> None:
    history = CommittedHistory()
    history.applied("n1", applied(1, 2, b"x"), [b"a"])
    with pytest.raises(AssertionError, match="n2 has another state at offset 2"):
        history.applied("n2", applied(1, 2, b"other"), [b"b"])
    with pytest.raises(AssertionError, match="n3 has another state at offset 5"):
        history.restored("n3", applied(5, 5, b"other"))


def test_other_batches_are_found() -> None:
    history = CommittedHistory()
    history.applied("n1", applied(1, 4), [b"a", b"b", b"c"])
    with pytest.raises(AssertionError, match="inside another's batch"):
        history.applied("n2", applied(1, 2), [b"a"])


def test_a_command_that_is_in_the_log_twice_is_found() -> None:
    history = CommittedHistory()
    history.applied("n1", applied(1, 2), [b"a"])
    with pytest.raises(AssertionError, match="is at offset 1 and at 2"):
        history.applied("n1", applied(2, 3), [b"a"])


def test_two_leaders_of_an_epoch_are_found() -> None:
    history = CommittedHistory()
    history.led(NodeId(1), 3)
    history.led(NodeId(1), 3)
    with pytest.raises(AssertionError, match="epoch 3 is led by 1 and by 2"):
        history.led(NodeId(2), 3)


def batch(base_offset: int, value: bytes = b"v") -> bytes:
    record = Record(offset=0, timestamp_ms=0, key=None, value=value, headers=())
    return encode_batch([record], base_offset=base_offset, leader_epoch=1)


def test_the_durable_end_follows_syncs_truncations_and_power_cuts() -> None:
    with SimWorld(0) as world:
        node = world.node("n1")
        disk = node.device.disk
        disk.make_folder(f"{DATA}/{METADATA_FOLDER}")
        body = disk.create(SEGMENT)
        log = DurableLog(node, DATA)
        size = len(batch(0))
        for number in range(4):
            body.change(DiskWrite(number * size, batch(number)))
        assert log.end_offset() == 0, "its name is not durable either"
        for folder in ("/", DATA, f"{DATA}/{METADATA_FOLDER}"):
            disk.sync_folder(folder)
        assert (log.end_offset(), log.holds(0), log.holds(1)) == (0, True, False)
        body.sync()
        assert (log.end_offset(), log.holds(4)) == (4, True)
        body.change(DiskTruncation(2 * size))
        assert log.end_offset() == 2
        body.change(DiskWrite(2 * size, batch(2, b"w")))
        assert log.end_offset() == 2, "the replacement is not durable"
        body.sync()
        assert log.end_offset() == 3


def test_snapshot_has_the_state_below_its_end() -> None:
    with SimWorld(0) as world:
        node = world.node("n1")
        disk = node.device.disk
        disk.make_folder(f"{DATA}/{METADATA_FOLDER}")
        body = disk.create(f"{DATA}/{METADATA_FOLDER}/{9:020d}-{1:010d}.checkpoint")
        body.change(DiskWrite(0, b"snapshot"))
        for folder in ("/", DATA, f"{DATA}/{METADATA_FOLDER}"):
            disk.sync_folder(folder)
        log = DurableLog(node, DATA)
        assert not log.holds(9)
        body.sync()
        assert log.holds(9)
        assert not log.holds(10)


def test_epoch_and_vote_count_once_they_are_durable() -> None:
    with SimWorld(0) as world:
        node = world.node("n1")
        disk = node.device.disk
        disk.make_folder(DATA)
        state = HardState(Epoch(7), Voter(NodeId(1), DirectoryId(b"1" * 16)))
        body = disk.create(f"{DATA}/quorum-state")
        body.change(DiskWrite(0, encode_hard_state(state)))
        log = DurableLog(node, DATA)
        body.sync()
        assert log.hard_state() is None, "its name is not durable"
        disk.sync_folder("/")
        disk.sync_folder(DATA)
        assert log.hard_state() == state


def test_logs_that_differ_in_one_batch_are_found() -> None:
    with SimWorld(0) as world:
        disks = {name: world.node(name).device.disk for name in ("n1", "n2")}
        bodies: dict[str, FileBody] = {}
        for name, disk in disks.items():
            disk.make_folder(f"{DATA}/{METADATA_FOLDER}")
            bodies[name] = disk.create(SEGMENT)
            bodies[name].change(DiskWrite(0, batch(0)))
        assert compare_logs(disks) == 1
        bodies["n1"].change(DiskWrite(len(batch(0)), batch(1, b"x")))
        bodies["n2"].change(DiskWrite(len(batch(0)), batch(1, b"y")))
        with pytest.raises(AssertionError, match="the batch at 1 differs between n1 and n2"):
            compare_logs(disks)
