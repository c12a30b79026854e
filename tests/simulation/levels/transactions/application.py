"""Applications: incarnations that process or write in transactions, and their supervisor.

At every step an incarnation may sleep or end. Its successor starts at once, usually on another
machine: so a sleeper that continues is a zombie, which the transactional id or the membership
fences.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from quorumlog.errors import QuorumlogError
from quorumlog.records.compression import Codec
from quorumlog.runtime import Entropy, Runtime, Scope
from quorumlog.simulation.world import SimNode, SimWorld
from quorumlog.testing.checkers import OffsetRead, Place

from ...checkers.violation import Violation
from ..kafka.client import KafkaClient
from .calls import NO_MEMBER, Interference, Member, TransactionCalls
from .committed_reads import READ_COMMITTED, committed_part
from .plan import COMPACTED, EXTRA_CONFIGS, KEYS, ApplicationPlan, Behaviour, Kind
from .producer import (
    AbortableError,
    FatalError,
    NotMemberError,
    Observations,
    TransactionalProducer,
)

RETRY_S: Final = 0.2
OFFSET_OUT_OF_RANGE: Final = 1
FETCH_WAIT_MS: Final = 200
HURRY_S: Final = 0.05  # longest wait for a request before an abort
MARKER_S: Final = (0.01, 3.0)  # until a marker is repeated
DRAIN_MAX: Final = 500  # input records of a transaction after the writers have ended
READS: Final = 0.3  # probability of a read inside a writer's transaction


class Died(Exception):
    """The incarnation ends without any further request."""


@dataclass(slots=True)
class ApplicationState:
    """The state of an application that its supervisor and its incarnations share."""

    plan: ApplicationPlan
    behaviour: Behaviour
    bootstrap: list[str]
    sources: list[Place]
    targets: list[Place]
    observed: Observations
    coordinator_epoch: Callable[[str], int]  # by transactional id, at present
    grpc_bootstrap: str = ""  # of applications with our Python client
    is_calm: bool = False  # no more sleeps, ends and late requests
    is_draining: bool = False  # the writers have ended: process up to DRAIN_MAX records at once
    is_over: bool = False  # end after the current transaction
    has_ended: bool = False
    seen_changes: int = -1  # the count of changes up to which all input was processed
    transactional_ids: list[str] = field(default_factory=list)  # of incarnations, the last one last
    incarnations: int = 0

    @property
    def read_places(self) -> list[Place]:
        """The partitions that a writer reads in between: those that keep all records."""
        return [place for place in self.targets if place[0] not in EXTRA_CONFIGS]

    @property
    def topics(self) -> list[str]:
        """The topics that the application uses."""
        return sorted({place[0] for place in (*self.sources, *self.targets)})

    @property
    def is_caught_up(self) -> bool:
        """True if it has processed everything that exists."""
        return self.seen_changes == self.observed.changes


class ApplicationProcess(Protocol):
    """One process of an application, as its supervisor uses it."""

    is_replaced: bool  # it slept, or has ended: its successor starts
    has_crashed: bool  # its machine must crash

    async def run(self) -> None: ...


class Incarnation:
    """One process of an application."""

    has_crashed = False

    def __init__(self, state: ApplicationState, runtime: Runtime, number: int) -> None:
        plan, behaviour = state.plan, state.behaviour
        self.name = f"{plan.name}/{number}"
        self.is_replaced = False  # it slept, or has ended: its successor starts
        self._state = state
        self._runtime = runtime
        self._entropy: Entropy = runtime.entropy.stream(f"application/{self.name}")
        transactional_id = plan.transactional_id or f"{plan.name}-{number}"
        state.transactional_ids.append(transactional_id)
        self._transactional_id = transactional_id
        self._late: list[asyncio.Task[None]] = []
        self._scope: Scope | None = None
        self._client = KafkaClient(
            runtime,
            state.bootstrap,
            name=self.name,
            timeout_ms=behaviour.request_timeout_ms,
            codec=Codec.NONE,
        )
        interference = None
        if not state.is_calm and (behaviour.delayed or behaviour.repeated):
            interference = Interference(
                runtime.entropy.stream(f"interference/{self.name}"),
                behaviour.delayed,
                behaviour.repeated,
                counts=state.observed.counts,
            )
        self._calls = TransactionCalls(
            runtime,
            self._client,
            self.name,
            plan.generation,
            timeout_ms=behaviour.request_timeout_ms,
            interference=interference,
        )
        self._producer = TransactionalProducer(
            self._calls,
            state.observed,
            runtime.clock,
            name=self.name,
            transactional_id=transactional_id,
            transaction_timeout_ms=plan.timeout_ms,
            delivery_timeout_ms=behaviour.delivery_timeout_ms,
            topics=state.topics,
        )
        self._positions: dict[Place, int] = {}
        self._member: Member = NO_MEMBER

    async def run(self) -> None:
        """Run transactions until the application is over, or this incarnation fails."""
        async with self._runtime.tasks.scope(self.name) as self._scope:
            await self._run()

    async def _run(self) -> None:
        try:
            await self._start()
            while not self._state.is_over:
                await self._transact()
                pause_ms = self._entropy.uniform(*self._state.behaviour.think_ms)
                await asyncio.sleep(pause_ms / 1000)
        except FatalError as error:
            self._state.observed.errors[f"fatal {error}"] += 1
        except Died:
            self._state.observed.counts["dead"] += 1
        finally:
            for task in self._late:
                task.cancel()
            self.is_replaced = True
            self._calls.close()

    # --- start ---------------------------------------------------------------------------------

    async def _start(self) -> None:
        await self._look()
        if self._state.plan.kind is Kind.WRITE:
            await self._producer.init()
            return
        if self._state.plan.is_fenced_by_member:
            self._member = await self._join()
        await self._producer.init()
        self._positions = await self._fetch_offsets()

    async def _join(self) -> Member:
        while True:
            try:
                code, member = await self._calls.join(self._state.plan.group, "only")
            except QuorumlogError as error:
                self._note(error)
            else:
                if not code:
                    return member
                self._note(f"join {code}")
            await self._look()

    async def _fetch_offsets(self) -> dict[Place, int]:
        observed, group = self._state.observed, self._state.plan.group
        while True:
            asked_at = observed.now_ns()
            try:
                code, offsets = await self._calls.fetch_offsets(group, self._state.sources)
            except QuorumlogError as error:
                self._note(error)
            else:
                if not code:
                    for place, offset in offsets.items():
                        observed.history.offset_reads.append(
                            OffsetRead(group, place, offset, asked_at, observed.now_ns())
                        )
                    return {place: max(0, offset) for place, offset in offsets.items()}
                self._note(f"fetch offsets {code}")
            await self._look()

    # --- transactions --------------------------------------------------------------------------

    async def _transact(self) -> None:
        """Run one transaction; after an abortable error, abort it."""
        try:
            if self._state.plan.kind is Kind.PROCESS:
                await self._process()
            else:
                await self._write()
        except AbortableError as error:
            self._note(f"abortable {error}")
            await self._abort()
            if isinstance(error, NotMemberError):
                raise FatalError(str(error)) from error

    async def _process(self) -> None:
        """Process some input in one transaction."""
        changes = self._state.observed.changes
        found = await self._poll(self._state.sources)
        if not found:
            return
        if not any(records for records, _ in found.values()):
            if len(found) == len(self._state.sources) and await self._is_at_end():
                self._state.seen_changes = changes
            # Positions may pass aborted records: the next transaction starts behind them, and
            # commits from the position of the last one on.
            return
        producer, behaviour = self._producer, self._state.behaviour
        transaction = producer.begin()
        positions = dict(self._positions)
        ranges: dict[Place, tuple[int, int]] = {}
        batches: dict[Place, list[tuple[bytes | None, bytes]]] = {}
        left = DRAIN_MAX if self._state.is_draining else behaviour.batch_max
        for place, (records, end) in found.items():
            taken = records[:left]
            left -= len(taken)
            if not taken:
                continue
            transaction.reads += [(place, offset, value) for offset, value in taken]
            end = end if len(taken) == len(records) else taken[-1][0] + 1
            ranges[place] = (positions[place], end)
            positions[place] = end
            for _ in taken:
                target = self._state.targets[self._entropy.below(len(self._state.targets))]
                batches.setdefault(target, []).append(self._record(target))
        await self._step()
        await producer.send_all(batches)
        await self._step()
        sending = producer.send_offsets(self._state.plan.group, ranges, self._member)
        if not self._state.is_calm and self._entropy.uniform(0, 1) < behaviour.hurries:
            await self._abort_hurriedly(sending)
            return
        await sending
        await self._finish()
        if transaction.ended_at >= 0 and not transaction.is_aborted:
            self._positions = positions

    async def _write(self) -> None:
        """Write records to drawn partitions, and sometimes read in between."""
        producer, drawn = self._producer, self._entropy
        transaction = producer.begin()
        for _ in range(1 + drawn.below(3)):
            batches: dict[Place, list[tuple[bytes | None, bytes]]] = {}
            for _ in range(1 + drawn.below(self._state.behaviour.records_max)):
                place = self._state.targets[drawn.below(len(self._state.targets))]
                batches.setdefault(place, []).append(self._record(place))
            await producer.send_all(batches)
            await self._step()
            if drawn.uniform(0, 1) < READS and self._state.read_places:
                places = self._state.read_places
                found = await self._poll([places[drawn.below(len(places))]], moves=True)
                for source, (records, _) in found.items():
                    transaction.reads += [(source, offset, value) for offset, value in records]
        if drawn.uniform(0, 1) < self._state.behaviour.hurries:
            place = self._state.targets[drawn.below(len(self._state.targets))]
            await self._abort_hurriedly(producer.send(place, [self._record(place)]))
        else:
            await self._finish()

    async def _finish(self) -> None:
        """Commit or abort; sometimes repeat the request."""
        await self._step()
        if self._entropy.uniform(0, 1) < self._state.behaviour.aborts:
            await self._abort()
        else:
            await self._producer.commit()
        if self._entropy.uniform(0, 1) < self._state.behaviour.repeats_end:
            try:
                await self._producer.end_again(is_commit=bool(self._entropy.below(2)))
            except QuorumlogError as error:
                self._note(error)
        if self._producer.is_new and self._entropy.uniform(0, 1) < self._state.behaviour.repeated:
            self._repeat_marker()

    def _repeat_marker(self) -> None:
        """Send a marker of this transaction once more, while later ones run."""
        if self._state.is_calm:
            return
        epoch = self._state.coordinator_epoch(self._transactional_id)
        sending = self._producer.repeat_marker(self._entropy.uniform(*MARKER_S), epoch)
        assert self._scope is not None, "an incarnation runs in its scope"
        self._late.append(self._scope.spawn(sending, name=f"{self.name} marker"))

    async def _abort_hurriedly(self, sending: Coroutine[Any, Any, None]) -> None:
        self._state.observed.counts["hurried"] += 1
        await self._producer.abort_hurriedly(sending, self._entropy.uniform(0, HURRY_S))

    async def _abort(self) -> None:
        if self._producer.transaction is not None:
            await self._producer.abort()

    def _record(self, place: Place) -> tuple[bytes | None, bytes]:
        key = b"k%d" % self._entropy.below(KEYS) if place[0] == COMPACTED else None
        return key, self._state.observed.next_value(self.name, self._entropy.below(60))

    async def _step(self) -> None:
        """Sleep or end, by drawn chances."""
        behaviour = self._state.behaviour
        drawn = self._entropy.uniform(0, 1)
        if self._state.is_calm:
            return
        if drawn < behaviour.sleeps:
            self._state.observed.counts["zombies"] += 1
            self.is_replaced = True
            await asyncio.sleep(self._entropy.uniform(*behaviour.sleep_ms) / 1000)
        elif drawn < behaviour.sleeps + behaviour.dies:
            raise Died

    # --- reading -------------------------------------------------------------------------------

    async def _poll(
        self, places: list[Place], *, moves: bool = False
    ) -> dict[Place, tuple[list[tuple[int, bytes]], int]]:
        """Fetch committed records once from each leader; return them with the next position.

        With `moves` the next poll starts there; otherwise it starts at the same position.
        """
        found: dict[Place, tuple[list[tuple[int, bytes]], int]] = {}
        shares = dict[str, dict[Place, int]]()
        for place in places:
            address = self._client.address_of(place)
            if address is not None:
                shares.setdefault(address, {})[place] = self._positions.get(place, 0)
        for address, share in shares.items():
            try:
                parts = await self._client.fetch_parts(
                    address, share, isolation=READ_COMMITTED, wait_ms=FETCH_WAIT_MS
                )
            except QuorumlogError as error:
                self._note(error)
                continue
            for place, part in parts.items():
                if not part.error_code:
                    found[place] = self._polled(place, part, share[place], moves=moves)
                elif int(part.error_code) == OFFSET_OUT_OF_RANGE:
                    raise Violation("KafkaError", f"{share[place]} is out of range in {place}")
                else:
                    self._note(f"fetch {int(part.error_code)}")
        if len(found) < len(places):
            await self._look()
        return found

    def _polled(
        self, place: Place, part: Any, position: int, *, moves: bool
    ) -> tuple[list[tuple[int, bytes]], int]:
        """Record what was returned; return it with the next position."""
        observed, committed = self._state.observed, committed_part(part, position)
        if committed.records:
            reader = f"{self.name} in {place}"
            observed.history.records.poll(reader, place, committed.records, at=observed.now_ns())
            if not moves:
                observed.history.records.assign(reader, place)
        if moves:
            self._positions[place] = committed.position
        return committed.records, committed.position

    async def _is_at_end(self) -> bool:
        """Return True if no input is undecided or unread."""
        for place in self._state.sources:
            address = self._client.address_of(place)
            if address is None:
                return False
            try:
                parts = await self._client.fetch_parts(
                    address,
                    {place: self._positions[place]},
                    isolation=READ_COMMITTED,
                    wait_ms=0,
                )
            except QuorumlogError as error:
                self._note(error)
                return False
            part = parts[place]
            if part.error_code or part.last_stable_offset < part.high_watermark:
                return False
            committed = committed_part(part, self._positions[place])
            if committed.records or committed.position < part.high_watermark:
                return False
        return True

    async def _look(self) -> None:
        await asyncio.sleep(RETRY_S)
        try:
            await self._client.look(self._state.topics)
        except QuorumlogError as error:
            self._note(error)

    def _note(self, error: QuorumlogError | str) -> None:
        name = error if isinstance(error, str) else type(error).__name__
        self._state.observed.errors[name] += 1


class ApplicationSupervisor:
    """Starts an application's incarnations, one after the other, on its machines in turn."""

    def __init__(
        self,
        world: SimWorld,
        state: ApplicationState,
        make: Callable[[ApplicationState, Runtime, int], ApplicationProcess] = Incarnation,
    ) -> None:
        """Create the supervisor; `make` returns the incarnation of a number."""
        self.state = state
        self._world = world
        self._make = make
        self._current: ApplicationProcess | None = None
        self._tasks: list[tuple[SimNode, asyncio.Task[None]]] = []

    @property
    def has_ended(self) -> bool:
        """True if no incarnation runs, also none that was replaced."""
        return self.state.is_over and all(task.done() for _, task in self._tasks)

    def look(self) -> None:
        """Start the next incarnation if it is due; raise the errors of those that ended."""
        for machine, task in list(self._tasks):
            if task.done():
                self._tasks.remove((machine, task))
                task.result()
        current = self._current
        if current is not None and current.has_crashed:
            self._crash()
        is_replaced = not self._tasks or (current is not None and current.is_replaced)
        if is_replaced and not self.state.is_over:
            self._start()

    def _machine(self) -> SimNode:
        plan = self.state.plan
        return self._world.node(plan.machines[self.state.incarnations % 2])

    def _start(self) -> None:
        state = self.state
        state.incarnations += 1
        number, machine = state.incarnations, self._machine()

        async def run(runtime: Runtime) -> None:
            self._current = self._make(state, runtime, number)
            await self._current.run()

        self._current = None
        task = machine.attach(run, name=f"{state.plan.name}/{number}")
        self._tasks.append((machine, task))

    def _crash(self) -> None:
        """Crash the machine of the present incarnation, which is this application's alone."""
        crashed = self._machine()
        crashed.crash()
        crashed.restart()
        self._tasks = [(machine, task) for machine, task in self._tasks if machine is not crashed]
        self._current = None
