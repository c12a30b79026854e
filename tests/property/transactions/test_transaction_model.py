"""The transaction shard compared with a small model of its rules, with crashes: a new leader loads
the committed prefix of the log, and requests of all earlier producers still arrive."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.broker.transactions.shard_play import ChangingTopics

from quorumlog.broker.coordinator.decision import Answered, Ticket
from quorumlog.broker.transactions.config import TransactionConfig
from quorumlog.broker.transactions.formats import Encoded, decode, encode
from quorumlog.broker.transactions.records import (
    TransactionalIdRecord,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from quorumlog.broker.transactions.requests import (
    AbortTransaction,
    AddedPartitions,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkerPartition,
    MarkersWritten,
    TransactionRequest,
    VerifyPartitions,
    WriteMarkers,
)
from quorumlog.broker.transactions.shard import TransactionShard
from quorumlog.broker.transactions.transaction import TransactionDecision
from quorumlog.ids import ProducerIdentity, TopicId

from .transaction_model import (
    LAST_EPOCH,
    MAPPING,
    NOT_FOUND,
    Identity,
    Part,
    TransactionModel,
)

NAMES = ("s", "t")
PARTS: list[Part] = [("a", 0), ("a", 1), ("b", 0)]
CONFIG = TransactionConfig(id_expiration_ms=5_000)
START_MS, TIMEOUT_MS = 1_000_000, 1_000
S = TransactionState
NEXT_STATES: dict[TransactionState | None, set[TransactionState | None]] = {
    None: {S.EMPTY},
    S.EMPTY: {S.EMPTY, S.ONGOING, S.COMPLETE_ABORT, None},
    S.ONGOING: {
        S.ONGOING,
        S.PREPARE_ABORT,
        S.PREPARE_COMMIT,
        S.COMPLETE_ABORT,
        S.COMPLETE_COMMIT,
    },
    S.PREPARE_COMMIT: {S.COMPLETE_COMMIT},
    S.PREPARE_ABORT: {S.COMPLETE_ABORT},
    S.COMPLETE_COMMIT: {S.EMPTY, S.ONGOING, S.COMPLETE_ABORT, None},
    S.COMPLETE_ABORT: {S.EMPTY, S.ONGOING, S.COMPLETE_ABORT, None},
}
Models: TypeAlias = dict[str, TransactionModel]


@dataclass
class Step:
    """One decision, with the models after it."""

    records: list[Encoded]
    effects: tuple[WriteMarkers, ...]
    models: Models = field(default_factory=dict)


def name_of(record: TransactionRecord) -> str:
    assert isinstance(record, TransactionalIdRecord)
    return record.transactional_id


class TransactionWorld(RuleBasedStateMachine):
    """Two transactional ids, their producers of all ages, two topics, and a log."""

    def __init__(self) -> None:
        super().__init__()
        self.next_id = 100
        self.now_ms = START_MS
        self.level = 2
        self.topics = ChangingTopics()
        self.models: Models = {}
        self.steps: list[Step] = []
        self.committed = 0
        self.delivered: list[WriteMarkers] = []
        self.seen: list[Identity] = [(99, 0)]
        self.tickets = 0
        self.shard = TransactionShard(CONFIG, self.draw)
        self.shard.loaded(self.image, self.now_ms)

    def draw(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    @property
    def image(self) -> Any:
        return self.topics.image(self.level)

    @initialize(
        epoch=st.sampled_from([0, LAST_EPOCH - 2, LAST_EPOCH - 1, LAST_EPOCH]), level=st.booleans()
    )
    def start(self, epoch: int, level: bool) -> None:
        """Start with a transactional id of random age."""
        self.level = 2 if level else 1
        record = TransactionMetadata(
            transactional_id="t",
            producer_id=self.draw(),
            producer_epoch=epoch,
            timeout_ms=TIMEOUT_MS,
            state=S.EMPTY,
            updated_ms=self.now_ms,
        )
        model = TransactionModel(
            now=(record.producer_id, epoch), changed_ms=self.now_ms, timeout_ms=TIMEOUT_MS
        )
        self.models["t"] = model
        self.see(model.now)
        self.steps.append(Step([encode(record)], (), deepcopy(self.models)))
        self.committed = 1
        self.load()

    # --- the shard and the log --------------------------------------------------------------------

    def load(self) -> None:
        self.shard = TransactionShard(CONFIG, self.draw)
        for step in self.steps:
            for key, value in step.records:
                record = decode(key, value)
                assert record is not None
                self.shard.replay(record)
        decision = self.shard.loaded(self.image, self.now_ms)
        for model in self.models.values():
            model.loaded(self.topics.ids)
        self.take(decision)

    def take(self, decision: TransactionDecision) -> None:
        for record in decision.records:
            assert isinstance(record, TransactionalIdRecord)
            model = self.models.get(record.transactional_id)
            if model is not None:
                model.changed_ms = self.now_ms
            if isinstance(record, TransactionMetadata):
                self.see((record.producer_id, record.producer_epoch))
        records = [encode(record) for record in decision.records]
        self.steps.append(Step(records, decision.effects, deepcopy(self.models)))

    def see(self, identity: Identity) -> None:
        if identity not in self.seen:
            self.seen.append(identity)

    def ask(self, request: TransactionRequest[Any], expected: Any) -> None:
        """Compare the response, or the name of the error, with that of the model."""
        self.tickets += 1
        decision = self.shard.handle(Ticket(self.tickets), request, self.image, self.now_ms)
        [reply] = decision.replies
        found: Any = reply.outcome if isinstance(reply, Answered) else reply.error.name
        if isinstance(found, AddedPartitions):
            found = ["" if error is None else error.name for error in found.errors]
        assert found == expected, (request, found, expected)
        self.take(decision)

    # --- producers --------------------------------------------------------------------------------

    names = st.sampled_from(NAMES)
    versions = st.sampled_from([1, 2, 2])
    identities = st.integers(0, 30)

    def identity(self, name: str, choice: int) -> Identity:
        """Return mostly the current identity of the name, sometimes an older one."""
        model = self.models.get(name)
        if model is not None and choice < 18:
            return model.now
        return self.seen[-1 - choice % len(self.seen)]

    @rule(name=names, choice=st.one_of(st.none(), identities))
    def init(self, name: str, choice: int | None) -> None:
        current = None if choice is None else self.identity(name, choice)
        request = InitProducerId(
            transactional_id=name,
            timeout_ms=TIMEOUT_MS,
            current=None if current is None else ProducerIdentity(*current),
        )
        model, expected = self.models.get(name), None
        if model is None:
            expected = (self.next_id, 0)
            self.models[name] = TransactionModel(
                now=expected, changed_ms=self.now_ms, timeout_ms=TIMEOUT_MS
            )
            self.see(expected)
            self.ask(request, expected)
            return
        self.ask(
            request,
            model.init(current, next_id=self.next_id, topics=self.topics.ids, level=self.level),
        )
        self.see(model.now)

    @rule(name=names, choice=identities, parts=st.sets(st.sampled_from(PARTS), min_size=1))
    def add(self, name: str, choice: int, parts: set[Part]) -> None:
        producer, listed = self.identity(name, choice), sorted(parts)
        model = self.models.get(name)
        expected: Any = MAPPING
        if model is not None:
            expected = model.add(producer, listed, topics=self.topics.ids, now_ms=self.now_ms)
        self.ask(
            AddPartitions(
                transactional_id=name,
                producer=ProducerIdentity(*producer),
                partitions=tuple(listed),
            ),
            expected,
        )

    @rule(name=names, choice=identities)
    def verify(self, name: str, choice: int) -> None:
        producer = self.identity(name, choice)
        model = self.models.get(name)
        expected = model.verify(producer, PARTS, topics=self.topics.ids) if model else MAPPING
        self.ask(
            VerifyPartitions(
                transactional_id=name,
                producer=ProducerIdentity(*producer),
                partitions=tuple(PARTS),
            ),
            expected,
        )

    @rule(name=names, choice=identities, commit=st.booleans(), version=versions)
    def end(self, name: str, choice: int, commit: bool, version: int) -> None:
        producer = self.identity(name, choice)
        model, expected = self.models.get(name), None
        if model is not None:
            expected = model.end(
                producer, commit, version=version, next_id=self.next_id, topics=self.topics.ids
            )
            self.see(model.now)
        self.ask(
            EndTransaction(
                transactional_id=name,
                producer=ProducerIdentity(*producer),
                commit=commit,
                bumps_epoch=version == 2,
            ),
            MAPPING if model is None else expected,
        )

    @rule(name=names)
    def operator_abort(self, name: str) -> None:
        model = self.models.get(name)
        expected: Any = NOT_FOUND
        if model is not None:
            error = model.operator_abort(
                next_id=self.next_id, topics=self.topics.ids, level=self.level
            )
            expected = error or model.now
            self.see(model.now)
        self.ask(AbortTransaction(transactional_id=name), expected)

    # --- markers, time, topics ----------------------------------------------------------------

    @rule(choice=st.integers(0, 50), keep=st.sets(st.integers(0, 2)))
    def mark(self, choice: int, keep: set[int]) -> None:
        """Report markers of a decision, mostly of the newest."""
        if not self.delivered:
            return
        effect = self.delivered[-1 if choice < 35 else -1 - choice % len(self.delivered)]
        done = [part for at, part in enumerate(effect.partitions) if at not in keep]
        model = self.models.get(effect.transactional_id)
        if model is not None:
            model.marked(
                (effect.producer.producer_id, effect.producer.producer_epoch),
                [((part.topic, part.partition), part.topic_id) for part in done],
            )
        self.ask(
            MarkersWritten(
                transactional_id=effect.transactional_id,
                producer=effect.producer,
                partitions=tuple(done),
            ),
            None,
        )

    @rule(passed_ms=st.sampled_from([1, 400, TIMEOUT_MS, CONFIG.id_expiration_ms]))
    def expire(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        due_ms = self.shard.deadline_ms()
        decision = self.shard.expire(self.now_ms, self.image)
        assert (not decision.records) == (due_ms is None or due_ms > self.now_ms)
        next_ids = {
            name_of(record): (
                max(record.next_producer_id, record.producer_id)
                if isinstance(record, TransactionMetadata)
                else -1
            )
            for record in decision.records
        }
        expected = set()
        for name, model in list(self.models.items()):
            if model.phase == "open" and self.now_ms >= model.begun_ms + model.timeout_ms:
                expected.add(name)
                model.coordinator_abort(
                    next_id=next_ids[name], topics=self.topics.ids, level=self.level, keeps=True
                )
                self.see(model.now)
            elif (
                model.phase == "idle" and self.now_ms >= model.changed_ms + CONFIG.id_expiration_ms
            ):
                expected.add(name)
                del self.models[name]
        assert next_ids.keys() == expected
        self.take(decision)

    @rule(name=st.sampled_from(["a", "b"]), is_recreated=st.booleans())
    def change_topics(self, name: str, is_recreated: bool) -> None:
        deleted = self.topics.change(name, is_recreated=is_recreated)
        decision = self.shard.image_changed(self.image, self.now_ms, deleted=deleted)
        for model in self.models.values():
            model.topics_deleted({topic.id for topic in deleted})
        self.take(decision)

    # --- the log ----------------------------------------------------------------------------------

    @rule(count=st.integers(1, 5))
    def commit(self, count: int) -> None:
        for step in self.steps[self.committed : self.committed + count]:
            self.committed += 1
            self.delivered += step.effects

    @rule(lost=st.integers(0, 3))
    def crash(self, lost: int) -> None:
        """A new leader has everything that was committed, and possibly some of the rest."""
        end = max(self.committed, len(self.steps) - lost)
        del self.steps[end:]
        self.models = deepcopy(self.steps[-1].models)
        self.load()

    # --- invariants -------------------------------------------------------------------------------

    @invariant()
    def the_shard_is_consistent(self) -> None:
        self.shard.check_invariants()

    @invariant()
    def each_state_follows_from_the_one_before(self) -> None:
        """Check that 1. a decision is final, and an id without one is never completed, 2. the
        identity of a name never decreases, 3. a marker of version 2 has one outcome."""
        states: dict[str, TransactionState | None] = {}
        identities: dict[str, Identity] = {}
        outcomes: dict[Identity, bool] = {}
        for step in self.steps:
            for encoded in step.records:
                record = decode(*encoded)
                assert isinstance(record, TransactionalIdRecord)
                name = record.transactional_id
                is_kept = isinstance(record, TransactionMetadata)
                state = record.state if isinstance(record, TransactionMetadata) else None
                if name in states or name == "s":
                    assert state in NEXT_STATES[states.get(name)], (states.get(name), record)
                states[name] = state
                if not is_kept:
                    continue
                assert isinstance(record, TransactionMetadata)
                identity = (record.producer_id, record.producer_epoch)
                assert identity >= identities.get(name, (-1, -1)), record
                identities[name] = identity
            for effect in step.effects:
                if effect.transaction_version == 2:
                    found = outcomes.setdefault(
                        (effect.producer.producer_id, effect.producer.producer_epoch),
                        effect.is_commit,
                    )
                    assert found == effect.is_commit, effect

    @invariant()
    def the_phases_agree(self) -> None:
        """Check that 4. the shard and the model have the same open and decided transactions."""
        listed = {each.transactional_id: each.state for each in filter(None, self.shard.listings())}
        assert listed.keys() == self.models.keys()
        for name, state in listed.items():
            phase = {"Ongoing": "open", "PrepareCommit": "deciding", "PrepareAbort": "deciding"}
            assert phase.get(state, "idle") == self.models[name].phase, (name, state)
        assert {
            MarkerPartition(*part, TopicId(topic_id))
            for model in self.models.values()
            for part, topic_id in model.left.items()
        } == {part for machine in self.shard._machines.values() for part in machine.unmarked}


TestTransactionWorld = TransactionWorld.TestCase
TestTransactionWorld.settings = settings(
    max_examples=150, stateful_step_count=60, suppress_health_check=[HealthCheck.too_slow]
)
