"""The calm after the faults: what takes a few messages, and no timer, must be prompt.

Messages and devices become fast. Then every step of a transaction, in both versions of the
protocol, and of staged commits takes a few messages, and its markers are in every partition soon
after the answer. A transaction without an end is aborted at its timeout, not before and not later.
Nothing is left over: no open transaction, no marker, and no request without a cause.
"""

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from quorumlog.broker.transactions.marker_queue import MarkerQueue
from quorumlog.broker.transactions.shell import TransactionCoordinator
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import (
    FencedWrite,
    InvalidRequest,
    NumberTooOld,
    QuorumlogError,
    StageLost,
    TransactionalIdNotFound,
)
from quorumlog.proto import groups_pb2, transactions_pb2
from quorumlog.proto import staged_commits_pb2 as pb
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.services import STAGED_COMMITS_ADD_PARTITIONS, STAGED_COMMITS_SEAL
from quorumlog.simulation.links import LinkEnd
from quorumlog.staged_names import OPEN_TIMEOUT_MS, unnamed_write
from quorumlog.testing.checkers import Place

from ...checkers.cluster_invariants import open_log_of
from ...checkers.violation import Violation
from ...cluster.nodes import nodes_up
from ...faults.call_delays import CallDelays
from ..kafka.client import KafkaClient
from .calls import Generation, TransactionCalls
from .faults import MARK
from .plan import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from .producer import Observations, TransactionalProducer
from .refusals import Refusals
from .staged_client import STAGE_TIMEOUT_MS, StagedAttempt, StagedClient
from .staged_history import BatchKey, StagedBatch, StagedHistory

if TYPE_CHECKING:
    from ..node.level import Run

T = TypeVar("T")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)

PROMPT_MS: Final = 18
"""A few messages, with the reads and writes of their receivers: less than the first pause between
two attempts at a marker, which is 20 ms."""
CONNECT_MS: Final = 400  # of a new client: connections, metadata, a coordinator
TIMEOUT_MS: Final = 2_000  # of transactions
DRIFT_MS: Final = 100  # of the clocks, within that time
CALM_MS: Final = 400_000  # more than the phase takes
QUIET_MS: Final = 1_500
LATENCY_US: Final = (50, 150)
LANE_US: Final = (20, 100)
REQUEST_MS: Final = 3_000
STAGED: Final = "calm/"
GONE: Final = "calm-gone"
HOLD_MS: Final = 500  # of markers
PLAIN_RECORDS: Final = 3  # of a transaction in `__transaction_state` beyond its partitions


@dataclass(slots=True)
class Calm:
    """The phase of one run."""

    run: "Run"
    machine: str
    places: Sequence[Place]  # that are written
    watched: Sequence[Place]  # all partitions that transactions may write
    observed: Observations
    staged: StagedHistory
    id_expiration_ms: int
    is_long: bool  # wait for the timeouts of task attempts, and for the expiry of ids
    _values: int = 0

    def play(self) -> None:
        """Run the phase; raises Violation."""
        faults = self.run.world.faults
        usual = faults.options
        faults.options = replace(usual, latency_us=LATENCY_US, lane_us=LANE_US)
        try:
            for generation in Generation:
                self._play_transactions(generation)
            self._play_staged()
            if self.is_long:
                self._expire_attempts()
            self._must_be_quiet()
        finally:
            faults.options = usual

    @property
    def _runtime(self) -> Runtime:
        return self.run.world.node(self.machine).runtime()

    # --- transactions --------------------------------------------------------------------------

    def _play_transactions(self, generation: Generation) -> None:
        name = f"calm-{generation}"
        producer, admin = self._producer(name, generation), self._admin()
        self._within(producer.init(), "an identity", CONNECT_MS)
        for bound_ms in (CONNECT_MS, PROMPT_MS, PROMPT_MS):  # one right after the other
            producer.begin()
            self._within(self._write(producer), "writes of a transaction", bound_ms)
            self._within(producer.commit(), "a commit")
        self._settled("a commit")
        for is_commit in (True, False):
            stored = self._stored()
            producer.begin()
            self._within(self._write(producer), "writes of a transaction")
            end = producer.commit if is_commit else producer.abort
            self._within(end(), "an end of a transaction")
            self._settled("the end of a transaction")
            stored = self._stored() - stored
            if stored > len(self.places) + PLAIN_RECORDS:
                raise Violation("Economy", f"a transaction took {stored} records of its state")
        self._describe(admin, name, "CompleteAbort", ())
        self._expire(producer, admin, name)
        other = self._producer(name, generation)
        self._within(other.init(), "the identity of a successor", CONNECT_MS)
        other.begin()
        self._within(self._write(other), "writes of the successor", CONNECT_MS)
        self._within(admin.admin.abort_transaction(name), "an abort by an operator")
        self._settled("an abort by an operator")
        self._describe(admin, name, "CompleteAbort", ())
        self._play_new_topic(admin, name, generation)
        self._do(admin.close())

    def _play_new_topic(self, admin: AsyncLog, name: str, generation: Generation) -> None:
        """Send requests that must be refused, with partitions that no producer wrote to. Then
        delete their topic while the markers of a transaction are on their way: it is complete."""
        client = self._kafka_client(name)
        create = admin.admin.create_topic(GONE, partitions=6, replication=1)
        self._within(create, "a new topic", CONNECT_MS)
        self._pass_until(self.run.world.now_ms() + CONNECT_MS)
        self._within(client.look([GONE]), "metadata", CONNECT_MS)
        calls = TransactionCalls(self._runtime, client, name, generation, timeout_ms=REQUEST_MS)
        places = [(GONE, index) for index in range(6)]
        refusals = Refusals(calls, name, places)
        self._within(refusals.play(), "refused requests", CONNECT_MS)
        self._settled("refused requests")
        with self._held_markers():
            self._within(refusals.write_all(), "a transaction in a new topic", CONNECT_MS)
            self._within(admin.admin.delete_topic(GONE), "a deletion", CONNECT_MS)
            self._settled("the deletion of the topic of a transaction")
        calls.close()

    def _expire(self, producer: TransactionalProducer, admin: AsyncLog, name: str) -> None:
        """Leave a transaction without an end until its timeout."""
        producer.begin()
        began_ms = self.run.world.now_ms()
        self._within(self._write(producer), "writes of a transaction")
        self._describe(admin, name, "Ongoing", tuple(sorted(self.places)))
        self._pass_until(began_ms + TIMEOUT_MS - DRIFT_MS)
        self._describe(admin, name, "Ongoing", tuple(sorted(self.places)))
        self._pass_until(began_ms + TIMEOUT_MS + DRIFT_MS + 3 * PROMPT_MS)
        self._settled("the timeout of a transaction")
        self._describe(admin, name, "CompleteAbort", ())

    def _describe(
        self, admin: AsyncLog, name: str, state: str, partitions: tuple[Place, ...]
    ) -> None:
        """Compare a transactional id with its description and with the list."""
        found = self._within(admin.admin.describe_transaction(name), "a description", CONNECT_MS)
        listed = self._within(admin.admin.list_transactions(), "a list", CONNECT_MS)
        line = _named(listed, name)
        shown = tuple((each.topic, each.partition) for each in found.partitions)
        wall_ms = self._wall_ms(name)
        if (
            {found.state, line.state} != {state}
            or shown != partitions
            or found.timeout_ms != TIMEOUT_MS
            or found.producer_id != line.producer_id
            or found.started_ms != line.started_ms
            or not wall_ms - 4 * TIMEOUT_MS <= found.started_ms <= wall_ms + DRIFT_MS
        ):
            raise Violation("Description", f"{found} and {line} in place of {state} {partitions}")

    def _producer(self, name: str, generation: Generation) -> TransactionalProducer:
        run = self.run
        runtime = run.world.node(self.machine).runtime()
        self._values += 1
        bootstrap = run.cluster.kafka_bootstrap.split(",")
        client = KafkaClient(runtime, bootstrap, name=name, timeout_ms=REQUEST_MS, codec=Codec.NONE)
        self._within(client.look([self.places[0][0]]), "metadata", CONNECT_MS)
        calls = TransactionCalls(runtime, client, name, generation, timeout_ms=REQUEST_MS)
        return TransactionalProducer(
            calls,
            self.observed,
            runtime.clock,
            name=f"{name}.{self._values}",
            transactional_id=name,
            transaction_timeout_ms=TIMEOUT_MS,
            delivery_timeout_ms=REQUEST_MS,
            topics=[self.places[0][0]],
        )

    def _kafka_client(self, name: str) -> KafkaClient:
        bootstrap = self.run.cluster.kafka_bootstrap.split(",")
        return KafkaClient(
            self._runtime, bootstrap, name=name, timeout_ms=REQUEST_MS, codec=Codec.NONE
        )

    async def _write(self, producer: TransactionalProducer) -> None:
        assert producer.transaction is not None, "no transaction"
        name = producer.transaction.name
        await producer.send_all(
            {place: [(None, self.observed.next_value(name, 8))] for place in self.places}
        )

    def _admin(self) -> AsyncLog:
        runtime = self._runtime
        log = make_log(runtime, self.run.cluster.bootstrap, request_timeout_ms=REQUEST_MS)
        self._within(log.start(), "a connection", CONNECT_MS)
        return log

    # --- staged commits ------------------------------------------------------------------------

    def _play_staged(self) -> None:
        client, admin = self._staged_client(), self._admin()
        first = self._within(client.open_write(), "a write id", CONNECT_MS)
        key = (STAGED, 0)
        slow, fast, other = (
            self._written(client, key, first, task, attempt)
            for attempt, task in enumerate((0, 0, 1))
        )
        self._describe_staged(admin, [(slow, "Open"), (fast, "Open"), (other, "Open")], -1, 0)
        self._within(fast.seal(), "a seal")
        unsealed = client.commit(key, first, {0: fast, 1: other}, wait_ms=REQUEST_MS)
        self._refused(unsealed, StageLost)
        self._refuse_seals(other)
        self._within(other.seal(), "a seal")
        self._describe_staged(admin, [(slow, "Open"), (fast, "Sealed"), (other, "Sealed")], -1, 0)
        committing = client.commit(key, first, {0: fast, 1: other}, wait_ms=REQUEST_MS)
        batch = self._within(committing, "a staged commit")
        count = 2 * len(self.places)
        if batch != StagedBatch(0, first, count, is_visible=True):
            raise Violation("StagedCommit", f"{batch} in place of {count} visible records")
        self._settled("a staged commit")
        self._describe_staged(admin, [], 0, count)
        again = self._within(client.begin(key, first, 0, 9), "a begin after the commit")
        if again != batch:
            raise Violation("StagedCommit", f"{again} in place of {batch}")
        self._supersede(client, admin, count)
        self._commit_with_slow_markers(client)
        self._within(admin.admin.delete_commits(STAGED), "a deletion")
        self._refused(admin.admin.describe_commits(STAGED), TransactionalIdNotFound)
        self._do(client.close())
        self._do(admin.close())

    def _commit_with_slow_markers(self, client: StagedClient) -> None:
        """Check that a commit counts as visible once every marker is written, and not before."""
        write_id = self._within(client.open_write(), "a write id")
        key = (unnamed_write(write_id), 0)
        attempt = self._written(client, key, write_id, 0, 0)
        self._within(attempt.seal(), "a seal")
        with self._held_markers():
            committing = client.commit(key, write_id, {0: attempt}, wait_ms=REQUEST_MS)
            batch = self._within(committing, "a commit of a write", HOLD_MS + PROMPT_MS)
            left = self._unsettled(0)
        if left or not batch.is_visible:
            raise Violation("Visible", f"{batch} was returned; {left}")

    @contextmanager
    def _held_markers(self) -> Iterator[None]:
        """Hold requests with markers back."""
        fabric = self.run.world.fabric
        usual, fabric.delay_ns = fabric.delay_ns, CallDelays(_hold_markers).delay_ns
        try:
            yield
        finally:
            fabric.delay_ns = usual
        self._pass_until(self.run.world.now_ms() + HOLD_MS)  # later frames wait behind them

    def _refuse_seals(self, attempt: StagedAttempt) -> None:
        """Seal an attempt with partitions that it did not add, twice, or with other counts; and add
        a partition of group offsets to it."""
        (topic, index), count = self.places[0], attempt.counts[self.places[0]]
        right = (topic, index, count, count - 1)
        refused = (
            [(topic, 1_000, count, count - 1)],
            [right, right],
            [(topic, index, count, count)],
            [(topic, index, -1, -1)],
        )
        producer = transactions_pb2.ProducerIdentity(
            producer_id=attempt.producer.producer_id,
            producer_epoch=attempt.producer.producer_epoch,
        )
        for partitions in refused:
            request = pb.SealAttemptRequest(
                name=STAGED,
                producer=producer,
                partitions=[
                    pb.SealedPartition(topic=one, partition=at, records=some, last_sequence=last)
                    for one, at, some, last in partitions
                ],
            )
            self._refused(attempt.client.ask(STAGED_COMMITS_SEAL, request), InvalidRequest)
        adding = transactions_pb2.AddPartitionsRequest(
            transactional_id=STAGED,
            producer=producer,
            partitions=[groups_pb2.GroupPartition(topic=OFFSETS_TOPIC, partition=0)],
        )
        self._refused(attempt.client.ask(STAGED_COMMITS_ADD_PARTITIONS, adding), InvalidRequest)

    def _supersede(self, client: StagedClient, admin: AsyncLog, count: int) -> None:
        """Abort writes: by a later one, by a driver, by a task, and by operators."""
        key = (STAGED, 1)
        old = self._within(client.open_write(), "a write id")
        late = self._written(client, key, old, 0, 0)
        new = self._within(client.open_write(), "a write id")
        found = self._within(client.begin(key, new, 0, 0), "a begin")
        assert isinstance(found, StagedAttempt), f"{found} is committed"
        self._settled("the begin of a later write", attempts=1)
        self._refused(client.begin(key, old, 1, 1), FencedWrite)
        self._refused(late.keep_alive(), StageLost)
        self._refused(late.seal(), StageLost)
        self._within(found.write(self.places[0], [self._value(found)]), "a write")
        self._within(found.keep_alive(), "a contact")
        self._within(found.abort(), "an abort by a task")
        self._settled("an abort by a task")
        following = self._written(client, key, new, 0, 1)
        self._within(following.seal(), "a seal")
        self._within(client.abort(key, new), "an abort by a driver")
        self._settled("an abort by a driver")
        self._refused(client.begin(key, new, 0, 2), FencedWrite)
        self._describe_staged(admin, [], 0, count)
        aborts = admin.admin.abort_transaction
        for by_name in (True, False):
            write_id = self._within(client.open_write(), "a write id")
            attempt = self._written(client, key, write_id, 0, 0)
            name = STAGED if by_name else f"{STAGED}#{attempt.producer.producer_id}"
            self._within(aborts(name), f"an abort of {name} by an operator")
            self._settled(f"an abort of {name} by an operator")
        write_id = self._within(client.open_write(), "a write id")
        winner = self._written(client, key, write_id, 0, 0)
        self._within(winner.seal(), "a seal")
        committing = client.commit(key, write_id, {0: winner}, wait_ms=REQUEST_MS)
        self._within(committing, "a staged commit")
        self._refused(client.begin((STAGED, 0), write_id + 1, 0, 0), NumberTooOld)
        key, write_id = (STAGED, 2), self._within(client.open_write(), "a write id")
        self._written(client, key, write_id, 0, 0)
        self._within(admin.admin.reset_commits(STAGED, -1), "a reset")
        self._settled("a reset")
        self._describe_staged(admin, [], -1, 0)

    def _written(
        self, client: StagedClient, key: BatchKey, write_id: int, task: int, attempt: int
    ) -> StagedAttempt:
        """Begin a task attempt, and write a record to every partition."""
        found = self._within(client.begin(key, write_id, task, attempt), "a begin", CONNECT_MS)
        assert isinstance(found, StagedAttempt), f"{found} is committed"
        for place in self.places:
            self._within(found.write(place, [self._value(found)]), "a write", CONNECT_MS)
        return found

    def _value(self, attempt: StagedAttempt) -> bytes:
        return self.observed.next_value(attempt.transaction.name, 8)

    def _describe_staged(
        self,
        admin: AsyncLog,
        attempts: Sequence[tuple[StagedAttempt, str]],
        last_committed: int,
        records: int,
    ) -> None:
        """Compare a name and its attempts with their descriptions and the lists."""
        found = self._within(admin.admin.describe_commits(STAGED), "a description", CONNECT_MS)
        line = _named(self._within(admin.admin.list_commits(), "a list", CONNECT_MS), STAGED)
        states = [state for _, state in attempts]
        counted = (states.count("Open"), states.count("Sealed"), 0)
        starts = [each.started_ms for each in found.attempts]
        expected = sorted((each.task, each.producer, state) for each, state in attempts)
        wall_ms = self._wall_ms(STAGED)
        if (
            sorted((each.task, each.producer, each.state) for each in found.attempts) != expected
            or {(each.open, each.sealed, each.completing) for each in (found, line)} != {counted}
            or {each.last_committed for each in (found, line)} != {last_committed}
            or {each.committed_records for each in (found, line)} != {records}
            or {each.oldest_started_ms for each in (found, line)} != {min(starts, default=-1)}
            or {(each.write_id, each.number) for each in (found, line)}
            != {(found.write_id, found.number)}
            or not wall_ms - CALM_MS <= found.updated_ms <= wall_ms + DRIFT_MS
            or set(found.partitions) != (set(self.places) if attempts else set())
        ):
            raise Violation("Description", f"{found} and {line} in place of {expected}")
        listed = self._within(admin.admin.list_transactions(), "a list", CONNECT_MS)
        ids = {each.producer_id for each in listed if each.staged_name == STAGED}
        if ids != {each.producer.producer_id for each, _ in attempts}:
            raise Violation("Description", f"{ids} are listed, {expected} are open")

    def _staged_client(self) -> StagedClient:
        cluster = self.run.cluster
        return StagedClient(
            runtime=self._runtime,
            name="calm",
            bootstrap=cluster.bootstrap.split(","),
            kafka_bootstrap=cluster.kafka_bootstrap.split(","),
            observed=self.observed,
            history=self.staged,
            timeout_ms=REQUEST_MS,
            topics=[self.places[0][0]],
        )

    def _refused(self, program: Coroutine[Any, Any, Any], kind: type[QuorumlogError]) -> None:
        async def run() -> None:
            try:
                found = await program
            except kind:
                return
            raise Violation("NotRefused", f"{found} in place of {kind.__name__}")

        self._within(run(), f"a refusal with {kind.__name__}", CONNECT_MS)

    def _expire_attempts(self) -> None:
        """Leave an open attempt and a sealed one without contact; see `OPEN_TIMEOUT_MS`. Nothing
        writes beside them, so all ids that expire have expired then."""
        client, admin, key = self._staged_client(), self._admin(), (STAGED, 0)
        write_id = self._within(client.open_write(), "a write id", CONNECT_MS)
        began_ms = self.run.world.now_ms()
        silent, alive, sealed = (
            self._written(client, key, write_id, task, task) for task in range(3)
        )
        self._within(sealed.seal(), "a seal")
        contact_ms = self.run.world.now_ms()
        self._pass_until(contact_ms + OPEN_TIMEOUT_MS // 2)
        self._within(alive.keep_alive(), "a contact", CONNECT_MS)
        slow_ms = OPEN_TIMEOUT_MS * self.run.world.faults.options.drift_ppm_max // 1_000_000
        self._pass_until(began_ms + OPEN_TIMEOUT_MS - slow_ms - DRIFT_MS)
        states = [(silent, "Open"), (alive, "Open"), (sealed, "Sealed")]
        self._describe_staged(admin, states, -1, 0)
        self._pass_until(contact_ms + OPEN_TIMEOUT_MS + slow_ms + DRIFT_MS)
        self._describe_staged(admin, states[1:], -1, 0)
        self._refused(silent.seal(), StageLost)
        self._within(alive.seal(), "a seal", CONNECT_MS)
        contact_ms = self.run.world.now_ms()
        self._pass_until(contact_ms + STAGE_TIMEOUT_MS - slow_ms - DRIFT_MS)
        self._describe_staged(admin, [(alive, "Sealed"), (sealed, "Sealed")], -1, 0)
        self._pass_until(contact_ms + STAGE_TIMEOUT_MS + slow_ms + DRIFT_MS)
        self._settled("the timeout of a write")
        self._describe_staged(admin, [], -1, 0)
        if self.id_expiration_ms < OPEN_TIMEOUT_MS // 2:
            listed = self._within(admin.admin.list_transactions(), "a list", CONNECT_MS)
            if listed:
                raise Violation("Expiry", f"{listed} after {OPEN_TIMEOUT_MS} ms without a change")
        self._do(client.close())
        self._do(admin.close())

    # --- leftovers -----------------------------------------------------------------------------

    def _must_be_quiet(self) -> None:
        """Check that idle coordinators store nothing, send no marker, and keep none."""
        stored, ids, requests = self._stored(), self._ids(), self._requests()
        self._pass_until(self.run.world.now_ms() + QUIET_MS)
        expired = ids - self._ids()  # each is one record
        if (self._stored() - stored, self._requests()) != (expired, requests):
            raise Violation(
                "Quiet",
                f"{self._stored() - stored} records and {self._requests() - requests} requests with"
                f" markers for {expired} expired ids",
            )
        for name, coordinator in self._coordinators():
            left = leftovers(coordinator._markers)
            if left:
                raise Violation("Quiet", f"{name} has {left} without an open transaction")

    def _settled(self, description: str, *, attempts: int = 0) -> None:
        """Check that every transaction but some attempts is complete, and its markers stable,
        within a few messages."""
        end_ms = self.run.world.now_ms() + PROMPT_MS
        while left := self._unsettled(attempts):
            if self.run.world.now_ms() >= end_ms:
                raise Violation("Prompt", f"{PROMPT_MS} ms after {description}: {left}")
            self.run.cluster.run(1)

    def _unsettled(self, attempts: int) -> list[str]:
        left: list[str] = []
        opened = markers = 0
        for _, coordinator in self._coordinators():
            for shard in coordinator._shards.values():
                opened += 0 if shard.state is None else shard.state.open_count
            markers += coordinator._markers.marker_count()
        if opened != attempts or markers:
            left.append(f"{opened} open transactions and {markers} markers")
        for _, node in nodes_up(self.run.cluster.nodes):
            replicas = node.parts.replicas
            for replica in () if replicas is None else replicas.hosted:
                place, log = (
                    (replica.partition.topic, replica.partition.index),
                    open_log_of(replica),
                )
                if not replica.partition.is_leader or place not in self.watched or log is None:
                    continue
                if log.last_stable_offset < log.log_end_offset:
                    left.append(f"{place} is stable to {log.last_stable_offset}")
        return left

    def _coordinators(self) -> Iterator[tuple[str, TransactionCoordinator]]:
        for machine, node in nodes_up(self.run.cluster.nodes):
            if node.parts.transactions is not None:
                yield machine.name, node.parts.transactions

    def _stored(self) -> int:
        """Return the number of records of all transactional ids, by the leaders."""
        total = 0
        for _, node in nodes_up(self.run.cluster.nodes):
            replicas = node.parts.replicas
            for replica in () if replicas is None else replicas.hosted:
                log = open_log_of(replica)
                if replica.partition.topic == TRANSACTIONS_TOPIC and replica.partition.is_leader:
                    total += 0 if log is None else log.log_end_offset
        return total

    def _ids(self) -> int:
        """Return the number of transactional ids of all coordinators."""
        return sum(
            0 if shard.state is None else shard.state.id_count
            for _, coordinator in self._coordinators()
            for shard in coordinator._shards.values()
        )

    def _requests(self) -> int:
        """Return the number of requests with markers that all coordinators have sent."""
        return sum(each.figures.marker_requests for _, each in self._coordinators())

    # --- time ----------------------------------------------------------------------------------

    def _within(
        self, program: Coroutine[Any, Any, T], description: str, bound_ms: int = PROMPT_MS
    ) -> T:
        """Run a program of the client; raises Violation if it takes longer."""
        world = self.run.world
        task = world.node(self.machine).attach(lambda runtime: program, name="calm")
        began_ms, before = world.now_ms(), self.observed.errors.copy()
        while not task.done():
            if world.now_ms() >= began_ms + bound_ms:
                errors = self.observed.errors - before
                raise Violation("Prompt", f"not within {bound_ms} ms: {description}; {errors}")
            self.run.cluster.run(1)
        found: T = task.result()
        return found

    def _do(self, program: Coroutine[Any, Any, T]) -> T:
        return self._within(program, "a step of the client", CONNECT_MS)

    def _wall_ms(self, name: str) -> int:
        """Return the time of the coordinator of a transactional id or name."""
        for _, coordinator in self._coordinators():
            shard = coordinator._shards.get(coordinator.partition_of(name))
            if shard is not None and shard.state is not None:
                return shard._now_ms()
        raise Violation("NoCoordinator", f"no broker coordinates {name}")

    def _pass_until(self, end_ms: int) -> None:
        while (left_ms := end_ms - self.run.world.now_ms()) > 0:
            self.run.cluster.run(left_ms)


def _named(listed: Sequence[N], name: str) -> N:
    """Return the only entry of a list with a name."""
    found = [each for each in listed if each.name == name]
    if len(found) != 1:
        raise Violation("Description", f"{len(found)} entries of {name} in {listed}")
    return found[0]


def _hold_markers(sender: LinkEnd, path: str, is_answer: bool) -> int:
    """Return the delay of a call between brokers, in milliseconds."""
    return HOLD_MS if (path, is_answer) == (MARK, False) else 0


def leftovers(queue: MarkerQueue) -> str:
    """Describe the leftovers of an idle queue of markers; "": none."""
    transactions = sum(map(len, queue._transactions.values()))
    requests = sum(each.fresh_requests + each.repeats for each in queue._brokers.values())
    queued = sum(len(each.fresh) + len(each.repeated) for each in queue._brokers.values())
    counts = {
        "transactions": transactions,
        "partitions": len(queue._partitions),
        "queued markers": queued,
        "requests": requests,
        "reports": len(queue._written),
        "delays": len(queue._delayed),
    }
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
