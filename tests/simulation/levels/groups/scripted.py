"""A group controlled by a scripted scenario, on a scripted cluster.

```python
with SimWorld(1) as world:
    scene = Scene(world, Kind.EAGER)
    scene.start()
    scene.enter("m1")
    scene.produce(10)
    scene.stage.take_down(scene.coordinator())
    scene.finish()  # every record is processed and committed; no partition had two owners
```
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

from tests.kit.node_settings import with_settings

from quorumlog.errors import QuorumlogError
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.simulation.world import SimWorld
from quorumlog.testing.checkers import Place, SendOutcome

from ...checkers.violation import Violation
from ...cluster.nodes import ClusterNode
from ...cluster.options import TopicPlan
from ...cluster.scripted import ScriptedCluster, options_of
from ..kafka.client import METADATA, KafkaClient
from .calls import ELSEWHERE, GroupCalls, codes_of
from .checker import check_found, check_offsets, check_owners, check_work, unserved
from .history import GroupHistory, MemberIncarnation
from .member_machines import member_of
from .member_reader import TOPIC_IDS_SINCE, MemberContext
from .plan import OFFSETS_TOPIC, GroupPlan, MemberBehaviour, MemberKind, MemberPlan

T = TypeVar("T")

GROUP: Final = "g"
TOPIC: Final = "t"
SESSION_MS: Final = 3_000
REBALANCE_MS: Final = 4_000
BEAT_MS: Final = 300
SERVED_MS: Final = 60_000
SETTLED_MS: Final = 1_500
ATTENTIVE: Final = MemberBehaviour(
    work_ms=(0, 5),
    records_max=10,
    commit_ms=(100, 200),
    late=1.0,
    request_timeout_ms=2_000,
    pause_ms=(1_000, 1_000),
    span_ms=(1_000, 1_000),
    lie_ms=(10, 50),
)
SETTINGS: Final = {
    "offsets_topic_num_partitions": 1,
    "group_min_session_timeout_ms": 1_000,
    "group_initial_rebalance_delay_ms": 500,
    "group_consumer_session_timeout_ms": SESSION_MS,
    "group_consumer_heartbeat_interval_ms": BEAT_MS,
}


class ScriptedGroup:
    """The cluster, one group, and its members, each on its own machine."""

    def __init__(
        self,
        world: SimWorld,
        kind: MemberKind,
        *,
        partitions: int = 4,
        behaviour: MemberBehaviour = ATTENTIVE,
        is_combined: bool = True,
        **settings: Any,
    ) -> None:
        """Create the cluster; `kind` is the default protocol of members.

        The controllers are brokers, or machines of their own; `settings` are those of nodes.
        """
        topic = TopicPlan(
            name=TOPIC, partitions=partitions, replication=3, min_isr=2, flush_policy="replicated"
        )
        self.world = world
        self.kind = kind
        self.behaviour = behaviour
        self.stage = ScriptedCluster(
            world, replace(options_of(topic, is_combined=is_combined), has_kafka=True)
        )
        for node in self.stage.cluster.nodes:
            node.config = with_settings(node.config, **(SETTINGS | settings))
        self.places = self.stage.options.places
        self.group_history = GroupHistory(now_ns=lambda: world.loop.now_ns)
        self.group = GroupPlan(
            name=GROUP,
            topics=(TOPIC,),
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            beat_ms=BEAT_MS,
            members=(),
        )
        self._stops: dict[str, asyncio.Event] = {}

    # --- actions
    # -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the cluster, and create the offsets topic."""
        self.stage.start()
        self.ask(lambda calls: calls.fetch(self.places))

    def enter(
        self,
        name: str,
        kind: MemberKind | None = None,
        *,
        instance_id: str = "",
        lies: bool = False,
    ) -> None:
        """Start a member; `lies`: a client that forges requests of the others."""
        plan = MemberPlan(name=name, group=GROUP, kind=kind or self.kind, instance_id=instance_id)
        self.world.node(name).spawn(lambda runtime: self._run(plan, lies, runtime))

    def leave(self, name: str) -> None:
        """Stop a member cleanly; return when its process has ended."""
        node = self.world.node(name)

        async def tell(runtime: Runtime) -> None:
            self._stops[name].set()

        node.attach(tell, name="stop")
        self.until(lambda: not node.alive, f"{name} has left")

    def kill(self, name: str) -> None:
        """Kill a member's process."""
        self.world.node(name).crash()
        self.group_history.process_ended(name)

    def hang(self, name: str) -> None:
        """Pause a member's process."""
        self.world.node(name).pause()

    def wake(self, name: str) -> None:
        """Resume a member's process."""
        self.world.node(name).resume()

    def produce(self, count: int) -> None:
        """Write that many records to each partition."""
        for place in self.places:
            self.stage.produce(place, count)

    def ask(self, call: Callable[[GroupCalls], Coroutine[Any, Any, T]], group: str = GROUP) -> T:
        """Send a request to the group's coordinator from outside of the group, with retries."""
        return self.stage.do(lambda runtime: self._ask(call, group, runtime))

    def begin_to_ask(
        self, call: Callable[[GroupCalls], Coroutine[Any, Any, T]], group: str = GROUP
    ) -> "asyncio.Task[T]":
        """Start `ask` without waiting."""
        return self.stage.begin(lambda runtime: self._ask(call, group, runtime))

    def until(self, condition: Callable[[], bool], why: str, virtual_ms: int = SERVED_MS) -> None:
        """Let time pass until the condition holds; raises NotReached, and Violation."""

        def holds() -> bool:
            check_found(self.group_history)
            self._check_members()
            return condition()

        self.stage.until(holds, why, virtual_ms=virtual_ms)

    def run(self, virtual_ms: int) -> None:
        """Let time pass."""
        end_ms = self.world.now_ms() + virtual_ms
        self.until(lambda: self.world.now_ms() >= end_ms, "time passes", virtual_ms + 1_000)

    def until_served(self) -> None:
        """Let time pass until every partition has one owner, which has processed and committed
        everything."""
        ends = self.ends()
        group = replace(self.group)
        self.until(
            lambda: not unserved(self.group_history, (group,), ends),
            "the group is served",
        )

    def until_settled(self, *names: str) -> None:
        """Let time pass until exactly these members own all partitions, without a change for a
        while."""
        seen: list[object] = [None, 0]

        def is_settled() -> bool:
            incarnations = [self.life(name) for name in names]
            now = [(life.epoch, sorted(life.claims)) for life in incarnations]
            if now != seen[0]:
                seen[:] = [now, self.world.now_ms()]
            had = sorted(place for life in incarnations for place in life.claims)
            since_ms = seen[1]
            assert isinstance(since_ms, int), f"{since_ms!r} is no time"
            is_shared = all(life.claims for life in incarnations) and had == sorted(self.places)
            return is_shared and self.world.now_ms() - since_ms >= SETTLED_MS

        self.until(
            lambda: all(self.has_lived(name) for name in names) and is_settled(),
            "all partitions are assigned",
        )

    def finish(self) -> None:
        """End all faults; every record must be processed and committed, and no partition may
        have had two owners."""
        self.stage.mend()
        for node in self.stage.cluster.nodes:
            if not node.sim.alive:
                self.stage.bring_up(node)
        self.until_served()
        self.judge()
        stored = self.stage.finish()
        check_work(self.group_history, (self.group,), stored)

    def judge(self) -> None:
        """Check the history of the members; raises Violation."""
        check_found(self.group_history)
        check_owners(self.group_history.claims)
        check_offsets(self.group_history)

    # --- state
    # -------------------------------------------------------------------------------------

    def coordinator(self) -> ClusterNode:
        """Return the coordinator of the group."""
        return self.stage.leader((OFFSETS_TOPIC, 0))

    def life(self, name: str) -> MemberIncarnation:
        """Return the newest process of a member."""
        return next(
            life
            for life in reversed(self.group_history.incarnations)
            if life.name.startswith(f"{name}/")
        )

    def held(self, name: str) -> set[Place]:
        """Return the partitions of a member."""
        return set(self.life(name).claims) if self.has_lived(name) else set()

    def has_lived(self, name: str) -> bool:
        """Return True if a process of the member has started."""
        return any(life.name.startswith(f"{name}/") for life in self.group_history.incarnations)

    def ends(self) -> dict[Place, int]:
        """Return the acknowledged ends of the partitions."""
        ends: dict[Place, int] = {}
        for send in self.stage.notes.history.sends.values():
            if send.outcome is SendOutcome.OK:
                ends[send.place] = max(ends.get(send.place, 0), send.offset + 1)
        return ends

    def offsets(self) -> dict[Place, int]:
        """Return the committed offsets of the group, -1: none."""
        code, found = self.ask(lambda calls: calls.fetch(self.places))
        assert not code, f"error {code}"
        return {place: one.offset for place, one in found.items()}

    # --- inside --------------------------------------------------------------------------------

    def _check_members(self) -> None:
        for name in self._stops:
            node = self.world.node(name)
            if node.exit_error is not None:
                raise Violation("MemberEnded", f"{name}: {node.exit_error!r}") from node.exit_error

    async def _run(self, plan: MemberPlan, lies: bool, runtime: Runtime) -> None:
        stop = self._stops[plan.name] = asyncio.Event()
        cluster = self.stage.cluster
        setting = MemberContext(
            runtime=runtime,
            plan=plan,
            group=self.group,
            behaviour=self.behaviour,
            bootstrap=cluster.kafka_bootstrap,
            grpc_bootstrap=cluster.bootstrap,
            group_history=self.group_history,
            history=self.stage.notes.history,
            places=self.places,
            stop=stop,
        )
        await member_of(setting, lies=lies).run()

    async def _ask(
        self,
        call: Callable[[GroupCalls], Coroutine[Any, Any, T]],
        group: str,
        runtime: Runtime,
    ) -> T:
        client = KafkaClient(
            runtime,
            self.stage.cluster.kafka_bootstrap.split(","),
            name="outside",
            timeout_ms=2_000,
            codec=Codec.NONE,
        )
        client.versions[METADATA] = TOPIC_IDS_SINCE
        calls = GroupCalls(runtime, client, group, timeout_ms=2_000)
        try:
            return await _with_retries(lambda: call(calls))
        finally:
            client.close()
            calls.close()


async def _with_retries(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Call until a serving coordinator responds."""
    while True:
        try:
            answer = await call()
        except QuorumlogError:
            await asyncio.sleep(0.1)
            continue
        if any(code in ELSEWHERE for code in codes_of(answer)):
            await asyncio.sleep(0.1)
            continue
        return answer
