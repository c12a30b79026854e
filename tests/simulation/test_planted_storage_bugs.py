"""Crashing the storage everywhere can fail: each bug planted into it is found within its seeds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from tests.simulation.levels.storage.level import Effort, play
from tests.simulation.runs import play_seed

from quorumlog.simulation import SimWorld
from quorumlog.storage import (
    data_directory_state,
    producer_state_manager,
    recovery,
    small_files,
    truncation,
)
from quorumlog.storage.checkpoints import Checkpoints
from quorumlog.storage.flush import Flush
from quorumlog.storage.leader_epochs import EpochCache
from quorumlog.storage.log import Log
from quorumlog.storage.producer_state_manager import ProducerReplay
from quorumlog.storage.segment_files import perform_removal, perform_swap
from quorumlog.storage.shell import checkpointer, data_directory, log_cleaner, maintenance, writer

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]

QUICK = Effort(steps=14, draws=2, choices_max=2, every=5, used=3, deeper=0)
SEEDS_MAX = 8


def files_are_renamed_before_they_are_synced(patch: pytest.MonkeyPatch) -> None:
    def write_file(files: Any, path: str, content: bytes) -> None:
        file = files.open(path, create=True)
        small_files.fill(file, content)
        file.close()

    patch.setattr(small_files, "write_file", write_file)


def names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A replaced file's rename is left to chance."""

    def replace_file(files: Any, folder: str, name: str, content: bytes) -> None:
        small_files.write_file(files, f"{folder}/{name}.tmp", content)
        files.rename(f"{folder}/{name}.tmp", f"{folder}/{name}")

    for module in (small_files, data_directory_state):
        patch.setattr(module, "replace_file", replace_file)


def answers_come_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "perform_flush", lambda files, flush: None)


def a_flush_forgets_the_names_of_new_segments(patch: pytest.MonkeyPatch) -> None:
    def perform_flush(files: Any, flush: Flush) -> None:
        for file, _ in flush.synced:
            file.sync()

    patch.setattr(writer, "perform_flush", perform_flush)


def the_clean_marker_stays_during_a_life(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(data_directory, "remove_clean_marker", lambda files, path: None)


def checksums_are_not_read_in_a_recovery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "check_crc", lambda batch, position, header: None)


def a_torn_tail_is_left_in_the_file(patch: pytest.MonkeyPatch) -> None:
    """The log ends before it, and the next append overwrites a part of it."""
    honest = recovery._Scan._cut

    def cut(self: Any, segment: Any, bad: Any, later: list[int]) -> None:
        files, self.files = self.files, Untruncated(self.files)
        honest(self, segment, bad, later)
        self.files = files

    patch.setattr(recovery._Scan, "_cut", cut)


class Untruncated:
    """Files that cannot be cut."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, path: str) -> Any:
        file = self._files.open(path)
        file.truncate = lambda size: None
        return file


def the_recovery_point_runs_ahead_of_the_sync(patch: pytest.MonkeyPatch) -> None:
    async def checkpoint(self: checkpointer.Checkpointer) -> None:
        await self.store([queue.log for queue in self._writer.dirty])

    patch.setattr(Log, "recovery_point", property(lambda log: log.log_end_offset))
    patch.setattr(checkpointer.Checkpointer, "checkpoint", checkpoint)


def a_recovery_trusts_the_page_cache(patch: pytest.MonkeyPatch) -> None:
    """Treat the content found after a dead process as durable, and never sync it."""
    patch.setattr(recovery._Scan, "_finish", lambda scan: scan._activate())


def a_new_log_start_is_answered_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    async def store_log_start(self: Any, queue: Any, offset: int) -> None:
        queue.log.cleanup.advance_log_start(offset)

    patch.setattr(checkpointer.Checkpointer, "store_log_start", store_log_start)


def a_truncation_leaves_the_recovery_point_above(patch: pytest.MonkeyPatch) -> None:
    def truncate_log(files: Any, path: str, points: Any, name: str, planned: Any) -> Any:
        cut = truncation.find_truncation_point(planned)
        truncation.perform_truncation(files, planned, cut)
        return cut

    patch.setattr(data_directory, "truncate_log", truncate_log)


def a_truncation_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    def perform(
        files: Any, planned: truncation.Truncation, cut: truncation.TruncationPoint
    ) -> None:
        file: Any = UnsyncedFile(planned.file)
        honest(Unsynced(files), replace(planned, file=file), cut)

    honest = truncation.perform_truncation
    for module in (truncation, data_directory_state):
        patch.setattr(module, "perform_truncation", perform)


class Unsynced:
    """Files whose names are left to chance."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def sync_folder(self, folder: str) -> None:
        pass


class UnsyncedFile:
    """A file that is never synced."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        pass


def a_truncation_keeps_the_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochCache, "truncate_end", lambda cache, end_offset: False)


def a_deleted_logs_checkpoints_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Checkpoints, "remove_log", lambda stored, name: {})


def a_swap_of_cleaned_segments_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        log_cleaner, "perform_swap", lambda files, swap: perform_swap(Unsynced(files), swap)
    )


def a_removal_of_old_segments_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        maintenance,
        "perform_removal",
        lambda files, removal: perform_removal(Unsynced(files), removal),
    )


def a_recovery_forgets_what_producers_wrote(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerReplay, "note", lambda replay, file, position, header: None)


def aborted_transactions_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producer_state_manager, "append_aborted", lambda files, folder, unstored: None)


def an_emptied_log_forgets_its_epoch(patch: pytest.MonkeyPatch) -> None:
    def settle(epochs: EpochCache, of_emptied: int, *, start: int, end: int) -> None:
        epochs.truncate_end(end)
        epochs.truncate_start(start)

    patch.setattr(recovery, "_settle_epochs", settle)


PLANTS: tuple[Plant, ...] = (
    files_are_renamed_before_they_are_synced,
    names_are_not_synced,
    answers_come_before_the_sync,
    a_flush_forgets_the_names_of_new_segments,
    the_clean_marker_stays_during_a_life,
    checksums_are_not_read_in_a_recovery,
    a_torn_tail_is_left_in_the_file,
    the_recovery_point_runs_ahead_of_the_sync,
    a_recovery_trusts_the_page_cache,
    a_new_log_start_is_answered_before_it_is_stored,
    a_truncation_leaves_the_recovery_point_above,
    a_truncation_is_not_synced,
    a_truncation_keeps_the_epochs,
    a_deleted_logs_checkpoints_stay,
    a_swap_of_cleaned_segments_is_not_synced,
    a_removal_of_old_segments_is_not_synced,
    a_recovery_forgets_what_producers_wrote,
    aborted_transactions_are_not_stored,
    an_emptied_log_forgets_its_epoch,
)


FIRST_SEEDS: dict[Plant, int] = {
    checksums_are_not_read_in_a_recovery: 1,
    the_recovery_point_runs_ahead_of_the_sync: 1,
    a_truncation_leaves_the_recovery_point_above: 20,
    a_truncation_is_not_synced: 1,
    a_deleted_logs_checkpoints_stay: 1,
    a_swap_of_cleaned_segments_is_not_synced: 4,
    a_recovery_forgets_what_producers_wrote: 1,
    aborted_transactions_are_not_stored: 9,
}
"""Where to begin, to be quick: the seed that found the bug when it was planted."""


def first_failure(first: int) -> str:
    """The failure of the first seed from `first` on that has one, "" when none has."""

    def scenario(world: SimWorld) -> dict[str, int]:
        return play(world, effort=QUICK)

    for seed in range(first, first + SEEDS_MAX):
        outcome = play_seed("storage", seed, scenario)
        if outcome.failure:
            return f"seed {seed}: {outcome.failure}"
    return ""


@pytest.mark.long
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    failure = first_failure(FIRST_SEEDS.get(plant, 0))
    assert failure, f"not found within {SEEDS_MAX} seeds"
