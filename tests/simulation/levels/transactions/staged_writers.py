"""Streaming queries that write by staged commits: drivers, one after the other or two at once.

A query has a checkpoint, as Spark has: the number of the next batch. A driver plans a write of that
batch, and runs its tasks, some of them in several attempts; it commits, or aborts, or ends at any
step. Its successor runs the batch again. Tasks that sleep continue after the decision as zombies,
and so do drivers, beside their successors.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from quorumlog.errors import FencedWrite, NumberTooOld, QuorumlogError
from quorumlog.runtime import Entropy, Runtime, Scope
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimWorld
from quorumlog.testing.checkers import Place

from ...cluster.nodes import Cluster
from ...cluster.options import ClusterOptions
from .calls import Interference
from .plan import INPUT, Behaviour, places_of
from .producer import Observations
from .staged_client import REFUSED, AttemptFailed, StagedAttempt, StagedClient
from .staged_history import BatchKey, StagedBatch, StagedHistory

STAGED: Final = "staged"  # the topic of all queries
COMMIT_MS: Final = 20_000
CALM_COMMIT_MS: Final = 60_000
WRITES: Final = 0.7  # probability that an attempt writes to a partition
ZOMBIE_S: Final = (0.2, 6.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPlan:
    """A query. The floats are probabilities."""

    name: str
    machines: tuple[str, str]
    tasks: int
    records_max: int  # of a task in one partition
    speculates: float  # a task has a second attempt at once
    fails: float  # an attempt ends, and its task is run again
    lingers: float  # an attempt sleeps before its last records, and continues as a zombie
    aborts: float  # a driver aborts a batch in place of a commit
    gives_up: float  # a driver aborts after a commit without a result
    replays: float  # a driver commits again, or plans a committed batch again


@dataclass(slots=True, kw_only=True)
class StagedQuery:
    """The state that the drivers of a query share, and their supervisor."""

    plan: StagedPlan
    behaviour: Behaviour
    bootstrap: Sequence[str]  # gRPC
    kafka_bootstrap: Sequence[str]
    places: Sequence[Place]
    observed: Observations
    history: StagedHistory
    number: int = 0  # of the next batch: the checkpoint
    is_calm: bool = False
    is_over: bool = False
    drivers: int = 0
    finished: int = -1  # the driver that ended in a calm cluster, after a commit

    def commits(self, batch: StagedBatch) -> None:
        """Store that a batch is committed."""
        self.number = max(self.number, batch.number + 1)


@dataclass(slots=True)
class StagedSupervisor:
    """Starts the drivers of a query; a sleeping driver gets a successor beside it."""

    world: SimWorld
    query: StagedQuery
    _current: "StagedDriver | None" = None
    _tasks: "list[asyncio.Task[None]]" = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        """True if no driver runs, and the last one left nothing undecided."""
        query = self.query
        return query.finished == query.drivers and all(task.done() for task in self._tasks)

    def look(self) -> None:
        """Start the next driver if it is due; raise the errors of those that ended."""
        for task in list(self._tasks):
            if task.done():
                self._tasks.remove(task)
                task.result()
        current = self._current
        is_due = not self._tasks or (current is not None and current.is_replaced)
        if is_due and self.query.finished < self.query.drivers:
            self._start()

    def _start(self) -> None:
        query = self.query
        query.drivers += 1
        number = query.drivers
        machine = self.world.node(query.plan.machines[number % 2])

        async def run(runtime: Runtime) -> None:
            self._current = StagedDriver(query, runtime, number)
            await self._current.run()

        self._current = None
        self._tasks.append(machine.attach(run, name=f"{query.plan.name}{number}"))


@dataclass(slots=True)
class StagedWorkload:
    """All queries of a run, and their history."""

    history: StagedHistory
    supervisors: list[StagedSupervisor]

    @classmethod
    def of(
        cls,
        world: SimWorld,
        plans: Sequence[StagedPlan],
        *,
        behaviour: Behaviour,
        cluster: Cluster,
        observed: Observations,
    ) -> "StagedWorkload":
        """Create the queries, which write to their topic."""
        history = StagedHistory(observed.history)
        queries = [
            StagedQuery(
                plan=plan,
                behaviour=behaviour,
                bootstrap=cluster.bootstrap.split(","),
                kafka_bootstrap=cluster.kafka_bootstrap.split(","),
                places=places_of(cluster.options, (STAGED,)),
                observed=observed,
                history=history,
            )
            for plan in plans
        ]
        return cls(history, [StagedSupervisor(world, query) for query in queries])

    @property
    def has_ended(self) -> bool:
        """True if every query has ended with a commit."""
        return all(one.has_ended for one in self.supervisors)

    def look(self) -> None:
        """Start and end drivers; raise the errors of programs."""
        for one in self.supervisors:
            one.look()

    def calm(self) -> None:
        """End the drawn failures of drivers and tasks."""
        for one in self.supervisors:
            one.query.is_calm = True

    def stop(self) -> None:
        """Let every query end with its next batch."""
        for one in self.supervisors:
            one.query.is_over = True


class _Died(Exception):
    """The driver ends without any further request."""


class StagedDriver:
    """One driver process, with its tasks."""

    def __init__(self, query: StagedQuery, runtime: Runtime, incarnation: int) -> None:
        self.is_replaced = False  # it sleeps, or has ended: its successor starts
        self._query = query
        self._runtime = runtime
        self._incarnation = incarnation
        name = f"{query.plan.name}{incarnation}"
        self._entropy: Entropy = runtime.entropy.stream(f"driver/{name}")
        behaviour, interference = query.behaviour, None
        if not query.is_calm and (behaviour.delayed or behaviour.repeated):
            interference = Interference(
                runtime.entropy.stream(f"interference/{name}"),
                behaviour.delayed,
                behaviour.repeated,
                counts=query.observed.counts,
            )
        self._client = StagedClient(
            runtime=runtime,
            name=name,
            bootstrap=query.bootstrap,
            kafka_bootstrap=query.kafka_bootstrap,
            observed=query.observed,
            history=query.history,
            timeout_ms=behaviour.request_timeout_ms,
            interference=interference,
            topics=[STAGED],
        )
        self._attempts = 0
        self._scope: Scope | None = None

    async def run(self) -> None:
        """Run batches until the query is over, or this driver is fenced or ends."""
        counts = self._query.observed.counts
        try:
            async with self._runtime.tasks.scope(self._client.name) as self._scope:
                while not await self._run_batch():
                    pause_ms = self._entropy.uniform(*self._query.behaviour.think_ms)
                    await asyncio.sleep(pause_ms / 1000)
        except FencedWrite:
            counts["fenced drivers"] += 1
        except NumberTooOld:
            counts["outdated drivers"] += 1
        except _Died:
            counts["dead drivers"] += 1
        finally:
            self.is_replaced = True
            await self._client.close()

    # --- drivers -------------------------------------------------------------------------------

    async def _run_batch(self) -> bool:
        """Run one batch; return True if it was the last one."""
        query = self._query
        is_last = query.is_calm and query.is_over
        key = (query.plan.name, self._draw_number())
        write_id = await self._client.open_write()
        query.observed.counts["staged writes"] += 1
        await self._step()
        winners, found = await self._run_tasks(key, write_id)
        await self._step()
        if found is None and winners is not None and not self._chance(query.plan.aborts):
            found = await self._commit(key, write_id, winners)
        elif found is None:
            found = await self._client.abort(key, write_id)
        if found is None:
            query.observed.counts["staged aborts"] += 1
            return False
        query.commits(found)
        if is_last:
            query.finished = max(query.finished, self._incarnation)
        return is_last

    def _draw_number(self) -> int:
        """Return the next number; sometimes an earlier one, as after a restart."""
        number = self._query.number
        if number and self._chance(self._query.plan.replays):
            self._query.observed.counts["staged replays"] += 1
            return number - 1 - self._entropy.below(min(2, number))
        return number

    async def _commit(
        self, key: BatchKey, write_id: int, winners: dict[int, StagedAttempt]
    ) -> StagedBatch | None:
        """Commit; without a result, sometimes abort. Return the batch if it is committed."""
        query = self._query
        wait_ms = CALM_COMMIT_MS if query.is_calm else COMMIT_MS
        try:
            found = await self._client.commit(key, write_id, winners, wait_ms=wait_ms)
        except REFUSED as error:
            query.observed.counts[f"staged {error.name}"] += 1
            if isinstance(error, FencedWrite | NumberTooOld):
                raise
            return await self._client.abort(key, write_id)
        except QuorumlogError as error:
            query.observed.errors[f"commit {error.name}"] += 1
            if not self._chance(query.plan.gives_up):
                raise _Died from None
            return await self._client.abort(key, write_id)
        query.observed.counts["staged commits"] += 1
        if self._chance(query.plan.replays):
            found = await self._client.commit(key, write_id, winners, wait_ms=wait_ms)
        return found

    # --- tasks ---------------------------------------------------------------------------------

    async def _run_tasks(
        self, key: BatchKey, write_id: int
    ) -> tuple[dict[int, StagedAttempt] | None, StagedBatch | None]:
        """Run all tasks; return an attempt of each, or None, and the batch if it is committed."""
        results = await asyncio.gather(
            *(self._run_task(key, write_id, task) for task in range(self._query.plan.tasks)),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        committed = [result for result in results if isinstance(result, StagedBatch)]
        if committed:
            return None, committed[0]
        winners = {
            task: result for task, result in enumerate(results) if isinstance(result, StagedAttempt)
        }
        return (winners if len(winners) == len(results) else None), None

    async def _run_task(
        self, key: BatchKey, write_id: int, task: int
    ) -> StagedAttempt | StagedBatch | None:
        """Run a task in one attempt or in several; return the winner."""
        for _ in range(3):
            running = [self._run_attempt(key, write_id, task)]
            if self._chance(self._query.plan.speculates):
                running.append(self._run_attempt(key, write_id, task))
            results = await asyncio.gather(*running, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException) and not isinstance(result, AttemptFailed):
                    raise result
            found = [one for one in results if isinstance(one, StagedAttempt | StagedBatch)]
            if found:
                return found[self._entropy.below(len(found))]
        return None

    async def _run_attempt(
        self, key: BatchKey, write_id: int, task: int
    ) -> StagedAttempt | StagedBatch:
        """Run one attempt to its seal; raises AttemptFailed."""
        query = self._query
        self._attempts += 1
        try:
            found = await self._client.begin(key, write_id, task, self._attempts)
            if isinstance(found, StagedBatch):
                return found
            query.observed.counts["staged attempts"] += 1
            await self._write(found)
            if self._chance(query.plan.lingers):
                assert self._scope is not None, "a driver runs in its scope"
                self._scope.spawn(self._linger(found), name=f"{self._client.name} zombie")
                raise AttemptFailed("it sleeps")
            if self._chance(query.plan.fails):
                if self._chance(0.5):
                    await found.abort()
                raise AttemptFailed("it fails")
            await found.seal()
        except REFUSED as error:
            if isinstance(error, FencedWrite | NumberTooOld):
                raise
            raise AttemptFailed(error.name) from None
        return found

    async def _write(self, attempt: StagedAttempt) -> None:
        """Append records to drawn partitions."""
        query = self._query
        for place in query.places:
            if self._entropy.uniform(0, 1) < WRITES:
                values = [
                    query.observed.next_value(attempt.transaction.name, self._entropy.below(40))
                    for _ in range(1 + self._entropy.below(query.plan.records_max))
                ]
                await attempt.write(place, values, wait_ms=query.behaviour.delivery_timeout_ms)

    async def _linger(self, attempt: StagedAttempt) -> None:
        """Continue later, when the batch may be decided: as a zombie."""
        await asyncio.sleep(self._entropy.uniform(*ZOMBIE_S))
        self._query.observed.counts["staged zombies"] += 1
        try:
            await self._write(attempt)
            await attempt.seal()
        except (AttemptFailed, *REFUSED) as error:
            self._query.observed.errors[f"zombie {type(error).__name__}"] += 1

    # --- chances -------------------------------------------------------------------------------

    def _chance(self, probability: float) -> bool:
        drawn = self._entropy.uniform(0, 1)
        return not self._query.is_calm and drawn < probability

    async def _step(self) -> None:
        """Sleep or end, by drawn chances."""
        behaviour = self._query.behaviour
        drawn = self._entropy.uniform(0, 1)
        if self._query.is_calm:
            return
        if drawn < behaviour.sleeps:
            self._query.observed.counts["sleeping drivers"] += 1
            self.is_replaced = True
            await asyncio.sleep(self._entropy.uniform(*behaviour.sleep_ms) / 1000)
        elif drawn < behaviour.sleeps + behaviour.dies:
            raise _Died


def draw_staged(entropy: SimEntropy, machines: Sequence[tuple[str, str]]) -> list[StagedPlan]:
    """Draw one or two queries, in a third of the seeds."""
    if not entropy.chance(0.35):
        return []
    return [
        StagedPlan(
            name=f"spark/q{number}/",
            machines=machines[number],
            tasks=entropy.spread(1, 3),
            records_max=entropy.spread(1, 6),
            speculates=(0.0, 0.3)[entropy.below(2)],
            fails=(0.0, 0.1, 0.3)[entropy.below(3)],
            lingers=(0.0, 0.1, 0.3)[entropy.below(3)],
            aborts=(0.0, 0.1)[entropy.below(2)],
            gives_up=(0.2, 0.8)[entropy.below(2)],
            replays=(0.0, 0.1)[entropy.below(2)],
        )
        for number in range(1 + entropy.below(2))
    ]


def with_staged_topic(options: ClusterOptions, entropy: SimEntropy) -> ClusterOptions:
    """Return the options with the topic of the queries."""
    base = next(topic for topic in options.topics if topic.name == INPUT)
    staged = replace(base, name=STAGED, partitions=1 + entropy.below(3))
    return replace(options, topics=(*options.topics, staged))
