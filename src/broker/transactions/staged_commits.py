"""Staged commits: many writers append to many partitions, and one call makes their records visible.

A *name* has numbered batches; a *write* is one execution of one batch by one driver, and a later
write has a greater id. Each task attempt of a write holds a producer id of the shard's
pool, and its records are one transaction of that producer. The record of the name is the decision:
it commits the attempts that it lists and aborts every other attempt of its write and of all earlier
ones. So a number is committed once, whichever driver, task or coordinator repeats a request.

An id returns to the pool when all its markers are written, with the epoch of the markers. Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ...errors import (
    ConcurrentTransactions,
    CorruptionError,
    FencedWrite,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    NumberTooOld,
    ProducerFenced,
    QuorumlogError,
    StagedAttemptsExceeded,
    StageLost,
    TransactionAbortable,
    TransactionalIdNotFound,
)
from ...ids import ProducerIdentity, TopicId
from ...metadata import INTERNAL_TOPICS
from ...metadata.image import MetadataImage
from ...records.control import EPOCH_BUMP_VERSION
from ...staged_names import (
    OPEN_TIMEOUT_MS,
    STAGE_TIMEOUT_MS_MAX,
    attempt_id,
    split_attempt_id,
    unnamed_write,
)
from ...storage.producer_state import SEQUENCE_MASK
from ..coordinator.deadlines import DeadlineQueue
from ..coordinator.decision import DecisionBuilder, Ticket
from .config import TransactionConfig
from .records import (
    CLIENT_EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AttemptState,
    FreeProducerId,
    ProducerIdForgotten,
    StagedAttempt,
    StagedName,
    StagedNameForgotten,
    StagedPartition,
    StagedRecord,
    TransactionRecord,
)
from .requests import (
    VISIBLE_WAIT_MS,
    AbortReason,
    AbortStage,
    AbortTransaction,
    AddedPartitions,
    AddPartitions,
    AttemptDescription,
    BeginAttempt,
    CommitStage,
    CommittedAttempt,
    CommittedBatch,
    DeleteStage,
    DescribedStage,
    DescribeStage,
    DescribeTransaction,
    KeepAttemptAlive,
    ListedTransaction,
    MarkerPartition,
    MarkersWritten,
    OperatorRequest,
    ResetStage,
    SealAttempt,
    SealedPartition,
    StageDescription,
    TransactionDescription,
    TransactionRequest,
    VerifyPartitions,
    WriteMarkers,
)
from .transaction import DrawProducerId, draw_id, resolve

NAMES_MAX: Final = 100_000
"""Names of one partition of `__transaction_state`."""
COMPLETING_FACTOR: Final = 2
"""Attempts of a name without all of their markers, as a multiple of `staged.attempts.max`. The next
write can stage while some partition has no leader."""
COUNT_MAX: Final = 2**40
"""Records of one attempt in one partition."""
UNNAMED_RETENTION_MS: Final = STAGE_TIMEOUT_MS_MAX
"""Time after the last marker for which a name that belongs to one write is kept, so that a repeated
commit gets its answer."""

LIVE: Final = (AttemptState.OPEN, AttemptState.SEALED)
_DECIDED: Final = (AttemptState.COMMITTING, AttemptState.ABORTING)
_LISTED: Final = {
    AttemptState.OPEN: "Ongoing",
    AttemptState.SEALED: "Ongoing",
    AttemptState.COMMITTING: "PrepareCommit",
    AttemptState.ABORTING: "PrepareAbort",
}
# Keys of deadlines beside those of attempts, which are producer ids.
_STAGE: Final = -1
_ANSWER: Final = -2
_UNNAMED: Final = -3

StagedBuilder = DecisionBuilder[TransactionRecord]


class AttemptEntry:
    """A task attempt: its newest record, and its state, which the record of the name can change."""

    __slots__ = ("record", "state", "unmarked")

    def __init__(self, record: StagedAttempt) -> None:
        self.record = record
        self.state = record.state
        self.unmarked: frozenset[MarkerPartition] = frozenset()

    @property
    def producer(self) -> ProducerIdentity:
        """The identity of the attempt's records; the markers have the next epoch."""
        return ProducerIdentity(self.record.producer_id, self.record.producer_epoch)

    @property
    def marker_producer(self) -> ProducerIdentity:
        """The identity of the attempt's markers."""
        return ProducerIdentity(self.record.producer_id, self.record.producer_epoch + 1)

    def partitions(self) -> tuple[tuple[str, int], ...]:
        """Return topic and index of the partitions without a marker, sorted."""
        held = self.record.partitions if self.state in LIVE else self.unmarked
        return tuple(sorted({(each.topic, each.partition) for each in held}))


class StagedCounts(NamedTuple):
    """The numbers of names and attempts, for the metrics."""

    names: int
    open: int
    sealed: int
    completing: int  # decided, without all of their markers
    oldest_started_ms: int | None  # of the attempts


class WaitingCommit(NamedTuple):
    """A commit that is answered when its markers are written, or at its deadline."""

    ticket: Ticket
    due_ms: int
    batch: CommittedBatch  # not visible yet


class Stage:
    """A name with the attempts that hold producer ids."""

    __slots__ = ("attempts", "by_attempt", "completing", "record", "unmarked_commits", "waiting")

    def __init__(self, record: StagedName) -> None:
        self.record = record
        self.completing = 0  # attempts that are decided, without all of their markers
        # Committing attempts without all markers, by batch number.
        self.unmarked_commits: dict[int, int] = {}
        self.attempts: dict[int, AttemptEntry] = {}  # by producer id
        self.by_attempt: dict[tuple[int, int], AttemptEntry] = {}  # by write id and attempt
        self.waiting: list[WaitingCommit] = []

    def add(self, entry: AttemptEntry) -> None:
        self.attempts[entry.record.producer_id] = entry
        self.by_attempt[entry.record.write_id, entry.record.attempt] = entry

    def in_state(self, *states: AttemptState) -> list[AttemptEntry]:
        """Return the attempts in one of these states, the oldest first."""
        return [entry for entry in self.attempts.values() if entry.state in states]

    def committing(self) -> tuple[tuple[int, int], ...]:
        """Return producer id and epoch of the attempts that commit."""
        return tuple(entry.producer for entry in self.in_state(AttemptState.COMMITTING))

    @property
    def is_unnamed(self) -> bool:
        """True if the name belongs to one write: it has no later number."""
        return self.record.transactional_id == unnamed_write(self.record.write_id)

    def batch(self) -> CommittedBatch:
        """Return the last committed batch."""
        number = self.record.last_committed
        return CommittedBatch(
            number=number,
            write_id=self.record.committed_write_id,
            count=self.record.committed_count,
            is_visible=self.is_visible(number),
        )

    def is_visible(self, number: int) -> bool:
        """Return True if every marker of a committed number and of those before it is written."""
        return not any(each <= number for each in self.unmarked_commits)

    def count_decided(self, entry: AttemptEntry) -> None:
        """Count an attempt that needs its markers now."""
        self.completing += 1
        if entry.state is AttemptState.COMMITTING:
            number = entry.record.number
            self.unmarked_commits[number] = self.unmarked_commits.get(number, 0) + 1

    def remove_completed(self, entry: AttemptEntry) -> None:
        """Remove an attempt with all its markers."""
        del self.attempts[entry.record.producer_id]
        del self.by_attempt[entry.record.write_id, entry.record.attempt]
        self.completing -= 1
        if entry.state is AttemptState.COMMITTING:
            number = entry.record.number
            self.unmarked_commits[number] -= 1
            if not self.unmarked_commits[number]:
                del self.unmarked_commits[number]


class StagedCommits:
    """The staged commits of one partition of `__transaction_state`.

    Times are in milliseconds of the wall clock. The methods add to the decision of the caller.
    """

    def __init__(self, config: TransactionConfig, draw: DrawProducerId) -> None:
        self._config = config
        self._draw = draw
        self._stages: dict[str, Stage] = {}
        self._of_id: dict[int, AttemptEntry] = {}
        self._free: dict[int, int] = {}  # epochs of the unused ids of the pool
        self._deadlines: DeadlineQueue[tuple[str, int]] = DeadlineQueue()
        self.handlers: dict[type, Callable[..., None]] = {
            BeginAttempt: self._begin,
            AddPartitions: self._add_partitions,
            VerifyPartitions: self._verify_partitions,
            KeepAttemptAlive: self._keep_alive,
            SealAttempt: self._seal,
            CommitStage: self._commit,
            AbortStage: self._abort,
            DescribeStage: self._describe,
            ResetStage: self._reset,
            DeleteStage: self._delete,
            DescribeTransaction: self._describe_listed,
            AbortTransaction: self._abort_listed,
        }
        """The handlers of requests: builder, ticket, request, image."""

    # --- begin ------------------------------------------------------------------------------------

    def _begin(
        self, out: StagedBuilder, ticket: Ticket, request: BeginAttempt, image: MetadataImage
    ) -> None:
        name, write_id = request.transactional_id, request.write_id
        _check_begin(request)
        stage = self._stages.get(name)
        if stage is not None:
            known = stage.record
            if request.number == known.last_committed:
                out.answer(ticket, stage.batch())
                return
            _check_number(known, request.number)
            if write_id < known.write_id or write_id <= known.fenced_write_id:
                raise _fenced(known, write_id)
            if write_id == known.write_id and request.number != known.number:
                raise InvalidRequest(
                    f"staged commits {name}: write {write_id} has number {known.number}, the"
                    f" request has {request.number}; a write has one number"
                )
            entry = stage.by_attempt.get((write_id, request.attempt))
            if entry is not None:
                self._check_live(entry, request.task)
                # sometimes: a task repeats its begin
                self._touch(entry, out.now_ms)
                out.answer(ticket, entry.producer)
                return
        self._check_count(name, write_id)
        producer = self._take_id(name)
        if stage is None:
            stage = self._stages[name] = Stage(
                StagedName(transactional_id=name, updated_ms=out.now_ms)
            )
        if write_id > stage.record.write_id:
            self._store_name(
                out,
                stage,
                image,
                AbortReason.FENCED,
                write_id=write_id,
                number=request.number,
                fenced_write_id=write_id - 1,
            )
        entry = AttemptEntry(
            StagedAttempt(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transactional_id=name,
                number=request.number,
                write_id=write_id,
                task=request.task,
                attempt=request.attempt,
                state=AttemptState.OPEN,
                timeout_ms=request.timeout_ms,
                started_ms=out.now_ms,
            )
        )
        out.store(entry.record)
        stage.add(entry)
        self._of_id[producer.producer_id] = entry
        self._touch(entry, out.now_ms)
        out.answer(ticket, producer)

    def _check_live(self, entry: AttemptEntry, task: int) -> None:
        if entry.record.task != task:
            raise InvalidRequest(
                f"staged commits {entry.record.transactional_id}: attempt {entry.record.attempt}"
                f" belongs to task {entry.record.task}, the request has task {task}"
            )
        if entry.state not in LIVE:
            # sometimes: a task continues after its attempt was aborted
            raise StageLost(
                f"staged commits {entry.record.transactional_id}: task {task}: attempt"
                f" {entry.record.attempt} expired or was aborted; run the task again as a new"
                " attempt",
                task=task,
            )

    def _check_count(self, name: str, write_id: int) -> None:
        """Raise an error if the name may get no further attempt of a write: attempts of decided
        writes hold their ids until their markers are written."""
        stage = self._stages.get(name)
        if stage is None:
            if len(self._stages) >= NAMES_MAX:
                raise StagedAttemptsExceeded(
                    f"staged commits {name}: its coordinator has {len(self._stages)} names, the"
                    f" limit is {NAMES_MAX}; delete names with `quorumlog commits delete`"
                )
            return
        limit, live = self._config.staged_attempts_max, len(stage.attempts) - stage.completing
        if write_id == stage.record.write_id and live >= limit:
            raise StagedAttemptsExceeded(
                f"staged commits {name}: write {write_id} has {live} attempts; the limit is"
                f" staged.attempts.max={limit}; use fewer tasks, or raise staged.attempts.max"
            )
        if stage.completing >= COMPLETING_FACTOR * limit:
            raise ConcurrentTransactions(
                f"staged commits {name}: {stage.completing} attempts of earlier writes wait for"
                f" their markers, the limit is {COMPLETING_FACTOR} times"
                f" staged.attempts.max={limit}; check that every partition has a leader; retry"
            )

    def _take_id(self, name: str) -> ProducerIdentity:
        """Take the producer id that was freed last, or draw one; raise CoordinatorLoading."""
        if self._free:
            # sometimes: a staged producer id is used again
            return ProducerIdentity(*self._free.popitem())
        return ProducerIdentity(draw_id(self._draw, name), 0)

    # --- attempts ---------------------------------------------------------------------------------

    def has_id(self, producer_id: int) -> bool:
        """Return True if the producer id is of this shard's pool."""
        return producer_id in self._of_id or producer_id in self._free

    def _live_attempt(self, name: str, producer: ProducerIdentity) -> AttemptEntry:
        """Return the live attempt of an identity; raise ProducerFenced after its end."""
        entry = self._of_id.get(producer.producer_id)
        if entry is None or entry.record.transactional_id != name:
            if entry is None and producer.producer_id not in self._free:
                raise InvalidProducerIdMapping(
                    f"staged commits {name}: producer id {producer.producer_id} is of no attempt;"
                    " end this task"
                )
            raise _fenced_producer(name, producer)
        if entry.producer != producer or entry.state not in LIVE:
            raise _fenced_producer(name, producer)
        return entry

    def _add_partitions(
        self, out: StagedBuilder, ticket: Ticket, request: AddPartitions, image: MetadataImage
    ) -> None:
        """Add partitions to an open attempt, before the first append to each of them."""
        entry = self._live_attempt(request.transactional_id, request.producer)
        _check_topics(request)
        if entry.state is not AttemptState.OPEN:
            raise _sealed(entry, "no partition can be added")
        topic_ids, errors = resolve(request, image)
        if any(errors):
            out.answer(ticket, AddedPartitions(errors=errors))
            return
        known = {(each.partition, each.topic_id) for each in entry.record.partitions}
        added = {
            StagedPartition(topic=topic, partition=partition, topic_id=topic_ids[topic])
            for topic, partition in request.partitions
            if (partition, topic_ids[topic]) not in known
        }
        if added:
            partitions = tuple(sorted((*entry.record.partitions, *added)))
            entry.record = replace(entry.record, partitions=partitions)
            out.store(entry.record)
        out.answer(ticket, AddedPartitions(errors=errors))

    def _verify_partitions(
        self, out: StagedBuilder, ticket: Ticket, request: VerifyPartitions, image: MetadataImage
    ) -> None:
        """Answer which partitions an open attempt may write to."""
        entry = self._live_attempt(request.transactional_id, request.producer)
        _check_topics(request)
        if entry.state is not AttemptState.OPEN:
            raise _sealed(entry, "nothing can be written")
        known = {(each.partition, each.topic_id) for each in entry.record.partitions}
        errors: list[QuorumlogError | None] = []
        for topic, partition in request.partitions:
            topic_id = request.topic_ids.get(topic) or image.topics_by_name.get(topic)
            if (partition, topic_id) in known:
                errors.append(None)
                continue
            errors.append(
                TransactionAbortable(
                    f"staged commits {request.transactional_id}: the partition was not added to"
                    " this attempt; abort the attempt",
                    topic=topic,
                    partition=partition,
                )
            )
        out.answer(ticket, AddedPartitions(errors=tuple(errors)))

    def _keep_alive(
        self, out: StagedBuilder, ticket: Ticket, request: KeepAttemptAlive, image: MetadataImage
    ) -> None:
        self._touch(
            self._live_attempt_or_lost(request.transactional_id, request.producer), out.now_ms
        )
        out.answer(ticket, None)

    def _seal(
        self, out: StagedBuilder, ticket: Ticket, request: SealAttempt, image: MetadataImage
    ) -> None:
        entry = self._live_attempt_or_lost(request.transactional_id, request.producer)
        sealed = _sealed_partitions(entry, request)
        partitions = []
        for added_one in entry.record.partitions:
            found = sealed.get((added_one.topic, added_one.partition))
            partitions.append(
                replace(added_one, count=0, last_sequence=-1)
                if found is None
                else replace(added_one, count=found.count, last_sequence=found.last_sequence)
            )
        record = replace(
            entry.record, state=AttemptState.SEALED, partitions=tuple(sorted(partitions))
        )
        if entry.state is AttemptState.SEALED and record != entry.record:
            raise _sealed(entry, "its records cannot change")
        # sometimes if entry.state is AttemptState.SEALED: an attempt is sealed twice
        if entry.state is AttemptState.OPEN:
            entry.record, entry.state = record, AttemptState.SEALED
            out.store(record)
        self._touch(entry, out.now_ms)
        out.answer(ticket, None)

    def _live_attempt_or_lost(self, name: str, producer: ProducerIdentity) -> AttemptEntry:
        """Return the live attempt of an identity; raise StageLost after its end."""
        try:
            return self._live_attempt(name, producer)
        except (InvalidProducerIdMapping, ProducerFenced):
            raise StageLost(
                f"staged commits {name}: the attempt of producer {producer.producer_id} epoch"
                f" {producer.producer_epoch} expired or was aborted; run the task again as a new"
                " attempt"
            ) from None

    def _touch(self, entry: AttemptEntry, now_ms: int) -> None:
        """Extend the deadline of an attempt and of its stage."""
        name = entry.record.transactional_id
        if entry.state is AttemptState.OPEN:
            self._deadlines.set((name, entry.record.producer_id), now_ms + OPEN_TIMEOUT_MS)
        else:
            self._deadlines.drop((name, entry.record.producer_id))
        self._deadlines.set((name, _STAGE), now_ms + entry.record.timeout_ms)

    # --- decisions --------------------------------------------------------------------------------

    def _commit(
        self, out: StagedBuilder, ticket: Ticket, request: CommitStage, image: MetadataImage
    ) -> None:
        name, write_id = request.transactional_id, request.write_id
        stage = self._stages.get(name)
        if stage is None:
            remedy = "run the batch again"
            if name == unnamed_write(write_id):
                hours = UNNAMED_RETENTION_MS // 3_600_000
                remedy = (
                    f"the write was aborted, or committed more than {hours} h ago; check its"
                    " records before you run it again"
                )
            raise StageLost(
                f"staged commits {name}: nothing is staged; {remedy}",
                task=min((each.task for each in request.attempts), default=-1),
            )
        known = stage.record
        if request.number == known.last_committed:
            if known.fenced_write_id < write_id == known.write_id:  # another write committed it
                self._store_name(out, stage, image, AbortReason.CLIENT, fenced_write_id=write_id)
            # sometimes: a commit is repeated after it was decided
            self._answer_commit(out, ticket, stage, request.wait_ms)
            return
        _check_number(known, request.number, is_repeatable=True)
        if write_id != known.write_id:
            # sometimes: the commit of a fenced write arrives
            raise _fenced(known, write_id)
        committed = self._committed_attempts(stage, request, image)
        for entry in committed:
            entry.state = AttemptState.COMMITTING
        self._store_name(
            out,
            stage,
            image,
            AbortReason.CLIENT,
            last_committed=request.number,
            committed_write_id=write_id,
            committed_count=sum(
                each.count for entry in committed for each in entry.record.partitions
            ),
            fenced_write_id=write_id,
        )
        for entry in committed:
            self._deadlines.drop((name, entry.record.producer_id))
            self._start_markers(out, entry, image, None)
        self._deadlines.drop((name, _STAGE))
        self._answer_commit(out, ticket, stage, request.wait_ms)

    def _committed_attempts(
        self, stage: Stage, request: CommitStage, image: MetadataImage
    ) -> list[AttemptEntry]:
        """Return the attempts that a commit names; raise StageLost unless each of them is sealed,
        of this write, and of existing topics."""
        name, found = request.transactional_id, []
        if not request.attempts:
            raise InvalidRequest(f"staged commits {name}: a commit names one attempt or more")
        task, count = Counter(attempt.task for attempt in request.attempts).most_common(1)[0]
        if count > 1:
            raise InvalidRequest(
                f"staged commits {name}: the commit names {count} attempts of task {task}; give one"
                " attempt of each task"
            )
        for attempt in request.attempts:
            entry = self._of_id.get(attempt.producer.producer_id)
            if entry is None or not _is_of(entry, attempt, request):
                raise _lost(name, attempt.task, "its attempt expired or was aborted")
            if entry.state is not AttemptState.SEALED:
                reason = "is not sealed" if entry.state in LIVE else "expired or was aborted"
                raise _lost(name, attempt.task, f"its attempt {reason}")
            for each in entry.record.partitions:
                if each.topic_id not in image.topics_by_id:
                    # sometimes: a target topic is deleted before the commit
                    raise _lost(name, attempt.task, f"topic {each.topic} was deleted")
            found.append(entry)
        return found

    def _answer_commit(
        self, out: StagedBuilder, ticket: Ticket, stage: Stage, wait_ms: int
    ) -> None:
        """Answer a commit at once if its markers are written, else later."""
        batch = stage.batch()
        if batch.is_visible or wait_ms <= 0:
            out.answer(ticket, batch)
            return
        due_ms = out.now_ms + min(wait_ms, VISIBLE_WAIT_MS)
        stage.waiting.append(WaitingCommit(ticket, due_ms, batch))
        key = (stage.record.transactional_id, _ANSWER)
        self._deadlines.set(key, min(each.due_ms for each in stage.waiting))

    def _abort(
        self, out: StagedBuilder, ticket: Ticket, request: AbortStage, image: MetadataImage
    ) -> None:
        """Abort a write, also before its first attempt if the name exists; a name is created by its
        first attempt only."""
        stage = self._stages.get(request.transactional_id)
        if stage is None:
            out.answer(ticket, None)
            return
        known = stage.record
        _check_number(known, request.number, is_repeatable=True)
        if request.number == known.last_committed:
            out.answer(ticket, stage.batch())
            return
        if request.producer is not None:
            self._abort_one(out, stage, request, image)
        elif request.write_id > known.write_id:  # a late task of it cannot begin
            # sometimes: a write is aborted before its first task
            self._store_name(
                out,
                stage,
                image,
                AbortReason.FENCED,
                write_id=request.write_id,
                number=request.number,
                fenced_write_id=request.write_id,
            )
        elif request.write_id == known.write_id > known.fenced_write_id:
            self._store_name(
                out, stage, image, AbortReason.CLIENT, fenced_write_id=request.write_id
            )
        out.answer(ticket, None)

    def _abort_one(
        self, out: StagedBuilder, stage: Stage, request: AbortStage, image: MetadataImage
    ) -> None:
        assert request.producer is not None
        entry = stage.attempts.get(request.producer.producer_id)
        if entry is not None and entry.producer == request.producer and entry.state in LIVE:
            self._abort_entry(out, entry, image, AbortReason.CLIENT)

    def _abort_entry(
        self, out: StagedBuilder, entry: AttemptEntry, image: MetadataImage, reason: AbortReason
    ) -> None:
        """Abort one attempt by its own record."""
        entry.record = replace(entry.record, state=AttemptState.ABORTING)
        entry.state = AttemptState.ABORTING
        # sometimes if reason is AbortReason.TIMEOUT: an attempt times out
        out.store(entry.record)
        self._deadlines.drop((entry.record.transactional_id, entry.record.producer_id))
        self._start_markers(out, entry, image, reason)

    def _store_name(
        self,
        out: StagedBuilder,
        stage: Stage,
        image: MetadataImage,
        reason: AbortReason,
        **changes: int,
    ) -> None:
        """Store the record of a name, and abort the attempts of the writes that it fences."""
        stage.record = replace(
            stage.record,
            **changes,  # type: ignore[arg-type]  # the fields of numbers
            committing=stage.committing(),
            updated_ms=out.now_ms,
        )
        out.store(stage.record)
        for entry in stage.in_state(*LIVE):
            if entry.record.write_id <= stage.record.fenced_write_id:
                # sometimes if entry.state is AttemptState.SEALED: a sealed attempt is aborted
                entry.state = AttemptState.ABORTING
                self._deadlines.drop((stage.record.transactional_id, entry.record.producer_id))
                self._start_markers(out, entry, image, reason)
        self._settle(out, stage)

    # --- markers ----------------------------------------------------------------------------------

    def _start_markers(
        self,
        out: StagedBuilder,
        entry: AttemptEntry,
        image: MetadataImage,
        reason: AbortReason | None,
    ) -> None:
        """Start the markers of a decided attempt; free its id at once if it has no partition."""
        self._stages[entry.record.transactional_id].count_decided(entry)
        entry.unmarked = frozenset(
            MarkerPartition(each.topic, each.partition, each.topic_id, each.last_sequence)
            for each in entry.record.partitions
            if each.topic_id in image.topics_by_id
        )
        if not entry.unmarked:
            self._release(out, entry)
            return
        out.start(
            WriteMarkers(
                transactional_id=entry.record.transactional_id,
                producer=entry.marker_producer,
                is_commit=entry.state is AttemptState.COMMITTING,
                transaction_version=EPOCH_BUMP_VERSION,
                partitions=tuple(sorted(entry.unmarked)),
                abort_reason=reason,
            )
        )

    def markers_written(self, out: StagedBuilder, request: MarkersWritten) -> None:
        """Record partitions that are done; free the id after the last one."""
        entry = self._of_id.get(request.producer.producer_id)
        if (
            entry is not None
            and entry.state in _DECIDED
            and entry.marker_producer == request.producer
        ):
            done = {each[:3] for each in request.partitions}
            self._keep_unmarked(out, entry, lambda each: each[:3] not in done)

    def topics_deleted(self, out: StagedBuilder, topic_ids: frozenset[TopicId]) -> None:
        """Count the markers of deleted topics as written."""
        for entry in list(self._of_id.values()):
            if entry.state in _DECIDED:
                self._keep_unmarked(out, entry, lambda each: each.topic_id not in topic_ids)

    def _keep_unmarked(
        self, out: StagedBuilder, entry: AttemptEntry, keeps: Callable[[MarkerPartition], bool]
    ) -> None:
        entry.unmarked = frozenset(each for each in entry.unmarked if keeps(each))
        if not entry.unmarked:
            self._release(out, entry)

    def _release(self, out: StagedBuilder, entry: AttemptEntry) -> None:
        """Return a producer id to the pool with the epoch of its markers, or drop it."""
        producer_id, epoch = entry.marker_producer
        stage = self._stages[entry.record.transactional_id]
        stage.remove_completed(entry)
        del self._of_id[producer_id]
        if epoch > CLIENT_EPOCH_MAX or len(self._free) >= self._config.staged_attempts_max:
            out.store(ProducerIdForgotten(producer_id=producer_id))
        else:
            self._free[producer_id] = epoch
            out.store(FreeProducerId(producer_id=producer_id, producer_epoch=epoch))
        self._settle(out, stage)

    def _settle(self, out: StagedBuilder, stage: Stage) -> None:
        """Answer waiting commits after the last marker, and let an unnamed stage expire."""
        name = stage.record.transactional_id
        if stage.waiting:
            visible = [each for each in stage.waiting if stage.is_visible(each.batch.number)]
            for each in visible:
                out.answer(each.ticket, replace(each.batch, is_visible=True))
            stage.waiting = [each for each in stage.waiting if each not in visible]
            if not stage.waiting:
                self._deadlines.drop((name, _ANSWER))
        if stage.is_unnamed and not stage.attempts:
            self._deadlines.set((name, _UNNAMED), out.now_ms + UNNAMED_RETENTION_MS)

    # --- time -------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Return the time of the next `expire`; None: no deadline."""
        return self._deadlines.next_ms()

    def expire(self, out: StagedBuilder, image: MetadataImage, *, limit: int) -> None:
        """Handle at most `limit` expired deadlines. An earlier one may have ended the stage or the
        attempt of a later one."""
        for name, key in self._deadlines.due(out.now_ms, limit=limit):
            stage = self._stages.get(name)
            if stage is None:
                continue
            if key == _STAGE:
                self._expire_stage(out, stage, image)
            elif key == _ANSWER:
                self._expire_answers(out, stage)
            elif key == _UNNAMED:
                if not stage.attempts:
                    out.store(StagedNameForgotten(transactional_id=name))
                    self._forget(stage)
            else:
                entry = stage.attempts.get(key)
                if entry is not None and entry.state is AttemptState.OPEN:
                    self._abort_entry(out, entry, image, AbortReason.TIMEOUT)

    def extend_deadlines(self, now_ms: int) -> None:
        """Extend the deadlines of live attempts after requests were refused for a while."""
        for entry in self._of_id.values():
            if entry.state in LIVE:
                self._touch(entry, now_ms)

    def _expire_stage(self, out: StagedBuilder, stage: Stage, image: MetadataImage) -> None:
        if stage.in_state(AttemptState.SEALED):
            self._store_name(
                out, stage, image, AbortReason.TIMEOUT, fenced_write_id=stage.record.write_id
            )

    def _expire_answers(self, out: StagedBuilder, stage: Stage) -> None:
        for each in stage.waiting:
            if each.due_ms <= out.now_ms:
                # sometimes: a commit is answered before its markers are written
                out.answer(each.ticket, each.batch)
        stage.waiting = [each for each in stage.waiting if each.due_ms > out.now_ms]
        if stage.waiting:
            key = (stage.record.transactional_id, _ANSWER)
            self._deadlines.set(key, min(each.due_ms for each in stage.waiting))

    def _forget(self, stage: Stage) -> None:
        name = stage.record.transactional_id
        del self._stages[name]
        for key in (_STAGE, _ANSWER, _UNNAMED):
            self._deadlines.drop((name, key))

    # --- operators --------------------------------------------------------------------------------

    def has_name(self, name: str) -> bool:
        """Return True if a name exists."""
        return name in self._stages

    def _abort_listed(
        self, out: StagedBuilder, ticket: Ticket, request: AbortTransaction, image: MetadataImage
    ) -> None:
        """Abort a listed attempt, or the current write of a name. The answer is the identity that
        fences the attempt; every attempt of a write has its own.

        Raises ConcurrentTransactions for a decided attempt, InvalidTxnState for a name without
        attempts to abort, and TransactionalIdNotFound.
        """
        name = request.transactional_id
        stage = self._stages.get(name) if request.has_right_on_id else None
        if stage is not None:
            if not stage.in_state(*LIVE):
                raise InvalidTxnState(f"staged commits {name}: no attempt is open or sealed")
            self._store_name(
                out, stage, image, AbortReason.OPERATOR, fenced_write_id=stage.record.write_id
            )
            out.answer(ticket, ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH))
            return
        entry = self._listed(request)
        if entry.state not in LIVE:
            raise ConcurrentTransactions(
                f"staged attempt {name}: it is decided ({entry.state.name}), and its markers are"
                " being written; wait for them"
            )
        self._abort_entry(out, entry, image, AbortReason.OPERATOR)
        out.answer(ticket, entry.marker_producer)

    def _listed(self, request: OperatorRequest[Any]) -> AttemptEntry:
        """Return the attempt `<name>#<producer id>`; raise TransactionalIdNotFound."""
        listed = request.transactional_id
        name, producer_id = split_attempt_id(listed) or (listed, -1)
        stage = self._stages.get(name) if request.has_right_on_name else None
        entry = None if stage is None else stage.attempts.get(producer_id)
        if entry is not None:
            return entry
        raise TransactionalIdNotFound(
            f"transactional id {listed}: it does not exist, or it expired"
        )

    def _describe_listed(
        self,
        out: StagedBuilder,
        ticket: Ticket,
        request: DescribeTransaction,
        image: MetadataImage,
    ) -> None:
        entry = self._listed(request)
        out.answer(
            ticket,
            TransactionDescription(
                transactional_id=request.transactional_id,
                state=_LISTED[entry.state],
                producer=entry.producer,
                timeout_ms=entry.record.timeout_ms,
                started_ms=entry.record.started_ms,
                partitions=entry.partitions(),
            ),
        )

    def _describe(
        self, out: StagedBuilder, ticket: Ticket, request: DescribeStage, image: MetadataImage
    ) -> None:
        stage = self._existing(request)
        entries = sorted(
            stage.attempts.values(), key=lambda each: (each.record.task, each.record.attempt)
        )
        attempts = tuple(_attempt_description(each) for each in entries)
        out.answer(ticket, DescribedStage(stage=_description(stage), attempts=attempts))

    def _reset(
        self, out: StagedBuilder, ticket: Ticket, request: ResetStage, image: MetadataImage
    ) -> None:
        stage = self._existing(request)
        if request.last_committed < -1:
            raise InvalidRequest(
                f"last_committed: {request.last_committed}; give the number of the last batch to"
                " keep, or -1 for none"
            )
        self._store_name(
            out,
            stage,
            image,
            AbortReason.OPERATOR,
            last_committed=request.last_committed,
            committed_write_id=-1,
            committed_count=0,
            fenced_write_id=stage.record.write_id,
        )
        out.answer(ticket, None)

    def _delete(
        self, out: StagedBuilder, ticket: Ticket, request: DeleteStage, image: MetadataImage
    ) -> None:
        stage = self._existing(request)
        if stage.attempts:
            raise InvalidTxnState(
                f"staged commits {request.transactional_id}: {len(stage.attempts)} attempts are not"
                f" complete; run `quorumlog transactions abort {request.transactional_id}` and wait"
                " for their markers, then retry"
            )
        out.store(StagedNameForgotten(transactional_id=request.transactional_id))
        self._forget(stage)
        out.answer(ticket, None)

    def _existing(self, request: TransactionRequest[Any]) -> Stage:
        stage = self._stages.get(request.transactional_id)
        if stage is None:
            raise TransactionalIdNotFound(
                f"staged commits {request.transactional_id}: the name does not exist; `quorumlog"
                " commits list` lists all names"
            )
        return stage

    def descriptions(self, is_listed: Callable[[str], bool]) -> Iterator[StageDescription | None]:
        """Yield each name that `is_listed` accepts, and None for another or a removed one. The
        state may change between two steps."""
        for name in list(self._stages):
            stage = self._stages.get(name) if is_listed(name) else None
            yield None if stage is None else _description(stage)

    def counts(self) -> StagedCounts:
        """Count names and attempts; O(attempts)."""
        states = [entry.state for entry in self._of_id.values()]
        opened, sealed = states.count(AttemptState.OPEN), states.count(AttemptState.SEALED)
        starts = (entry.record.started_ms for entry in self._of_id.values())
        return StagedCounts(
            names=len(self._stages),
            open=opened,
            sealed=sealed,
            completing=len(states) - opened - sealed,
            oldest_started_ms=min(starts, default=None),
        )

    def listings(self, is_listed: Callable[[str], bool]) -> Iterator[ListedTransaction | None]:
        """Yield the attempts as transactions `<name>#<producer id>`, as `descriptions` the names
        that `is_listed` accepts."""
        for producer_id in list(self._of_id):
            entry = self._of_id.get(producer_id)
            if entry is None or not is_listed(entry.record.transactional_id):
                yield None
                continue
            yield ListedTransaction(
                transactional_id=attempt_id(entry.record.transactional_id, producer_id),
                resource=entry.record.transactional_id,
                producer_id=producer_id,
                state=_LISTED[entry.state],
                started_ms=entry.record.started_ms,
            )

    # --- storage ----------------------------------------------------------------------------------

    def replay(self, record: StagedRecord) -> None:
        """Apply a stored record; call it in log order."""
        if isinstance(record, StagedName):
            name = record.transactional_id
            if name in self._stages:
                self._stages[name].record = record
            else:
                self._stages[name] = Stage(record)
        elif isinstance(record, StagedNameForgotten):
            self._stages.pop(record.transactional_id, None)
        elif isinstance(record, StagedAttempt):
            self._free.pop(record.producer_id, None)
            self._of_id[record.producer_id] = AttemptEntry(record)
        else:
            self._of_id.pop(record.producer_id, None)
            self._free.pop(record.producer_id, None)
            if isinstance(record, FreeProducerId):
                self._free[record.producer_id] = record.producer_epoch

    def loaded(self, out: StagedBuilder, image: MetadataImage) -> None:
        """Finish loading: decide each attempt by the record of its name, resume the markers, and
        start the deadlines of live attempts. Raises CorruptionError if a name has no record."""
        committing = {
            producer for stage in self._stages.values() for producer in stage.record.committing
        }
        for entry in list(self._of_id.values()):
            name, write_id = entry.record.transactional_id, entry.record.write_id
            stage = self._stages.get(name)
            if stage is None:
                raise CorruptionError(
                    f"staged commits {name}: producer id {entry.record.producer_id} has an attempt,"
                    " and the record of the name is missing"
                )
            stage.add(entry)
            if entry.producer in committing:
                entry.state = AttemptState.COMMITTING
            elif write_id <= stage.record.fenced_write_id:
                entry.state = AttemptState.ABORTING
        for entry in list(self._of_id.values()):
            if entry.state in LIVE:
                self._touch(entry, out.now_ms)
            else:
                self._start_markers(out, entry, image, None)
        for stage in list(self._stages.values()):
            self._settle(out, stage)

    def check_invariants(self) -> None:
        """Raise AssertionError for a state that no sequence of calls may reach."""
        count = 0
        for name, stage in self._stages.items():
            known = stage.record
            # 1. A write that is fenced began; the decided number is that of a write.
            assert known.transactional_id == name, (name, known)
            assert known.fenced_write_id <= known.write_id, known
            assert known.committed_write_id <= known.write_id, known
            for producer_id, entry in stage.attempts.items():
                count += 1
                record = entry.record
                # 2. An id is held by one attempt, of one name.
                assert self._of_id[producer_id] is entry, record
                assert record.transactional_id == name, (name, record)
                assert stage.by_attempt[record.write_id, record.attempt] is entry, record
                # 3. A live attempt is of the current write, and its number is not decided.
                if entry.state in LIVE:
                    assert record.write_id == known.write_id > known.fenced_write_id, record
                    assert record.number > known.last_committed, (record, known)
            # 4. Markers are left exactly for decided attempts.
            decided = stage.in_state(*_DECIDED)
            assert stage.completing == len(decided), (known, stage.completing)
            commits = stage.in_state(AttemptState.COMMITTING)
            numbers = Counter(entry.record.number for entry in commits)
            assert stage.unmarked_commits == numbers, (known, stage.unmarked_commits)
            for producer_id, entry in stage.attempts.items():
                record = entry.record
                assert bool(entry.unmarked) == (entry.state in _DECIDED), (record, entry.unmarked)
                # 5. An attempt commits exactly as the record of its name says.
                is_committing = tuple(entry.producer) in known.committing
                assert is_committing == (entry.state is AttemptState.COMMITTING), (record, known)
                # 6. An open attempt expires.
                has_deadline = (name, producer_id) in self._deadlines
                assert has_deadline == (entry.state is AttemptState.OPEN), record
                assert record.producer_epoch <= CLIENT_EPOCH_MAX, record
            # 7. A sealed stage expires, and a waiting commit is answered.
            if stage.in_state(*LIVE):
                assert (name, _STAGE) in self._deadlines, known
            if stage.waiting:
                assert (name, _ANSWER) in self._deadlines, known
                assert stage.in_state(AttemptState.COMMITTING), known
        # 8. Every id is free or held.
        assert count == len(self._of_id)
        assert not self._free.keys() & self._of_id.keys()
        assert all(epoch <= CLIENT_EPOCH_MAX for epoch in self._free.values())


def _check_begin(request: BeginAttempt) -> None:
    name = request.transactional_id
    for field in ("number", "write_id", "task", "attempt"):
        value = getattr(request, field)
        if value < 0:
            raise InvalidRequest(
                f"staged commits {name}: {field} {value} is negative; give 0 or more"
            )
    if not OPEN_TIMEOUT_MS <= request.timeout_ms <= STAGE_TIMEOUT_MS_MAX:
        raise InvalidTransactionTimeout(
            f"staged commits {name}: stage_timeout_ms {request.timeout_ms}; give"
            f" {OPEN_TIMEOUT_MS} to {STAGE_TIMEOUT_MS_MAX}"
        )


def _check_topics(request: AddPartitions | VerifyPartitions) -> None:
    """Raise InvalidRequest for a commit of group offsets."""
    for topic, _ in request.partitions:
        if topic in INTERNAL_TOPICS:
            raise InvalidRequest(
                f"staged commits {request.transactional_id}: {topic} is an internal topic; staged"
                " commits cannot include group offsets; use a transactional producer"
            )


def _sealed_partitions(
    entry: AttemptEntry, request: SealAttempt
) -> dict[tuple[str, int], SealedPartition]:
    """Return the partitions of a seal by topic and index; raise InvalidRequest unless each of them
    was added to the attempt, is listed once, and has the last sequence of its records."""
    name, sealed = request.transactional_id, dict[tuple[str, int], SealedPartition]()
    added = {(each.topic, each.partition) for each in entry.record.partitions}
    for each in request.partitions:
        _check_sealed(name, each)
        key = (each.topic, each.partition)
        if key in sealed or key not in added:
            fault = "is listed twice" if key in sealed else "was not added to the attempt"
            raise InvalidRequest(
                f"staged commits {name}: the partition {fault}; give each added partition once",
                topic=each.topic,
                partition=each.partition,
            )
        sealed[key] = each
    return sealed


def _check_sealed(name: str, sealed: SealedPartition) -> None:
    """Raise InvalidRequest unless the last sequence is that of so many records: the epoch of an
    attempt starts at sequence 0 in every partition."""
    count = sealed.count
    if not 0 <= count <= COUNT_MAX:
        raise InvalidRequest(
            f"staged commits {name}: {count} records; give 0..{COUNT_MAX}",
            topic=sealed.topic,
            partition=sealed.partition,
        )
    last = (count - 1) & SEQUENCE_MASK if count else -1
    if sealed.last_sequence != last:
        raise InvalidRequest(
            f"staged commits {name}: last_sequence {sealed.last_sequence} with {count} records; the"
            f" sequences of an attempt start at 0, so give {last}",
            topic=sealed.topic,
            partition=sealed.partition,
        )


def _is_of(entry: AttemptEntry, attempt: CommittedAttempt, request: CommitStage) -> bool:
    """Return True if a commit names the attempt with its own identity, task, number and write."""
    record = entry.record
    return (
        entry.producer == attempt.producer
        and record.transactional_id == request.transactional_id
        and (record.task, record.number, record.write_id)
        == (attempt.task, request.number, request.write_id)
    )


def _check_number(known: StagedName, number: int, *, is_repeatable: bool = False) -> None:
    """Raise NumberTooOld for a number below the last committed one. `is_repeatable`: the request
    may repeat an earlier one without an answer, so the number may be committed."""
    if number < known.last_committed:
        name = known.transactional_id
        remedy = (
            f"use the next number, or run `quorumlog commits reset {name} --to {number - 1}`"
            if not is_repeatable
            else "if this write committed it before, it stays committed; check its records before"
            " you run it again"
        )
        raise NumberTooOld(
            f"staged commits {name}: batch {number} is older than the last committed batch"
            f" {known.last_committed}; {remedy}",
            number=known.last_committed,
        )


def _fenced(known: StagedName, write_id: int) -> FencedWrite:
    newest = known.write_id
    if write_id > newest:
        return FencedWrite(
            f"staged commits {known.transactional_id}: write {write_id} has no attempts, the newest"
            f" write is {newest}; run the batch again",
            write_id=newest,
        )
    reason = "ended" if write_id == newest else f"is older than write {newest}"
    return FencedWrite(
        f"staged commits {known.transactional_id}: write {write_id} {reason}; stop this driver if"
        " another one runs, else run the batch again",
        write_id=newest,
    )


def _fenced_producer(name: str, producer: ProducerIdentity) -> ProducerFenced:
    return ProducerFenced(
        f"staged commits {name}: the attempt of producer {producer.producer_id} epoch"
        f" {producer.producer_epoch} has ended; end this task"
    )


def _sealed(entry: AttemptEntry, consequence: str) -> InvalidTxnState:
    return InvalidTxnState(
        f"staged commits {entry.record.transactional_id}: attempt {entry.record.attempt} is sealed,"
        f" so {consequence}"
    )


def _lost(name: str, task: int, reason: str) -> StageLost:
    return StageLost(
        f"staged commits {name}: task {task}: {reason}; run the batch again", task=task
    )


def _attempt_description(entry: AttemptEntry) -> AttemptDescription:
    record = entry.record
    return AttemptDescription(
        task=record.task,
        attempt=record.attempt,
        write_id=record.write_id,
        producer=entry.producer,
        state=entry.state,
        started_ms=record.started_ms,
        count=sum(each.count for each in record.partitions),
        partitions=entry.partitions(),
    )


def _description(stage: Stage) -> StageDescription:
    known = stage.record
    starts = [entry.record.started_ms for entry in stage.attempts.values()]
    return StageDescription(
        name=known.transactional_id,
        last_committed=known.last_committed,
        committed_write_id=known.committed_write_id,
        committed_count=known.committed_count,
        write_id=known.write_id,
        number=known.number,
        attempts=len(starts),
        open=len(stage.in_state(AttemptState.OPEN)),
        sealed=len(stage.in_state(AttemptState.SEALED)),
        oldest_started_ms=min(starts, default=-1),
        updated_ms=known.updated_ms,
    )
