"""The storage crashed at every file operation; `make simulate LEVEL=storage` plays more seeds."""

import errno

import pytest
from tests.simulation.levels.storage.level import Effort, play, play_with_fault
from tests.simulation.runs import play_seed

from quorumlog.simulation import SimWorld
from quorumlog.simulation.crash_states import Recording, content_digest, crash_states
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.fault_options import Faults

QUICK = Effort(steps=14, draws=1, choices_max=2, every=7, used=4, deeper=250)


def failure(seed: int, effort: Effort) -> str:
    def scenario(world: SimWorld) -> dict[str, int]:
        return play(world, effort=effort)

    return play_seed("storage", seed, scenario).failure


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_file_operation_keeps_every_promise(seed: int) -> None:
    assert not failure(seed, QUICK)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_crashes_at_any_file_operation_keep_every_promise(seed: int) -> None:
    assert not failure(seed, Effort(steps=20, draws=4, choices_max=8, every=1, deeper=60))


@pytest.mark.long
@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO, 0], ids=["full", "broken", "short"])
def test_an_error_of_any_file_operation_costs_nothing_that_was_promised(fault: int) -> None:
    for number in range(1, 480, 24):
        with SimWorld(number) as world:
            play_with_fault(world, number=number, fault=fault, is_short=fault == 0, steps=8)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO, 0], ids=["full", "broken", "short"])
def test_errors_of_all_file_operations_cost_nothing_that_was_promised(fault: int) -> None:
    for number in range(1, 900, 3):
        with SimWorld(number) as world:
            play_with_fault(world, number=number, fault=fault, is_short=fault == 0, steps=20)


def test_every_choice_among_a_few_changes_is_a_state_of_its_own() -> None:
    """Three writes apart from each other: eight states after a power cut, and the process's."""
    with SimWorld(0) as world:
        node = world.node("node")
        node.start_process()
        file = node.runtime().files.open("/f", create=True)
        file.write(0, [bytes(30)])
        file.sync()
        node.runtime().files.sync_folder("/")
        for position in (0, 10, 20):
            file.write(position, [b"x"])
        found = list(crash_states(node.device.disk, SimEntropy("w"), draws=0, choices_max=100))
        assert [wreck.is_power_cut for wreck in found] == [False] + [True] * 8
        assert len({content_digest(wreck.disk) for wreck in found[1:]}) == 8


def test_a_recorded_disk_stays_as_it_was() -> None:
    with SimWorld(0, faults=Faults()) as world:
        node = world.node("node")
        node.start_process()
        recording = Recording.attach(node.device)
        files = node.runtime().files
        files.make_folder("/a")
        file = files.open("/a/f", create=True)
        file.write(0, [b"one"])
        file.write(0, [b"two"])
        files.rename("/a/f", "/a/g")
        files.sync_folder("/a")
        assert [op.what for op in recording.operations] == [
            "begin", "make_folder", "create", "write", "write", "rename", "sync_folder"
        ]  # fmt: skip
        assert bytes(recording.operations[3].disk.file("/a/f").content) == b"one"
        assert not recording.operations[3].disk.exists("/a/g")
        assert not recording.operations[0].disk.exists("/a")
