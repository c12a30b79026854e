"""A directory has its voters from the moment it counts as formatted."""

from typing import Any

import pytest

from quorumlog.errors import CorruptionError, DirectoryMismatch, InvalidRequest
from quorumlog.ids import ClusterId, DirectoryId
from quorumlog.raftlog.shell.directory_format import format_directory
from quorumlog.raftlog.shell.metadata_log import MetadataLog
from quorumlog.raftlog.voters import VoterSet
from quorumlog.runtime import Runtime
from quorumlog.simulation import CrashPoint, SimNode, SimWorld
from quorumlog.storage import DirectoryMeta

from .durable import ALONE, CLUSTER, DATA, ME, PAIR, TWO, control, live, snapshot_id

OTHERS = VoterSet.of([(TWO, "two:9093")])
NO_VOTERS = VoterSet(())


def formatted(
    world: SimWorld, node: SimNode, voters: VoterSet | None, **others: Any
) -> DirectoryMeta:
    """Format in a process of its own."""
    fields: dict[str, Any] = {"cluster_id": CLUSTER, "node_id": ME.node_id, **others}

    made: list[DirectoryMeta] = []

    async def main(runtime: Runtime) -> None:
        made.append(await format_directory(runtime, DATA, voters=voters, **fields))

    node.spawn(main)
    world.run_until(lambda: not node.alive, virtual_ms=60_000)
    if node.exit_error is not None:
        raise node.exit_error
    return made[0]


async def voters_of(log: MetadataLog) -> VoterSet:
    assert log.snapshots == (), "the bootstrap snapshot has no state"
    return log.voters.latest


@pytest.mark.parametrize("voters", [PAIR, NO_VOTERS])
def test_formatted_voters_are_in_effect_at_the_log_start(voters: VoterSet) -> None:
    with SimWorld(0) as world:
        node = world.node("one")
        meta = formatted(world, node, voters, directory_id=ME.directory_id)
        assert meta.directory_id == ME.directory_id
        for _ in range(2):
            assert live(world, node, voters_of) == voters
            formatted(world, node, voters)  # again, with the same arguments


def test_voter_gets_the_directory_id_of_the_voter_set() -> None:
    with SimWorld(0) as world:
        node = world.node("one")
        assert formatted(world, node, PAIR).directory_id == ME.directory_id
        assert formatted(world, node, None).directory_id == ME.directory_id


def test_node_formatted_without_voters_is_a_lone_voter() -> None:
    with SimWorld(0) as world:
        node = world.node("one")
        formatted(world, node, None, directory_id=ME.directory_id)
        assert live(world, node, voters_of) == ALONE


def test_a_directory_of_others_is_refused() -> None:
    with SimWorld(0) as world:
        node = world.node("one")
        formatted(world, node, PAIR)
        with pytest.raises(DirectoryMismatch, match="belongs to cluster"):
            formatted(world, node, PAIR, cluster_id=ClusterId("d" * 22))
        with pytest.raises(DirectoryMismatch, match="belongs to node"):
            formatted(world, node, PAIR, node_id=TWO.node_id)
        for others in (OTHERS, NO_VOTERS):
            with pytest.raises(DirectoryMismatch, match="with other voters"):
                formatted(world, node, others)
        assert live(world, node, voters_of) == PAIR


def test_a_lone_voters_directory_does_not_become_a_member_of_a_quorum() -> None:
    with SimWorld(0) as world:
        node = world.node("one")
        formatted(world, node, None, directory_id=ME.directory_id)
        with pytest.raises(DirectoryMismatch, match="with other voters"):
            formatted(world, node, PAIR)
        formatted(world, world.node("two"), None)
        with pytest.raises(DirectoryMismatch, match="another directory id"):
            formatted(world, world.node("two"), PAIR)


def test_directory_ids_that_contradict_each_other_are_refused() -> None:
    with SimWorld(0) as world, pytest.raises(InvalidRequest, match="the directory id differs"):
        formatted(world, world.node("one"), PAIR, directory_id=DirectoryId(b"x" * 16))


def test_voters_outlive_the_first_snapshot() -> None:
    """A second formatting has nothing left to compare, and changes nothing."""

    async def clean(log: MetadataLog) -> None:
        await log.store_hard_state(log.hard_state)
        await log.append((control(0, epoch=0),))
        await log.write_snapshot(snapshot_id(1, epoch=0), OTHERS, iter([]))
        await log.clean_to(snapshot_id(1, epoch=0))

    async def look(log: MetadataLog) -> VoterSet:
        return log.voters.latest

    with SimWorld(0) as world:
        node = world.node("one")
        formatted(world, node, PAIR)
        live(world, node, clean)
        formatted(world, node, PAIR)
        assert live(world, node, look) == OTHERS


def test_a_damaged_bootstrap_snapshot_keeps_the_node_from_starting() -> None:
    with SimWorld(0) as world:
        node = world.node("one")
        formatted(world, node, PAIR)
        path = f"{DATA}/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
        node.device.disk.file(path).flip(100, 3)
        with pytest.raises(CorruptionError, match="damaged"):
            live(world, node, voters_of)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("moment", ["before", "inside", "after"])
def test_no_crash_leaves_a_formatted_directory_without_its_voters(moment: str, power: bool) -> None:
    """After a crash at any file operation the directory is unformatted or has its voters."""
    for operation in range(1, 60):
        with SimWorld(operation) as world:
            node = world.node("one")
            node.crash_at(CrashPoint(operations=operation, power=power, moment=moment))
            if _formats(world, node):
                assert operation > 10
                return
            node.crash_at(None)
            if node.device.disk.exists(f"{DATA}/meta.properties"):
                assert live(world, node, voters_of) == PAIR
            formatted(world, node, PAIR)
            assert live(world, node, voters_of) == PAIR
    raise AssertionError("formatting takes more file operations than that")


def _formats(world: SimWorld, node: SimNode) -> bool:
    """Return True if the formatting completes."""
    ends: list[DirectoryMeta] = []

    async def main(runtime: Runtime) -> None:
        ends.append(
            await format_directory(
                runtime, DATA, cluster_id=CLUSTER, node_id=ME.node_id, voters=PAIR
            )
        )

    node.spawn(main)
    world.run_until(lambda: not node.alive, virtual_ms=60_000)
    assert node.killed or node.exit_error is None, node.exit_error
    return bool(ends)
