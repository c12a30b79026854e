"""The transactional ids and staged commits of one partition of `__transaction_state`: dispatch of
requests, timeouts and expiry. Pure."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ...errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    QuorumlogError,
    TransactionalIdInUse,
)
from ...ids import ProducerIdentity
from ...metadata.image import MetadataImage, TopicImage
from ...records.control import TransactionMarker
from ..coordinator.deadlines import DeadlineQueue
from ..coordinator.decision import (
    NOTHING,
    Answered,
    DecisionBuilder,
    Failed,
    ShardDecision,
    Ticket,
)
from .config import TransactionConfig
from .records import (
    TransactionalIdForgotten,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from .requests import (
    AbortReason,
    AbortTransaction,
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducerId,
    ListedTransaction,
    MarkersWritten,
    OperatorRequest,
    StageDescription,
    TransactionRequest,
    VerifyPartitions,
)
from .staged_commits import StagedCommits, StagedCounts
from .transaction import (
    PREPARED,
    DrawProducerId,
    TransactionDecision,
    TransactionMachine,
    draw_id,
    new_metadata,
)

EXPIRED_A_STEP: Final = 500
"""Maximum number of transactional ids that one step aborts or deletes."""
ID_RETRY_MS: Final = 500
"""Time until a timeout is decided again that needs a producer id when none is at hand."""


class TransactionShard:
    """The transactional ids of one partition; times are in milliseconds of the wall clock.

    To load it, call `replay` for each stored record and then `loaded`.
    """

    def __init__(self, config: TransactionConfig, draw_producer_id: DrawProducerId) -> None:
        self._config = config
        self._draw = draw_producer_id
        self._machines: dict[str, TransactionMachine] = {}
        self._open: dict[str, TransactionMachine] = {}  # with an open or decided transaction
        self._newest_ms = 0  # of the loaded records
        self._deadlines: DeadlineQueue[str] = DeadlineQueue()
        self._staged = StagedCommits(config, draw_producer_id)
        self._handlers: dict[type, Callable[..., TransactionDecision]] = {
            InitProducerId: self._init_producer_id,
            AddPartitions: self._add_partitions,
            VerifyPartitions: self._verify_partitions,
            EndTransaction: self._end,
            MarkersWritten: self._markers_written,
            DescribeTransaction: self._describe,
            AbortTransaction: self._abort,
        }

    # --- requests ---------------------------------------------------------------------------------

    def handle(
        self, ticket: Ticket, request: TransactionRequest[Any], image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        """Decide a request; a refusal is a `Failed` reply of the decision."""
        try:
            if not request.transactional_id:
                raise InvalidRequest("transactional_id: empty; give the id of the producer")
            if self._is_staged(request):
                handler = self._staged.handlers[type(request)]
                return self._stage(now_ms, handler, ticket, request, image)
            decision = self._handlers[type(request)](ticket, request, image, now_ms)
        except QuorumlogError as error:
            return ShardDecision(replies=(Failed(ticket, error),))
        if decision.records and request.transactional_id in self._machines:
            self._schedule(request.transactional_id)
        return decision

    def _stage(
        self, now_ms: int, step: Callable[..., None], *arguments: Any
    ) -> TransactionDecision:
        """Return the decision of one step of the staged commits."""
        out: DecisionBuilder[TransactionRecord] = DecisionBuilder(now_ms)
        step(out, *arguments)
        return out.build()

    def _is_staged(self, request: TransactionRequest[Any]) -> bool:
        """Return True if the staged commits decide a request; raise TransactionalIdInUse if its
        name is a transactional id."""
        name, kind = request.transactional_id, type(request)
        if kind not in self._staged.handlers:
            return False
        if isinstance(request, AddPartitions | VerifyPartitions):
            is_name = name not in self._machines and self._staged.has_name(name)
            return is_name or self._staged.has_id(request.producer.producer_id)
        if name not in self._machines:
            return True
        if isinstance(request, OperatorRequest):
            return not request.has_right_on_id
        raise TransactionalIdInUse(
            f"staged commits {name}: the name is the transactional id of a producer; choose another"
            " name"
        )

    def _init_producer_id(
        self, ticket: Ticket, request: InitProducerId, image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        name, limit_ms = request.transactional_id, self._config.timeout_max_ms
        if not 0 < request.timeout_ms <= limit_ms:
            raise InvalidTransactionTimeout(
                f"transactional id {name}: the transaction timeout is {request.timeout_ms} ms, the"
                f" limit is transaction.max.timeout.ms={limit_ms}; set a timeout of 1 to {limit_ms}"
            )
        machine = self._machines.get(name)
        if machine is not None:
            return machine.init_producer_id(ticket, request, image, now_ms)
        self._check_not_staged(name)
        metadata = new_metadata(request, draw_id(self._draw, name), now_ms)
        machine = self._machines[name] = TransactionMachine(metadata, self._draw)
        return ShardDecision((metadata,), (Answered(ticket, machine.producer),))

    def _add_partitions(
        self, ticket: Ticket, request: AddPartitions, image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        return self._of_producer(request).add_partitions(ticket, request, image, now_ms)

    def _verify_partitions(
        self, ticket: Ticket, request: VerifyPartitions, image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        return self._of_producer(request).verify_partitions(ticket, request, image)

    def _end(
        self, ticket: Ticket, request: EndTransaction, image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        return self._of_producer(request).end(ticket, request, image, now_ms)

    def _of_producer(self, request: TransactionRequest[Any]) -> TransactionMachine:
        """Return the machine for a producer's request."""
        machine = self._machines.get(request.transactional_id)
        if machine is None:
            self._check_not_staged(request.transactional_id)
            raise InvalidProducerIdMapping(
                f"transactional id {request.transactional_id}: it does not exist, or it expired"
                " (transactional.id.expiration.ms); initialize the producer again"
            )
        return machine

    def _check_not_staged(self, name: str) -> None:
        if self._staged.has_name(name):
            raise TransactionalIdInUse(
                f"transactional id {name}: it is a name of staged commits; choose another id"
            )

    def _markers_written(
        self, ticket: Ticket, request: MarkersWritten, image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        machine = self._machines.get(request.transactional_id)
        if self._staged.has_id(request.producer.producer_id):
            decision = self._stage(now_ms, self._staged.markers_written, request)
        else:
            decision = NOTHING if machine is None else machine.markers_written(request, now_ms)
        return decision + ShardDecision(replies=(Answered(ticket, None),))

    # --- operators --------------------------------------------------------------------------------

    def _describe(
        self, ticket: Ticket, request: DescribeTransaction, image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        found = self._machines[request.transactional_id].describe()
        return ShardDecision(replies=(Answered(ticket, found),))

    def _abort(
        self, ticket: Ticket, request: AbortTransaction, image: MetadataImage, now_ms: int
    ) -> TransactionDecision:
        machine = self._machines[request.transactional_id]
        state = machine.metadata.state
        if state in PREPARED:
            raise ConcurrentTransactions(
                f"transactional id {request.transactional_id}: its transaction is decided"
                f" ({state.kafka_name}), and its markers are being written; wait for them"
            )
        if state is not TransactionState.ONGOING:
            raise InvalidTxnState(
                f"transactional id {request.transactional_id}: it has no open transaction; its"
                f" state is {state.kafka_name}"
            )
        decision = machine.abort(image, now_ms, reason=AbortReason.OPERATOR, keeps_producer=False)
        return decision + ShardDecision(replies=(Answered(ticket, machine.producer),))

    def listings(
        self, is_listed: Callable[[str], bool] = lambda name: True
    ) -> Iterator[ListedTransaction | None]:
        """Yield each transactional id that `is_listed` accepts, then the attempts of each name of
        staged commits that it accepts, and None for another or a removed one. The state may change
        between two steps."""
        for name in list(self._machines):
            machine = self._machines.get(name) if is_listed(name) else None
            yield None if machine is None else machine.listing()
        yield from self._staged.listings(is_listed)

    def staged_names(
        self, is_listed: Callable[[str], bool] = lambda name: True
    ) -> Iterator[StageDescription | None]:
        """Yield each name of staged commits that `is_listed` accepts; see `listings`."""
        return self._staged.descriptions(is_listed)

    @property
    def id_count(self) -> int:
        """The number of transactional ids."""
        return len(self._machines)

    def staged_counts(self) -> StagedCounts:
        """Count the names of staged commits and their attempts; O(attempts)."""
        return self._staged.counts()

    @property
    def open_count(self) -> int:
        """The number of transactions and staged attempts that are open, or decided without all of
        their markers."""
        staged = self._staged.counts()
        return len(self._open) + staged.open + staged.sealed + staged.completing

    def oldest_started_ms(self) -> int | None:
        """Return the start of the oldest of the transactions of `open_count`. O(n) of them."""
        starts = [machine.metadata.started_ms for machine in self._open.values()]
        staged = self._staged.counts().oldest_started_ms
        return min(starts if staged is None else [staged, *starts], default=None)

    # --- time and metadata ------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """Return the time of the next `expire`, never too late; None: no deadline."""
        times = (self._deadlines.next_ms(), self._staged.deadline_ms())
        return min((due_ms for due_ms in times if due_ms is not None), default=None)

    def expire(self, now_ms: int, image: MetadataImage) -> TransactionDecision:
        """Abort transactions after their timeout, and delete ids that have expired; call it again
        at once if `deadline_ms` is still in the past."""
        decision: TransactionDecision = NOTHING
        for name in self._deadlines.due(now_ms, limit=EXPIRED_A_STEP):
            machine = self._machines[name]
            if machine.metadata.state is not TransactionState.ONGOING:
                del self._machines[name]
                decision += ShardDecision((TransactionalIdForgotten(transactional_id=name),))
                continue
            try:
                decision += machine.abort(
                    image, now_ms, reason=AbortReason.TIMEOUT, keeps_producer=True
                )
            except CoordinatorLoading:
                self._deadlines.set(name, now_ms + ID_RETRY_MS)
            else:
                self._schedule(name)
        staged = self._stage(now_ms, partial(self._staged.expire, limit=EXPIRED_A_STEP), image)
        return decision + staged

    def restart_sessions(self, now_ms: int) -> None:
        """Extend the deadlines of staged attempts: their keep-alives were refused. The timeout of
        a transaction still runs: it bounds the wait of consumers."""
        self._staged.extend_deadlines(now_ms)

    def _schedule(self, name: str) -> None:
        """Set the deadline of a transactional id after a change: its timeout, or its expiry."""
        machine = self._machines[name]
        known = machine.metadata
        is_open = known.state is TransactionState.ONGOING
        if is_open or known.state in PREPARED:
            self._open[name] = machine
        else:
            self._open.pop(name, None)
        if is_open:
            self._deadlines.set(name, known.started_ms + known.timeout_ms)
        elif known.state in PREPARED:
            self._deadlines.drop(name)
        else:
            self._deadlines.set(name, known.updated_ms + self._config.id_expiration_ms)

    def image_changed(
        self, image: MetadataImage, now_ms: int, *, deleted: Iterable[TopicImage] = ()
    ) -> TransactionDecision:
        """Apply a metadata change with these deleted topics: their markers count as written."""
        topic_ids = frozenset(topic.id for topic in deleted)
        decision: TransactionDecision = NOTHING
        if topic_ids:
            for name, machine in list(self._open.items()):
                decision += machine.topics_deleted(topic_ids, now_ms)
                self._schedule(name)
            decision += self._stage(now_ms, self._staged.topics_deleted, topic_ids)
        return decision

    # --- storage ----------------------------------------------------------------------------------

    def replay(self, record: TransactionRecord, producer: ProducerIdentity | None = None) -> None:
        """Apply a stored record; call it in log order."""
        if isinstance(record, TransactionMetadata):
            name = record.transactional_id
            machine = self._machines.get(name)
            if machine is None:
                self._machines[name] = TransactionMachine(record, self._draw)
            else:
                machine.metadata = record
            self._newest_ms = max(self._newest_ms, record.updated_ms, record.started_ms)
            self._schedule(name)
        elif isinstance(record, TransactionalIdForgotten):
            name = record.transactional_id
            self._machines.pop(name, None)
            self._open.pop(name, None)
            self._deadlines.drop(name)
        else:
            self._staged.replay(record)

    def replay_marker(self, marker: TransactionMarker) -> None:
        """Ignore a control batch: this partition is in no transaction."""

    def loaded(self, image: MetadataImage, now_ms: int) -> TransactionDecision:
        """Finish loading; return the markers that this leader must write. O(open transactions)."""
        builder: DecisionBuilder[TransactionRecord] = DecisionBuilder(now_ms)
        if self._newest_ms > now_ms:
            self._limit_times(now_ms)
        for name, machine in list(self._open.items()):
            resumed = machine.loaded(image, now_ms)
            # sometimes if resumed.effects: a coordinator resumes the markers of its predecessor
            builder.records += resumed.records
            builder.effects += resumed.effects
            if resumed.records:
                self._schedule(name)
        self._staged.loaded(builder, image)
        return builder.build()

    def _limit_times(self, now_ms: int) -> None:
        """Replace times above `now_ms`. The clock of an earlier leader may have been ahead: its
        timeouts would last longer."""
        # sometimes: a coordinator's clock is behind its predecessor's
        for name, machine in self._machines.items():
            known = machine.metadata
            if max(known.updated_ms, known.started_ms) > now_ms:
                machine.metadata = replace(
                    known,
                    updated_ms=min(known.updated_ms, now_ms),
                    started_ms=min(known.started_ms, now_ms),
                )
                self._schedule(name)

    def check_invariants(self) -> None:
        """Raise AssertionError for a state that no sequence of calls may reach."""
        seen: dict[int, str] = {}
        for name, machine in self._machines.items():
            machine.check_invariants()
            known = machine.metadata
            # 10. A machine has the name of its record.
            assert known.transactional_id == name, (name, known)
            # 11. No producer id belongs to two transactional ids.
            for producer_id in {known.producer_id, known.next_producer_id} - {-1}:
                assert seen.setdefault(producer_id, name) == name, (name, seen[producer_id])
            # 12. Exactly the open and decided transactions are in the list of these.
            is_open = known.state is TransactionState.ONGOING
            is_decided = known.state in PREPARED
            assert (name in self._open) == (is_open or is_decided), known
            # 13. A transaction has a timeout until it is decided; an id without one expires.
            due_ms = self._deadlines.get(name)
            assert (due_ms is None) == is_decided, known
            if is_open:
                assert due_ms is not None
                assert due_ms >= known.started_ms + known.timeout_ms, known
        assert self._open.keys() <= self._machines.keys()
        self._staged.check_invariants()
        # 14. No id of the pool belongs to a transactional id.
        assert not any(self._staged.has_id(producer_id) for producer_id in seen)
