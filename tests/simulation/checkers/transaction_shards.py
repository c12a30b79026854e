"""Rules of the transaction coordinators' decisions, checked at each decision of any broker.

- `StoredState`: the stored records give the state in memory. The newest record of every key is
  replayed into a second shard, as a successor does, and both must be equal.
- `Transition`: the records of a transactional id follow the state machine of KIP-98 and KIP-890:
  the states that may precede each other, the identity of each, and the partitions.
- `RefusedChanges`: a refused request stores nothing, unless it aborts a transaction in its way; a
  request is answered once.
- `Markers`: the markers of a transaction are requested when it is decided, and only then.
- `Timeout`: a transaction is aborted after its timeout and not before it, an id expires likewise,
  and so do task attempts, by their last contact.
- `Repeat`: a request that is repeated at a successor gets the same answer and stores nothing.
- The shard's own invariants, which no running broker checks.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest import mock

from quorumlog.broker.coordinator.decision import Answered, Failed, Ticket
from quorumlog.broker.transactions.config import TransactionConfig
from quorumlog.broker.transactions.formats import decode, encode
from quorumlog.broker.transactions.records import (
    CLIENT_EPOCH_MAX,
    NO_PRODUCER_ID,
    AttemptState,
    StagedAttempt,
    TransactionalIdForgotten,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from quorumlog.broker.transactions.requests import (
    AbortStage,
    AddPartitions,
    BeginAttempt,
    CommitStage,
    EndTransaction,
    InitProducerId,
    KeepAttemptAlive,
    SealAttempt,
    TransactionRequest,
    WriteMarkers,
)
from quorumlog.broker.transactions.shard import EXPIRED_A_STEP, TransactionShard
from quorumlog.broker.transactions.shell import transaction_coordinator_shard
from quorumlog.broker.transactions.transaction import DrawProducerId, TransactionDecision
from quorumlog.errors import ConcurrentTransactions
from quorumlog.ids import ProducerIdentity
from quorumlog.metadata.image import MetadataImage, TopicImage
from quorumlog.staged_names import OPEN_TIMEOUT_MS

from .violation import Violation

SUCCESSOR_EVERY: Final = 8
"""One in this many decisions is compared with a second shard."""
TICKET: Final = Ticket(-1)
S: Final = TransactionState
PREPARED: Final = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})
COMPLETE: Final = frozenset({S.COMPLETE_COMMIT, S.COMPLETE_ABORT})
IDLE: Final = COMPLETE | {S.EMPTY}
BEFORE: Final = {
    S.EMPTY: IDLE,
    S.ONGOING: IDLE | {S.ONGOING},
    S.PREPARE_COMMIT: frozenset({S.ONGOING}),
    S.PREPARE_ABORT: frozenset({S.ONGOING}),
    # At once if no partition exists any more; an abort also without a transaction (KIP-890).
    S.COMPLETE_COMMIT: frozenset({S.PREPARE_COMMIT, S.ONGOING}),
    S.COMPLETE_ABORT: frozenset({S.PREPARE_ABORT, S.ONGOING}) | IDLE,
}
"""The states that may precede each state, as in Kafka's TransactionState."""
REPEATABLE: Final = (
    AddPartitions,
    EndTransaction,
    BeginAttempt,
    KeepAttemptAlive,
    SealAttempt,
    CommitStage,
    AbortStage,
)


@dataclass(slots=True)
class _Stored:
    """The compacted log of a shard: the newest record of each key, in log order."""

    records: dict[bytes, TransactionRecord] = field(default_factory=dict)
    deleted: dict[bytes, None] = field(default_factory=dict)  # keys with a tombstone

    def add(self, record: TransactionRecord) -> TransactionRecord | None:
        """Add a record; return its predecessor."""
        key, value = encode(record)
        before = self.records.pop(key, None)
        if key in self.deleted:
            before = None
            del self.deleted[key]
        self.records[key] = record
        if value is None:
            self.deleted[key] = None
        assert decode(key, value) == record, f"StoredState: {record} is stored differently"
        return before

    def replay_into(self, shard: TransactionShard, *, with_tombstones: bool) -> None:
        for key, record in self.records.items():
            if with_tombstones or key not in self.deleted:
                shard.replay(record)


class CheckedShard(TransactionShard):
    """A shard that checks its decisions; a violation is added to `violations`."""

    violations: list[Violation]

    def __init__(self, config: TransactionConfig, draw_producer_id: DrawProducerId) -> None:
        super().__init__(config, draw_producer_id)
        self._config_of_successor = config
        self._stored = _Stored()
        self._decisions = 0
        self._contacts: dict[int, int] = {}  # of open attempts, by producer id
        self.deleted: set[str] = set()  # topics deleted before the load or since: membership

    # --- decisions -----------------------------------------------------------------------------

    def handle(
        self, ticket: Ticket, request: TransactionRequest[Any], image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        """Decide a request, and check the decision."""
        decision = super().handle(ticket, request, image, now_ms)
        with self._collected():
            self._check_reply(ticket, request, decision)
            self._decided(decision, image, now_ms)
            self._note_contact(request, decision, now_ms)
            if self._decisions % SUCCESSOR_EVERY == 0:
                self._check_repeat(ticket, request, decision, image, now_ms)
        return decision

    def expire(self, now_ms: int, image: MetadataImage) -> TransactionDecision:
        """Handle expired deadlines, and check the times."""
        before = dict(self._stored.records)
        decision = super().expire(now_ms, image)
        with self._collected():
            self._check_expired(before, decision, now_ms)
            self._decided(decision, image, now_ms)
        return decision

    def restart_sessions(self, now_ms: int) -> None:
        """Extend deadlines."""
        super().restart_sessions(now_ms)
        self._contacts = dict.fromkeys(self._contacts, now_ms)

    def image_changed(
        self, image: MetadataImage, now_ms: int, *, deleted: Iterable[TopicImage] = ()
    ) -> TransactionDecision:
        """Apply a metadata change, and check the decision."""
        gone = list(deleted)
        self.deleted.update(topic.name for topic in gone)
        decision = super().image_changed(image, now_ms, deleted=gone)
        with self._collected():
            self._decided(decision, image, now_ms)
        return decision

    # --- loading -------------------------------------------------------------------------------

    def replay(self, record: TransactionRecord, producer: ProducerIdentity | None = None) -> None:
        """Apply a stored record."""
        super().replay(record, producer)
        self._stored.add(record)

    def loaded(self, image: MetadataImage, now_ms: int) -> TransactionDecision:
        """Finish loading, and check the decision."""
        decision = super().loaded(image, now_ms)
        with self._collected():
            self._adopt_times(now_ms)
            self.deleted.update(
                topic
                for record in self._stored.records.values()
                if isinstance(record, TransactionMetadata)
                for topic, _ in record.partitions
                if topic not in image.topics_by_name
            )
            self._contacts = {
                record.producer_id: now_ms
                for record in self._stored.records.values()
                if isinstance(record, StagedAttempt)
            }
            self._decided(decision, image, now_ms, is_load=True)
        return decision

    def _adopt_times(self, now_ms: int) -> None:
        """Lower the times that were ahead of this broker's clock at the load, and no others."""
        for key, record in list(self._stored.records.items()):
            if not isinstance(record, TransactionMetadata):
                continue
            if max(record.updated_ms, record.started_ms) > now_ms:
                self._stored.records[key] = replace(
                    record,
                    updated_ms=min(record.updated_ms, now_ms),
                    started_ms=min(record.started_ms, now_ms),
                )

    # --- checks --------------------------------------------------------------------------------

    @contextmanager
    def _collected(self) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            name, _, detail = str(error).partition(": ")
            self.violations.append(
                error if isinstance(error, Violation) else Violation(name, detail)
            )

    def _check_reply(
        self, ticket: Ticket, request: TransactionRequest[Any], decision: TransactionDecision
    ) -> None:
        mine = [reply for reply in decision.replies if reply.ticket == ticket]
        may_wait = isinstance(request, CommitStage)
        assert len(mine) == 1 or (may_wait and not mine), (
            f"RefusedChanges: {request} has {len(mine)} replies"
        )
        is_refused = bool(mine) and isinstance(mine[0], Failed)
        assert not is_refused or not decision.records or isinstance(request, InitProducerId), (
            f"RefusedChanges: {request} is refused with {mine[0]}, and stored {decision.records}"
        )

    def _decided(
        self,
        decision: TransactionDecision,
        image: MetadataImage,
        now_ms: int,
        *,
        is_load: bool = False,
    ) -> None:
        """Check the records and effects of a decision, and sometimes the whole state."""
        decided: list[TransactionMetadata] = []
        for record in decision.records:
            before = self._stored.add(record)
            if isinstance(record, TransactionMetadata):
                assert before is None or isinstance(before, TransactionMetadata), f"{before}"
                _check_transition(before, record)
                if before is None or before.state not in PREPARED:
                    decided += [record] if record.state in PREPARED else []
        if not is_load:
            _check_markers(decided, decision.effects)
        due_ms = self.deadline_ms()
        for machine in self._open.values():
            known = machine.metadata
            assert (
                known.state is not S.ONGOING
                or (
                    due_ms is not None
                    and due_ms <= max(known.started_ms + known.timeout_ms, now_ms)
                )
                or known.started_ms + known.timeout_ms <= now_ms
            ), f"Timeout: {known} is due, the next deadline is {due_ms}"
        if decision.records or is_load:
            self._decisions += 1
            if is_load or self._decisions % SUCCESSOR_EVERY == 0:
                self.check_invariants()
                _compare(self, self._successor(image, now_ms), image, now_ms)

    def _successor(self, image: MetadataImage, now_ms: int) -> TransactionShard:
        """Return a shard that has replayed the newest records."""
        successor = TransactionShard(self._config_of_successor, lambda: None)
        # Compaction removes tombstones at some time.
        self._stored.replay_into(successor, with_tombstones=self._decisions % 3 > 0)
        decision = successor.loaded(image, now_ms)
        assert not decision.records, f"StoredState: a successor stores {decision.records}"
        resumed = {effect.producer for effect in decision.effects}
        decided = set(_decided_identities(self))
        assert resumed == decided, f"Markers: a successor resumes {resumed} of {decided}"
        return successor

    def _check_expired(
        self,
        before: Mapping[bytes, TransactionRecord],
        decision: TransactionDecision,
        now_ms: int,
    ) -> None:
        for record in decision.records:
            known = before.get(encode(record)[0])
            if isinstance(record, TransactionMetadata | TransactionalIdForgotten):
                assert isinstance(known, TransactionMetadata), f"Timeout: {record} is unknown"
                if isinstance(record, TransactionMetadata):
                    assert known.state is S.ONGOING, f"Timeout: {known} became {record}"
                    due_ms = known.started_ms + known.timeout_ms
                else:
                    assert known.state in IDLE, f"Timeout: {known} is forgotten"
                    due_ms = known.updated_ms + self._config_of_successor.id_expiration_ms
                assert due_ms <= now_ms, f"Timeout: {known} ends at {now_ms}, due at {due_ms}"
            elif isinstance(record, StagedAttempt):
                contact_ms = self._contacts.get(record.producer_id, now_ms)
                assert now_ms - contact_ms >= OPEN_TIMEOUT_MS, (
                    f"Timeout: {record} ends at {now_ms}, its last contact was at {contact_ms}"
                )
        if len(decision.records) < EXPIRED_A_STEP:
            due_ms_next = self.deadline_ms()
            assert due_ms_next is None or due_ms_next > now_ms, (
                f"Timeout: a deadline of {due_ms_next} is left at {now_ms}"
            )

    def _note_contact(
        self, request: TransactionRequest[Any], decision: TransactionDecision, now_ms: int
    ) -> None:
        for reply in decision.replies:
            if not isinstance(reply, Answered):
                continue
            if isinstance(request, BeginAttempt) and isinstance(reply.outcome, ProducerIdentity):
                self._contacts[reply.outcome.producer_id] = now_ms
            elif isinstance(request, KeepAttemptAlive):
                self._contacts[request.producer.producer_id] = now_ms

    def _check_repeat(
        self,
        ticket: Ticket,
        request: TransactionRequest[Any],
        decision: TransactionDecision,
        image: MetadataImage,
        now_ms: int,
    ) -> None:
        """Repeat a request at a successor, as a client does that got no answer."""
        answers = [
            reply.outcome
            for reply in decision.replies
            if reply.ticket == ticket and isinstance(reply, Answered)
        ]
        if not isinstance(request, REPEATABLE) or not answers:
            return
        again = self._successor(image, now_ms).handle(TICKET, request, image, now_ms)
        assert not again.records, f"Repeat: {request} stores {again.records}"
        for reply in again.replies:
            if isinstance(reply, Failed):
                # The end of a transaction is answered again once its markers are written.
                is_end = isinstance(request, EndTransaction)
                assert (is_end, type(reply.error)) == (True, ConcurrentTransactions), (
                    f"Repeat: {request} was answered {answers}, and is refused: {reply.error!r}"
                )
            elif not _has_errors(reply.outcome):
                assert reply.outcome == answers[0], (
                    f"Repeat: {request} was answered {answers}, then {reply.outcome}"
                )


@contextmanager
def check_transaction_shards(violations: list[Violation]) -> Iterator[None]:
    """Check the decisions of all transaction coordinators within the block."""
    checked = type("CheckedShard", (CheckedShard,), {"violations": violations})
    with mock.patch.object(transaction_coordinator_shard, "TransactionShard", checked):
        yield


# --- rules ---------------------------------------------------------------------------------------


def _check_transition(before: TransactionMetadata | None, after: TransactionMetadata) -> None:
    shown = f"{before} is followed by {after}"
    if before is None:
        assert after.state is S.EMPTY, f"Transition: {after} is the first record of its id"
        assert after.producer_epoch == 0, f"Transition: {after} is the first record of its id"
        return
    assert before.state in BEFORE[after.state], f"Transition: {shown}"
    assert after.updated_ms >= before.updated_ms, f"Transition: {shown}"
    # A client sets the timeout with its identity; nothing else changes it.
    assert after.state is S.EMPTY or after.timeout_ms == before.timeout_ms, f"Transition: {shown}"
    _check_identity(before, after, shown)
    is_open = before.state is S.ONGOING
    if after.state is S.ONGOING:
        assert after.partitions > (before.partitions if is_open else frozenset()), (
            f"Transition: {shown}"
        )
    elif after.state in PREPARED:
        assert after.partitions == before.partitions, f"Transition: {shown}"
    else:
        assert not after.partitions, f"Transition: {shown}"
    continues = is_open or before.state in PREPARED
    assert not continues or after.started_ms == before.started_ms, f"Transition: {shown}"


def _check_identity(before: TransactionMetadata, after: TransactionMetadata, shown: str) -> None:
    """An epoch is raised by one, and only with a new identity or at the end of a transaction; a
    producer id is replaced only if its epochs are exhausted."""
    raised = after.producer_epoch - before.producer_epoch
    if after.producer_id != before.producer_id:
        is_next = before.next_producer_id == after.producer_id
        assert is_next or after.state is S.EMPTY, f"Transition: {shown}"
        assert before.producer_epoch >= CLIENT_EPOCH_MAX, f"Transition: {shown}"
        assert after.producer_epoch == 0, f"Transition: {shown}"
        assert after.previous_producer_id == before.producer_id, f"Transition: {shown}"
        return
    if after.state is S.ONGOING or before.state in PREPARED:
        assert raised == 0, f"Transition: {shown}"
    else:
        assert raised in (0, 1), f"Transition: {shown}"
    if after.next_producer_id != NO_PRODUCER_ID:
        assert after.producer_epoch > CLIENT_EPOCH_MAX, f"Transition: {shown}"


def _check_markers(decided: Iterable[TransactionMetadata], effects: Iterable[WriteMarkers]) -> None:
    started = {effect.producer: effect for effect in effects if effect.partitions}
    for record in decided:
        identity = ProducerIdentity(record.producer_id, record.producer_epoch)
        effect = started.get(identity)
        assert effect is not None, f"Markers: {record} is decided without markers"
        assert effect.is_commit == (record.state is S.PREPARE_COMMIT), (
            f"Markers: {record} has {effect}"
        )
        assert {each[:2] for each in effect.partitions} <= record.partitions, (
            f"Markers: {record} has {effect}"
        )


def _decided_identities(shard: TransactionShard) -> Iterator[ProducerIdentity]:
    """Yield the identities of the markers of decided transactions and attempts."""
    for machine in shard._machines.values():
        known = machine.metadata
        if known.state in PREPARED:
            yield ProducerIdentity(known.producer_id, known.producer_epoch)
    for entry in shard._staged._of_id.values():
        if entry.state in (AttemptState.COMMITTING, AttemptState.ABORTING):
            yield entry.marker_producer


def _has_errors(outcome: object) -> bool:
    return any(getattr(outcome, "errors", ()))


def _compare(
    shard: CheckedShard, successor: TransactionShard, image: MetadataImage, now_ms: int
) -> None:
    """Compare a shard with one that has replayed its records.

    Kafka's record has names of topics, so a successor cannot tell a topic from one that was created
    later under its name. It writes a marker there, which decides nothing.
    """
    mine, other = (_ids_of(each, image, shard.deleted) for each in (shard, successor))
    _equal(mine, other)
    _equal(_staged_of(shard), _staged_of(successor))
    _equal({"open": set(shard._open)}, {"open": set(successor._open)})
    for name in shard._machines:
        due_ms, expected_ms = shard._deadlines.get(name), successor._deadlines.get(name)
        is_late = due_ms is not None and expected_ms is not None and expected_ms <= now_ms
        assert due_ms == expected_ms or is_late, (
            f"StoredState: {name} is due at {due_ms}, after a load at {expected_ms}"
        )
    kept, needed = shard._staged._deadlines.names(), successor._staged._deadlines.names()
    assert needed <= kept, f"StoredState: no deadline of {needed - kept}"


def _ids_of(shard: TransactionShard, image: MetadataImage, deleted: set[str]) -> dict[Any, Any]:
    return {
        name: (
            machine.metadata,
            frozenset(each for each in machine.unmarked if each.topic not in deleted),
            {
                topic: topic_id
                for topic, topic_id in machine._topic_ids.items()
                if image.topics_by_name.get(topic) == topic_id and topic not in deleted
            },
        )
        for name, machine in shard._machines.items()
    }


def _staged_of(shard: TransactionShard) -> dict[Any, Any]:
    staged = shard._staged
    found: dict[Any, Any] = {"free ids": staged._free}
    for name, stage in staged._stages.items():
        found[name] = (stage.record, stage.completing, stage.unmarked_commits)
        for producer_id, entry in stage.attempts.items():
            found[producer_id] = (entry.record, entry.state, entry.unmarked)
    return found


def _equal(mine: Mapping[Any, Any], other: Mapping[Any, Any]) -> None:
    for key in mine.keys() | other.keys():
        assert mine.get(key) == other.get(key), (
            f"StoredState: {key} is {mine.get(key)}, after a load {other.get(key)}"
        )
