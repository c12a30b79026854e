"""The durable state of one member of the quorum, across restarts."""

from pathlib import Path

import pytest
from tests.kit.raft_member import batches_of
from tests.kit.waits import run_patiently

from quorumlog.errors import CorruptionError, DirectoryMismatch, OffsetOutOfRange, SnapshotDamaged
from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import LogEnd
from quorumlog.raftlog.shell.metadata_log import MetadataLog
from quorumlog.raftlog.voters import Voter
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage.shell.data_directory import DataDirectory

from .durable import (
    ALONE,
    DATA,
    ME,
    PAIR,
    TWO,
    chunks,
    control,
    data,
    live,
    opened,
    snapshot_bytes,
    snapshot_id,
    values_of,
)

FOLDER = f"{DATA}/__cluster_metadata-0"
SEVEN = HardState(Epoch(7), ME)


def test_a_fresh_directory_holds_nothing_and_its_node_votes_alone() -> None:
    async def look(log: MetadataLog) -> None:
        assert log.hard_state == HardState(Epoch(0), None)
        assert (log.view.start, log.view.end) == (LogEnd(Epoch(0), Offset(0)),) * 2
        assert (log.voters.latest, log.snapshots) == (ALONE, ())

    with SimWorld(0) as world:
        live(world, world.node("one"), look)


def test_entries_epoch_and_vote_are_found_again() -> None:
    entries = (control(0, epoch=7), data(1, b"a", b"b", epoch=7), control(3, epoch=7, voters=PAIR))

    async def fill(log: MetadataLog) -> None:
        await log.store_hard_state(SEVEN)
        await log.append(entries)

    async def look(log: MetadataLog) -> None:
        assert log.hard_state == SEVEN
        assert await log.read_entries(Offset(0), Offset(4)) == entries
        assert await log.read_entries(Offset(1), Offset(3)) == entries[1:2]
        assert [base for base, _, _ in batches_of(log.view, Offset(0))] == [0, 1, 3]
        assert (log.voters.latest, log.voters.latest_offset) == (PAIR, 3)
        assert log.voters.at(Offset(3)) == ALONE
        with pytest.raises(OffsetOutOfRange):
            await log.read_entries(Offset(5), Offset(6))

    with SimWorld(0) as world:
        node = world.node("one")
        live(world, node, fill)
        live(world, node, look)


def test_a_truncated_tail_does_not_come_back() -> None:
    async def fill(log: MetadataLog) -> None:
        await log.store_hard_state(SEVEN)
        await log.append((data(0, b"a"), data(1, b"b"), control(2, voters=PAIR)))
        await log.truncate_to(Offset(1))
        await log.append((data(1, b"c", epoch=3),))

    async def look(log: MetadataLog) -> None:
        assert (log.view.end, log.voters.latest) == (LogEnd(Epoch(3), Offset(2)), ALONE)

    with SimWorld(0) as world:
        node = world.node("one")
        live(world, node, fill)
        live(world, node, look)


def test_an_own_snapshot_is_read_as_it_was_written_and_the_log_cleaned_up_to_it() -> None:
    first, second = snapshot_id(2), snapshot_id(3)

    async def fill(log: MetadataLog) -> None:
        await log.store_hard_state(SEVEN)
        await log.append((data(0, b"a", b"b"), data(2, b"c"), data(3, b"d")))
        size = await log.write_snapshot(first, ALONE, iter([[b"a"], [], [b"b", b""]]))
        whole = await log.read_snapshot_chunk(first, 0, 10_000)
        assert whole is not None
        assert (len(whole[0]), whole[1]) == (size, size)
        assert await log.read_snapshot_chunk(first, size - 3, 10) == (whole[0][-3:], size)
        assert await log.read_snapshot_chunk(second, 0, 10) is None
        await log.write_snapshot(second, ALONE, iter([[b"x" * 300_000, b"y"]]))
        assert log.snapshots == (first, second)
        await log.clean_to(second)
        assert await log.read_snapshot_chunk(first, 0, 10) is None

    async def look(log: MetadataLog) -> None:
        assert log.snapshots == (second,)
        assert (log.view.start, log.view.end_offset) == (second.log_end, 4)
        assert await values_of(log, second) == [b"x" * 300_000, b"y"]
        reader = await log.open_snapshot(second)
        assert reader.voters == ALONE
        assert await log.read_entries(Offset(3), Offset(4)) == (data(3, b"d"),)
        with pytest.raises(OffsetOutOfRange):
            await log.read_entries(Offset(2), Offset(4))

    with SimWorld(0) as world:
        node = world.node("one")
        live(world, node, fill)
        live(world, node, look)


def test_installed_snapshot_replaces_the_log() -> None:
    """Also a longer log that diverged from the committed entries."""
    old, new = snapshot_id(1), snapshot_id(3, epoch=5)
    content = snapshot_bytes(new, [b"s"] * 30)

    async def fill(log: MetadataLog) -> None:
        await log.store_hard_state(SEVEN)
        await log.append((data(0, b"a"), data(1, b"b", b"c"), data(3, b"d", epoch=2)))
        await log.write_snapshot(old, ALONE, iter([[b"a"]]))
        for piece in chunks(new, content):
            await log.write_snapshot_chunk(piece)
        await log.install_snapshot(new, PAIR)
        assert (log.snapshots, log.log.log_start_offset, log.log.log_end_offset) == ((new,), 3, 3)
        await log.append((data(3, b"e", epoch=6),))

    async def look(log: MetadataLog) -> None:
        assert (log.view.start, log.snapshots) == (new.log_end, (new,))
        assert (log.voters.latest, log.view.end) == (PAIR, LogEnd(Epoch(6), Offset(4)))
        assert await values_of(log, new) == [b"s"] * 30
        assert await log.read_entries(Offset(3), Offset(4)) == (data(3, b"e", epoch=6),)

    with SimWorld(0) as world:
        node = world.node("one")
        live(world, node, fill)
        names = [path for path, _ in node.device.disk.files() if path.endswith(".checkpoint")]
        assert names == [f"{FOLDER}/00000000000000000003-0000000005.checkpoint"]
        live(world, node, look)


def _damaged(content: bytes) -> dict[str, bytes]:
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 4
    other = snapshot_bytes(snapshot_id(9, epoch=5), [b"s"] * 30)
    return {
        "a bit is wrong": bytes(flipped),
        "the footer is missing": content[: content.rindex(b"s") + 2],
        "the end is cut off": content[:-1],
        "bytes follow": content + b"\0",
        "of another offset": other,
        "empty": b"",
    }


@pytest.mark.parametrize("name", list(_damaged(b"s" * 400)))
def test_a_damaged_snapshot_is_refused_and_changes_nothing(name: str) -> None:
    new = snapshot_id(3, epoch=5)
    whole = snapshot_bytes(new, [b"s"] * 30)
    content = _damaged(whole)[name]

    async def refuse(log: MetadataLog) -> None:
        await log.store_hard_state(SEVEN)
        await log.append((data(0, b"a"),))
        for piece in chunks(new, content) or chunks(new, b"x"):
            await log.write_snapshot_chunk(piece)
        with pytest.raises(SnapshotDamaged):
            await log.install_snapshot(new, PAIR)
        assert (log.log.log_end_offset, log.snapshots) == (1, ())
        for piece in chunks(new, whole):  # sent again, it is taken
            await log.write_snapshot_chunk(piece)
        await log.install_snapshot(new, PAIR)

    with SimWorld(0) as world:
        node = world.node("one")
        live(world, node, refuse)
        assert live(world, node, lambda log: values_of(log, new)) == [b"s"] * 30


def test_a_snapshot_whose_voters_are_not_the_senders_is_refused() -> None:
    new = snapshot_id(3, epoch=5)

    async def refuse(log: MetadataLog) -> None:
        for piece in chunks(new, snapshot_bytes(new)):
            await log.write_snapshot_chunk(piece)
        with pytest.raises(SnapshotDamaged, match="voters differ"):
            await log.install_snapshot(new, ALONE)

    with SimWorld(0) as world:
        live(world, world.node("one"), refuse)


def test_unfinished_files_are_removed_at_the_next_start() -> None:
    new = snapshot_id(3, epoch=5)

    async def begin(log: MetadataLog) -> None:
        await log.write_snapshot_chunk(chunks(new, snapshot_bytes(new))[0])

    async def look(log: MetadataLog) -> None:
        with pytest.raises(AssertionError, match="without a received file"):
            await log.install_snapshot(new, PAIR)

    with SimWorld(0) as world:
        node = world.node("one")
        live(world, node, begin)
        leave(node, f"{FOLDER}/00000000000000000009-0000000001.checkpoint.tmp", b"half")
        live(world, node, look)
        assert [path for path, _ in node.device.disk.files() if "checkpoint." in path] == []


def test_a_snapshot_that_was_overtaken_while_it_was_written_is_dropped() -> None:
    old, new = snapshot_id(1), snapshot_id(3, epoch=5)

    async def race(log: MetadataLog) -> None:
        await log.store_hard_state(SEVEN)
        await log.append((data(0, b"a"),))
        for piece in chunks(new, snapshot_bytes(new)):
            await log.write_snapshot_chunk(piece)
        await log.install_snapshot(new, PAIR)
        assert await log.write_snapshot(old, ALONE, iter([[b"a"]])) == 0
        assert log.snapshots == (new,)

    with SimWorld(0) as world:
        live(world, world.node("one"), race)


def test_state_survives_a_restart_on_a_real_file_system(tmp_path: Path) -> None:
    one, two = snapshot_id(2), snapshot_id(9, epoch=5)
    path = str(tmp_path / "data")

    async def main(runtime: Runtime) -> None:
        async with opened(runtime, path=path) as log:
            await log.store_hard_state(SEVEN)
            await log.append((data(0, b"a", b"b"), data(2, b"c")))
            await log.write_snapshot(one, ALONE, iter([[b"x" * 300_000], [b"y"]]))
            await log.clean_to(one)
        async with opened(runtime, path=path) as log:
            assert (log.view.start, log.snapshots) == (one.log_end, (one,))
            assert await values_of(log, one) == [b"x" * 300_000, b"y"]
            for piece in chunks(two, snapshot_bytes(two, [b"z"])):
                await log.write_snapshot_chunk(piece)
            await log.install_snapshot(two, PAIR)
        async with opened(runtime, path=path) as log:
            assert (log.view.start, log.snapshots) == (two.log_end, (two,))
            assert (log.hard_state, log.voters.latest) == (SEVEN, PAIR)

    run_patiently(main)


def test_epoch_and_vote_never_decrease() -> None:
    async def vote(log: MetadataLog) -> None:
        await log.store_hard_state(SEVEN)
        for worse in (HardState(Epoch(6), ME), HardState(Epoch(7), TWO), HardState(Epoch(7), None)):
            with pytest.raises(AssertionError):
                await log.store_hard_state(worse)
        assert log.hard_state == SEVEN

    with SimWorld(0) as world:
        live(world, world.node("one"), vote)


def test_another_nodes_or_disks_directory_is_refused() -> None:
    with SimWorld(0) as world:
        node = world.node("one")

        async def main(runtime: Runtime) -> None:
            async with opened(runtime):
                pass
            async with runtime.tasks.scope("life") as scope:
                directory = await DataDirectory.open(runtime, scope, DATA)
                for other in (TWO, Voter(NodeId(1), DirectoryId(b"9" * 16))):
                    with pytest.raises(DirectoryMismatch, match="belongs to node 1"):
                        await MetadataLog.open(runtime, directory, me=other)
                await directory.close()

        world.run_until(node.spawn(main), virtual_ms=60_000)
        assert node.exit_error is None


def leave(node: SimNode, path: str, content: bytes) -> None:
    """Create a durable file on the disk."""
    body = node.device.disk.create(path)
    body.content[:] = content
    body.durable[:] = content
    node.device.disk.sync_folder(path.rpartition("/")[0])


async def fill_a_little(log: MetadataLog) -> None:
    await log.store_hard_state(SEVEN)
    await log.append((data(0, b"a"), data(1, b"b")))
    await log.write_snapshot(snapshot_id(1), ALONE, iter([[b"a"]]))
    await log.clean_to(snapshot_id(1))


SNAPSHOT = f"{FOLDER}/00000000000000000001-0000000001.checkpoint"


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        (f"{DATA}/quorum-state", b'{"leaderId": -1, "leaderEp', "must not vote again"),
        (f"{DATA}/quorum-state", b"", "must not vote again"),
        (f"{DATA}/quorum-state", None, "must not vote again"),
        (SNAPSHOT, b"", "its footer is missing"),
        (SNAPSHOT, None, "where no snapshot ends"),
    ],
)
def test_damaged_durable_state_prevents_a_start(
    path: str, content: bytes | None, words: str
) -> None:
    with SimWorld(0) as world:
        node = world.node("one")
        live(world, node, fill_a_little)
        if content is None:
            node.device.disk.remove(path)
        else:
            leave(node, path, content)
        before = batches_on(node)
        with pytest.raises(CorruptionError, match=words):
            live(world, node, fill_a_little)
        assert batches_on(node) == before


def batches_on(node: SimNode) -> dict[str, bytes]:
    """Return the batches of every segment on the disk."""
    files = node.device.disk.files()
    return {path: bytes(body.content) for path, body in files if path.endswith(".log")}


def test_an_older_epoch_than_the_logs_is_damage() -> None:
    with SimWorld(0) as world:
        node = world.node("one")
        live(world, node, fill_a_little)
        body = node.device.disk.file(f"{DATA}/quorum-state")
        text = b'{"leaderId": -1, "leaderEpoch": 0, "votedId": -1, "data_version": 1}'
        body.content[:] = text
        with pytest.raises(CorruptionError, match="outdated"):
            live(world, node, fill_a_little)
