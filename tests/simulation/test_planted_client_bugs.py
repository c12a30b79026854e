"""The scenario of the clients can fail: each bug planted into a client is found, by its name."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from tests.simulation.levels.clients.level import play
from tests.simulation.runs import play_seed

from quorumlog.clients.config import ProducerConfig
from quorumlog.clients.consumer.partition_reader import PartitionReader
from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.clients.producer import partition_queue
from quorumlog.clients.producer.accumulator import Accumulator
from quorumlog.clients.producer.batches import Batch
from quorumlog.clients.producer.incomplete_batches import IncompleteBatches
from quorumlog.clients.producer.leader_link import LeaderLink
from quorumlog.clients.producer.outcomes import BatchOutcomes
from quorumlog.clients.producer.partition_queue import Part, PartitionQueue
from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.clients.producer.retry import BatchRetries
from quorumlog.errors import QuorumlogError

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def records_are_forgotten_at_their_deadline(patch: pytest.MonkeyPatch) -> None:
    def fail(self: BatchOutcomes, batches: Sequence[Batch], error: QuorumlogError) -> None:
        self._changes.announce()

    patch.setattr(BatchOutcomes, "fail", fail)


def deadlines_are_ignored(patch: pytest.MonkeyPatch) -> None:
    def expired(self: IncompleteBatches, now_ms: int) -> tuple[list[Batch], int | None]:
        return [], None

    patch.setattr(IncompleteBatches, "expired", expired)


def what_is_sent_counts_as_stored(patch: pytest.MonkeyPatch) -> None:
    """A broken stream's requests are acknowledged at some offset in place of a repeat."""

    def refused(self: BatchRetries, part: Part, error: QuorumlogError) -> None:
        self._outcomes.stored(part, 0)

    patch.setattr(BatchRetries, "refused", refused)


def repeats_are_swapped(patch: pytest.MonkeyPatch) -> None:
    """Put batches that are sent again behind younger ones in the queue."""

    def bring_back(part: Part) -> None:
        queue = part.queue
        if queue.open is not None:
            queue.closed.append(queue.open)
            queue.open = None
        queue.closed.extend(part.batches)

    patch.setattr(ProducerConfig, "is_idempotent", property(lambda self: False))
    patch.setattr(partition_queue, "bring_back", bring_back)


def repeats_are_numbered_anew(patch: pytest.MonkeyPatch) -> None:
    """A batch that is sent again has another number than before."""
    honest = partition_queue._give_number

    def give(queue: PartitionQueue, batch: Batch, **known: Any) -> None:
        batch.number = None
        honest(queue, batch, **known)

    patch.setattr(partition_queue, "_give_number", give)


def a_consumer_skips_records(patch: pytest.MonkeyPatch) -> None:
    """The last record of a chunk is lost when not all of it is handed out at once."""
    honest = PartitionReader.take

    def take(self: PartitionReader, count: int) -> list[ConsumerRecord]:
        taken = honest(self, count)
        if self.records:
            self.records.pop()
        return taken

    patch.setattr(PartitionReader, "take", take)


def the_buffer_has_no_bound(patch: pytest.MonkeyPatch) -> None:
    honest = Accumulator.__init__

    def begin(self: Accumulator, *arguments: Any, **named: Any) -> None:
        honest(self, *arguments, **named)
        self._buffer_size = 1 << 60

    patch.setattr(Accumulator, "__init__", begin)


def a_full_buffer_is_waited_for_without_end(patch: pytest.MonkeyPatch) -> None:
    async def wait(self: AsyncProducer, topic: str, size: int, until_ms: int) -> None:
        while not self._incomplete.has_room(size):
            await self._outcomes.wait_change()

    patch.setattr(AsyncProducer, "_wait_room", wait)


def an_overdue_answer_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    def check_deadline(self: LeaderLink, now_ms: int) -> int | None:
        return None

    patch.setattr(LeaderLink, "check_deadline", check_deadline)


# A bug, seeds of which one at least finds it, and the names under which it may be found.
BUGS: list[tuple[Plant, tuple[int, ...], tuple[str, ...]]] = [
    (records_are_forgotten_at_their_deadline, (0, 4, 3), ("hangs", "no outcome", "over budget")),
    (deadlines_are_ignored, (10, 1, 20, 21), ("late outcome", "hangs")),
    (what_is_sent_counts_as_stored, (10, 1, 7), ("lost write", "inconsistent offset")),
    (repeats_are_swapped, (7, 29, 9), ("reordered",)),
    (repeats_are_numbered_anew, (7, 9), ("duplicate",)),
    (a_consumer_skips_records, (0, 1, 2, 3), ("out of turn",)),
    (the_buffer_has_no_bound, (0, 1, 5, 7), ("over budget",)),
    (a_full_buffer_is_waited_for_without_end, (9, 11, 7), ("hangs",)),
    (an_overdue_answer_is_waited_for, (10, 11, 12, 13), ("late outcome", "hangs")),
]


@pytest.mark.long
@pytest.mark.parametrize(("plant", "seeds", "names"), BUGS, ids=[row[0].__name__ for row in BUGS])
def test_a_bug_planted_into_a_client_is_found(
    plant: Plant, seeds: tuple[int, ...], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    failures = (play_seed("clients", seed, play).failure for seed in seeds)
    failure = next(filter(None, failures), f"not found in {seeds}")
    assert any(name in failure for name in names), failure
