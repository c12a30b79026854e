"""A group shard with its log: batches of producers, control batches and compaction."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from quorumlog.broker.coordinator.decision import Answered, Failed, Ticket
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.formats import decode, encode
from quorumlog.broker.groups.records import GroupDecision, GroupRecord
from quorumlog.broker.groups.requests import (
    CommitOutcome,
    CommitTransactionalOffsets,
    FetchOffsets,
    GroupRequest,
    OffsetToCommit,
    WriteGroupMarker,
)
from quorumlog.broker.groups.shard import GroupShard
from quorumlog.errors import QuorumlogError, UnstableOffsetCommit
from quorumlog.ids import ProducerIdentity
from quorumlog.metadata import MetadataImage
from quorumlog.records import Record
from quorumlog.records.codec import encode_batch
from quorumlog.records.control import TransactionMarker, encode_marker
from quorumlog.storage.append import AppendOrigin, headers_of
from quorumlog.storage.producer_state import ProducerLimits, ProducerStates

from .offsets_image import ID, image_of

R = TypeVar("R")

CONFIG = GroupConfig(offsets_retention_minutes=1, offsets_check_ms=1_000, initial_delay_ms=0)
START_MS = 1_000_000


class LogEntry(NamedTuple):
    """One record with its producer, or one marker."""

    offset: int
    record: GroupRecord | None = None
    producer: ProducerIdentity | None = None
    marker: TransactionMarker | None = None


class TransactionalShard:
    """A shard with its clock and its log."""

    def __init__(
        self,
        log: Iterable[LogEntry] = (),
        *,
        now_ms: int = START_MS,
        image: MetadataImage | None = None,
        config: GroupConfig = CONFIG,
        producers: ProducerStates | None = None,
    ) -> None:
        """`producers` are those of the log. They outlive a reload and refuse no batch."""
        self.now_ms = now_ms
        self.image = image_of({"t": ID}) if image is None else image
        self.log = list(log)
        self.config = config
        self.producers = producers or ProducerStates(ProducerLimits(), wall_ms=now_ms)
        self._next_offset = self.log[-1].offset + 1 if self.log else 0
        self._drawn = 0
        self.outcomes: dict[Ticket, Any] = {}
        self.shard = GroupShard(config, self._draw, ProducerLimits())
        for entry in self.log:
            if entry.marker is not None:
                self.shard.replay_marker(entry.marker._replace(transaction_version=0))
            elif entry.record is not None:
                self.shard.replay(entry.record, entry.producer)
        self._store(self.shard.loaded(self.image, now_ms))

    def _draw(self) -> str:
        self._drawn += 1
        return f"drawn-{self._next_offset}-{self._drawn}"

    def _store(self, decision: GroupDecision) -> None:
        """Append what a decision stores, and keep its replies."""
        assert not (decision.records and decision.marker), "a control batch has no other records"
        self._append(decision)
        entries = [LogEntry(0, record, decision.producer) for record in decision.records]
        for entry in entries:
            assert entry.record is not None
            assert decode(*encode(entry.record)) == entry.record
        if decision.marker is not None:
            entries.append(LogEntry(0, marker=decision.marker))
        for entry in entries:
            self.log.append(entry._replace(offset=self._next_offset))
            self._next_offset += 1
        for reply in decision.replies:
            assert reply.ticket not in self.outcomes, "a request is answered once"
            assert isinstance(reply, Answered | Failed)
            self.outcomes[reply.ticket] = (
                reply.outcome if isinstance(reply, Answered) else reply.error
            )
        self.shard.check_invariants()

    def _append(self, decision: GroupDecision) -> None:
        """Append the batch of a decision to the producers of the log, as the shell does."""
        if decision.marker is not None:
            marker = decision.marker
            batch = encode_marker(
                producer_id=marker.producer.producer_id,
                producer_epoch=marker.producer.producer_epoch,
                kind=marker.kind,
                coordinator_epoch=marker.coordinator_epoch,
                timestamp_ms=self.now_ms,
            )
        elif decision.producer is not None:
            records = [Record(0, self.now_ms, *encode(record)) for record in decision.records]
            batch = encode_batch(
                records,
                producer_id=decision.producer.producer_id,
                producer_epoch=decision.producer.producer_epoch,
                is_transactional=True,
            )
        else:
            return
        changes = self.producers.plan(
            batch,
            headers_of(batch),
            next_offset=self._next_offset,
            origin=AppendOrigin.INTERNAL,
            wall_ms=self.now_ms,
        )
        assert changes is not None
        self.producers.reserve(changes)
        self.producers.complete(changes)

    # --- requests ---------------------------------------------------------------------------------

    def ask(self, request: GroupRequest[R]) -> R:
        """Return the answer; raise the error of a refusal."""
        return self._handle(request)  # type: ignore[no-any-return]

    def _handle(self, request: Any) -> Any:
        ticket = Ticket(len(self.outcomes))
        self._store(self.shard.handle(ticket, request, self.image, self.now_ms))
        outcome = self.outcomes[ticket]
        if isinstance(outcome, QuorumlogError):
            raise outcome
        return outcome

    def commit(
        self,
        producer: ProducerIdentity,
        *offsets: tuple[str, int, int],
        group: str = "g",
        verify: Callable[[], object] = lambda: None,
        **member: Any,
    ) -> CommitOutcome:
        """Commit (topic, partition, offset) in a transaction, which `verify` verifies if needed."""
        guard = self.shard.verification_guard(producer, "x")
        if guard is not None:
            verify()
        return self.ask(
            CommitTransactionalOffsets(
                group=group,
                transactional_id="x",
                producer=producer,
                guard=guard,
                offsets=tuple(
                    OffsetToCommit(topic=topic, partition=partition, offset=offset)
                    for topic, partition, offset in offsets
                ),
                **member,
            )
        )

    def write(self, marker: TransactionMarker) -> bool:
        """Write a marker; return True if it was appended. Raises the error of a refusal."""
        end = self._next_offset
        self._handle(WriteGroupMarker(marker))
        return self._next_offset > end

    def expire(self, ms: int) -> None:
        """Let time pass and deadlines expire."""
        end_ms = self.now_ms + ms
        while (due_ms := self.shard.deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._store(self.shard.expire(self.now_ms, self.image))
        self.now_ms = end_ms

    def change_topics(self, image: MetadataImage) -> None:
        """Apply new metadata."""
        topics = self.image.sorted_topics()
        deleted = [each for each in topics if image.topic_of_id(each.id) is None]
        self.image = image
        self._store(self.shard.image_changed(image, self.now_ms, deleted=deleted))

    def reload(self, log: Iterable[LogEntry] | None = None) -> "TransactionalShard":
        """Return the shard of another coordinator that loads this log."""
        return TransactionalShard(
            self.log if log is None else log,
            now_ms=self.now_ms,
            image=self.image,
            config=self.config,
            producers=self.producers,
        )

    # --- answers ----------------------------------------------------------------------------------

    def committed(self, group: str = "g") -> dict[tuple[str, int], int]:
        """Return all committed offsets of a group."""
        found = self.ask(FetchOffsets(group=group))
        assert all(each.error is None for each in found)
        return {(each.topic, each.partition): each.offset for each in found}

    def unstable(self, group: str = "g") -> set[tuple[str, int]]:
        """Return the partitions of a group that have no stable offset."""
        found = self.ask(FetchOffsets(group=group, require_stable=True))
        failed = [each for each in found if each.error is not None]
        assert all(isinstance(each.error, UnstableOffsetCommit) for each in failed)
        return {(each.topic, each.partition) for each in failed}

    def states(self) -> dict[str, str]:
        """Return the state of each group."""
        return {line.group: line.state for line in filter(None, self.shard.listings())}


def last_stable_offset(log: Iterable[LogEntry]) -> int:
    """Return the offset of the first record of an open transaction, or the log end."""
    opened: dict[int, int] = {}
    end = 0
    for entry in log:
        end = entry.offset + 1
        if entry.marker is not None:
            opened.pop(entry.marker.producer.producer_id, None)
        elif entry.producer is not None:
            opened.setdefault(entry.producer.producer_id, entry.offset)
    return min(opened.values(), default=end)


def compacted(log: list[LogEntry], *, drops_tombstones: bool) -> list[LogEntry]:
    """Return the log after compaction up to the last stable offset.

    Aborted and superseded records are removed, and markers without records of their transaction,
    except the last marker of each producer. Tombstones are removed if nothing is left below them.
    """
    end = last_stable_offset(log)
    aborted = _aborted(log)
    newest: dict[bytes, int] = {}
    for entry in log:
        if entry.record is not None and entry.offset < end and entry.offset not in aborted:
            newest[encode(entry.record)[0]] = entry.offset
    kept: list[LogEntry] = []
    for entry in log:
        if entry.record is not None and entry.offset < end:
            key, value = encode(entry.record)
            if entry.offset in aborted or newest[key] != entry.offset:
                continue
            if drops_tombstones and value is None:
                continue
        kept.append(entry)
    return _without_empty_transactions(kept)


def _aborted(log: Iterable[LogEntry]) -> set[int]:
    found: set[int] = set()
    opened: dict[int, list[int]] = {}
    for entry in log:
        if entry.marker is not None:
            offsets = opened.pop(entry.marker.producer.producer_id, [])
            if not entry.marker.is_commit:
                found.update(offsets)
        elif entry.producer is not None:
            opened.setdefault(entry.producer.producer_id, []).append(entry.offset)
    return found


def _without_empty_transactions(log: list[LogEntry]) -> list[LogEntry]:
    last = {
        entry.marker.producer.producer_id: entry.offset for entry in log if entry.marker is not None
    }
    kept: list[LogEntry] = []
    opened: set[int] = set()
    for entry in log:
        if entry.marker is not None:
            producer_id = entry.marker.producer.producer_id
            if producer_id not in opened and last[producer_id] != entry.offset:
                continue
            opened.discard(producer_id)
        elif entry.producer is not None:
            opened.add(entry.producer.producer_id)
        kept.append(entry)
    return kept
