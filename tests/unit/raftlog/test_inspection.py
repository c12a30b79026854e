"""A check validates a member's snapshots against the log, the epoch and the vote."""

import json

import pytest

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.control_records import (
    KRaftVersion,
    SnapshotFooter,
    SnapshotHeader,
    control_batch,
)
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.inspection import check, describe_controls, newest_snapshot, read_snapshot
from quorumlog.raftlog.shell.metadata_log import MetadataLog
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage.inspect.dump import dump_file

from .durable import ALONE, DATA, ME, PAIR, control, data, live, snapshot_bytes, snapshot_id

FOLDER = f"{DATA}/__cluster_metadata-0"
ONE = f"{FOLDER}/00000000000000000001-0000000001.checkpoint"
TWO = f"{FOLDER}/00000000000000000002-0000000001.checkpoint"


async def fill(log: MetadataLog) -> None:
    await log.store_hard_state(HardState(Epoch(7), ME))
    await log.append((data(0, b"a"), data(1, b"b"), control(2, voters=PAIR)))
    await log.write_snapshot(snapshot_id(1), ALONE, iter([[b"a"]]))
    await log.clean_to(snapshot_id(1))
    await log.write_snapshot(snapshot_id(2), ALONE, iter([[b"a", b"b"]]))


def filled(world: SimWorld) -> SimNode:
    node = world.node("one")
    live(world, node, fill)
    return node


def overwrite(node: SimNode, path: str, content: bytes) -> None:
    body = node.device.disk.create(path)
    body.content[:] = content


def findings(node: SimNode, path: str = DATA) -> list[tuple[str, str, str]]:
    """Return (kind, file, detail) of every finding of a check."""
    node.start_process()
    report = check(node.runtime().files, path)
    node.crash()
    return [(str(found.kind), found.file, found.what) for found in report.all_findings()]


def test_a_whole_directory_has_no_finding() -> None:
    with SimWorld(0) as world:
        node = filled(world)
        assert findings(node) == []
        assert findings(node, FOLDER) == []


@pytest.mark.parametrize("at", [0, 8, 12, 70, 150, -90, -20, -1])
def test_every_flipped_bit_of_a_snapshot_is_found(at: int) -> None:
    with SimWorld(0) as world:
        node = filled(world)
        content = bytearray(node.device.disk.file(TWO).content)
        content[at] ^= 1
        overwrite(node, TWO, bytes(content))
        assert [(kind, file) for kind, file, _ in findings(node)] == [
            ("metadata-snapshot-wrong", TWO)
        ]


def test_a_snapshot_without_its_end_is_found() -> None:
    with SimWorld(0) as world:
        node = filled(world)
        overwrite(node, TWO, bytes(node.device.disk.file(TWO).content[:-100]))
        [(kind, _, what)] = findings(node)
        assert kind == "metadata-snapshot-wrong"
        assert "incomplete batch" in what or "footer is missing" in what


def test_log_without_the_snapshot_below_its_start_is_found() -> None:
    with SimWorld(0) as world:
        node = filled(world)
        node.device.disk.remove(ONE)
        [(kind, _, what)] = findings(node)
        assert (kind, "no snapshot ends" in what) == ("metadata-snapshot-wrong", True)
        node.device.disk.remove(TWO)
        [(kind, _, what)] = findings(node)
        assert (kind, "no snapshot has the state" in what) == ("metadata-snapshot-wrong", True)


def test_a_snapshot_ahead_of_the_log_is_unfinished_work() -> None:
    """A crash between the two halves of an installation leaves this state."""
    ahead = snapshot_id(50, epoch=6)
    path = f"{FOLDER}/00000000000000000050-0000000006.checkpoint"
    with SimWorld(0) as world:
        node = filled(world)
        overwrite(node, path, snapshot_bytes(ahead, [b"s"]))
        [(kind, file, _)] = findings(node)
        assert (kind, file) == ("unfinished", path)


def test_an_old_or_missing_quorum_state_is_found() -> None:
    path = f"{DATA}/quorum-state"
    with SimWorld(0) as world:
        node = filled(world)
        now = bytes(node.device.disk.file(path).content)
        old = {**json.loads(now), "leaderEpoch": 0}
        del old["crc32c"]
        overwrite(node, path, json.dumps(old).encode())
        [(kind, file, what)] = findings(node)
        assert (kind, file, "outdated" in what) == ("metadata-wrong", path, True)
        overwrite(node, path, now.replace(b'"leaderEpoch": 7', b'"leaderEpoch": 8'))
        [(kind, file, what)] = findings(node)
        assert (kind, what) == ("metadata-wrong", "its crc32c is wrong")
        node.device.disk.remove(path)
        [(kind, file, what)] = findings(node)
        assert (kind, "missing beside a log" in what) == ("metadata-wrong", True)


def test_snapshot_of_another_server_is_accepted() -> None:
    """Its header has no end offset, so it cannot be validated; the log can."""
    foreign = control_batch(
        SnapshotHeader(None), KRaftVersion(), PAIR, base_offset=0, epoch=1
    ) + control_batch(SnapshotFooter(b""), base_offset=3, epoch=1)
    with SimWorld(0) as world:
        node = filled(world)
        overwrite(node, TWO, foreign)
        assert findings(node) == []
        node.start_process()
        assert read_snapshot(node.runtime().files, TWO, snapshot_id(2)) is None


def test_dump_decodes_control_batches() -> None:
    with SimWorld(0) as world:
        node = filled(world)
        node.start_process()
        files = node.runtime().files
        assert newest_snapshot(files, FOLDER) == snapshot_id(2)
        assert read_snapshot(files, TWO, snapshot_id(2)) == [b"a", b"b"]
        rows = list(dump_file(files, TWO, controls=describe_controls))
        assert [(row["base_offset"], row["marker"]) for row in rows] == [
            (0, "snapshot-header"),
            (3, None),
            (5, "snapshot-footer"),
        ]
        assert rows[0]["says"].startswith("a snapshot of everything before offset 2; kraft")
        assert rows[2]["says"].startswith("checksum ")
        log = list(dump_file(files, f"{FOLDER}/{0:020d}.log", controls=describe_controls))
        assert log[2]["marker"] == "voters"
        assert log[2]["says"].endswith("at one:9093, 2 (" + "32" * 16 + ") at two:9093")
        assert Offset(log[2]["base_offset"]) == 2
