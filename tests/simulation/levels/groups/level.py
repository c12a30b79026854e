"""Level `groups`: whole clusters with faults, and consumer groups with members of every protocol.

Producers write numbered records. Members on machines of their own join, leave, crash, hang, return,
commit late; another client forges their requests. At the end all faults end, and every group must
have processed every record and committed that.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tests.kit.node_settings import with_settings

from quorumlog.errors import QuorumlogError
from quorumlog.metadata.commands import AlterConfigs
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import NotReached, SimWorld
from quorumlog.testing.checkers import Place, TransactionHistory

from ...checkers.internal_errors import raise_internal_errors
from ...checkers.transaction_logs import TransactionLogs, ids_with_an_epoch_each
from ...checkers.violation import Violation
from ...cluster.liveness import CONVERGE_MS, is_whole
from ...cluster.nodes import Cluster
from ...faults.cluster_faults import (
    ClusterFault,
    ClusterFaultInjector,
    ClusterFaultPlan,
    draw_fault_plan,
)
from ...shrink.script import options_of
from ..kafka.client import KafkaClient
from ..node.level import CLIENTS, Run, facts_of, judge, safety_end_ms, serve_with_core, settle
from ..transactions.clients import ReadingMachine
from ..transactions.decisions import ask, wait_for_decisions
from ..transactions.faults import TransactionFaultInjector
from ..transactions.plan import places_of
from ..transactions.producer import Observations
from .calls import FoundOffset, GroupCalls
from .checker import check_found, check_offsets, check_owners, check_work, unserved
from .coordinator_faults import CoordinatorFaultInjector
from .deleted_groups import DeletedGroups
from .history import GroupHistory
from .kept_offsets import KeptOffsets
from .member_machines import MemberMachines
from .offset_expiry import OffsetExpiry
from .plan import OFFSETS_TOPIC, GroupPlan, GroupsPlan, draw_cluster, draw_plan, draw_writers

SERVED_MS: Final = 120_000  # bound for every group to process everything after the faults
LOOK_MS: Final = 60_000  # bound of the last fetch of offsets
LOOKS: Final = 6  # fetches until everything must be committed: members commit periodically
BETWEEN_LOOKS_MS: Final = 2_000
CONFIGURE_MS: Final = 1_000  # a change of configs that was lost is repeated after that
LATE_CALLS: Final = 0.1  # probability that a call between coordinators and leaders arrives late
NEEDS_MANY: Final = frozenset(
    {
        ClusterFault.BRIDGE,
        ClusterFault.BREAK,
        ClusterFault.MOVE,
        ClusterFault.WIPE,
        ClusterFault.MOST,
    }
)


@dataclass(slots=True, eq=False)
class GroupsRun:
    """The state of one run."""

    run: Run
    plan: GroupsPlan
    group_history: GroupHistory
    machines: MemberMachines
    deleted_groups: DeletedGroups
    kept_offsets: KeptOffsets
    offset_expiry: OffsetExpiry
    observed: Observations  # of the members' transactions
    _configure_at_ms: int = 0

    @classmethod
    def of(
        cls,
        world: SimWorld,
        entropy: SimEntropy,
        *,
        plan: GroupsPlan | None = None,
        fault_plan: ClusterFaultPlan | None = None,
    ) -> "GroupsRun":
        """Create a run's cluster, its producers and its groups."""
        first = options_of(world, "groups", plan or draw_plan(entropy, ["any"]))
        settings = first.settings
        options = draw_cluster(
            entropy.stream("cluster plan"), settings, is_compacted=bool(first.offsets_configs)
        )
        topics = [topic.name for topic in options.topics if not topic.is_inner]
        plan = options_of(world, "groups", plan or draw_plan(entropy, topics))  # same settings
        fault_plan = fault_plan or draw_fault_plan(entropy.stream("storm"))
        if options.brokers == 1:
            faults = tuple(fault for fault in fault_plan.faults if fault not in NEEDS_MANY)
            fault_plan = replace(fault_plan, faults=faults)
        run = Run.of(world, entropy, options=options, fault_plan=fault_plan)
        run.workload = options_of(world, "writers", draw_writers(entropy.stream("writers")))
        for node in run.cluster.nodes:
            node.config = with_settings(node.config, **settings)
        group_history = GroupHistory(now_ns=lambda: world.loop.now_ns)
        group_history.loads = lambda: loads_of(run.cluster)
        group_history.unnoted = {group.name for group in plan.groups if group.auto_commit}
        next_value = run.notes.next_value
        observed = Observations(group_history.now_ns, TransactionHistory(), next_value)
        machines = MemberMachines(
            world,
            run.cluster,
            plan,
            group_history,
            run.notes.history,
            observed if plan.is_transactional else None,
            entropy.stream("machines"),
        )
        make: Callable[..., ClusterFaultInjector] = CoordinatorFaultInjector
        if plan.is_transactional:
            make = partial(TransactionFaultInjector, late_calls=LATE_CALLS)
        run.fault_injector = make(
            run.cluster,
            fault_plan,
            entropy.stream("nemesis"),
            CLIENTS + machines.names,
            coordinators_ms=plan.behaviour.coordinators_ms,
            session_ms=plan.groups[0].session_ms,
        )
        bootstrap = run.cluster.kafka_bootstrap
        kept_offsets = KeptOffsets(group_history, bootstrap, (topics[0], 0), plan.behaviour.keep_ms)
        offset_expiry = OffsetExpiry(
            group_history,
            bootstrap,
            (topics[0], 0),
            plan.groups[0].session_ms,
            clocks_jumped=lambda: bool(run.fault_injector.happened[ClusterFault.CLOCK]),
        )
        made = cls(
            run,
            plan,
            group_history,
            machines,
            DeletedGroups(kept_offsets, bootstrap),
            kept_offsets,
            offset_expiry,
            observed,
        )
        run.look = made.look
        return made

    def look(self) -> None:
        """Update the members and check for violations."""
        self.machines.look()
        self._configure()
        check_found(self.group_history)

    def _configure(self) -> None:
        """Set the configs of the offsets topic, once it exists."""
        cluster, wanted = self.run.cluster, self.plan.offsets_configs
        topic = cluster.newest_image.topic(OFFSETS_TOPIC)
        now_ms = self.run.world.now_ms()
        if not wanted or topic is None or now_ms < self._configure_at_ms:
            return
        self._configure_at_ms = now_ms + CONFIGURE_MS
        if any(topic.configs.get(name) != value for name, value in wanted.items()):
            cluster.ask_controller(AlterConfigs(topic=OFFSETS_TOPIC, changes=tuple(wanted.items())))

    def play(self, entropy: SimEntropy) -> dict[str, int]:
        """Run the scenario; raises AssertionError with a violation."""
        run, world = self.run, self.run.world
        run.start()
        outside = [
            world.node(CLIENTS[-1]).attach(self.deleted_groups.run, name="passing"),
            world.node(CLIENTS[0]).attach(self.kept_offsets.put, name="keeping"),
            world.node(CLIENTS[-1]).attach(self.kept_offsets.look, name="looking"),
            world.node(CLIENTS[0]).attach(self.offset_expiry.run, name="fading"),
        ]
        end_ms = safety_end_ms(world)
        while world.now_ms() < end_ms:
            run.step()
            run.fault_injector.step()
        served = serve_with_core(run, entropy)
        run.fault_injector.end_all(run.cluster.nodes)
        self.machines.calm()
        self.deleted_groups.is_over = self.kept_offsets.is_over = self.offset_expiry.is_over = True
        run.wait(lambda: is_whole(run.cluster), CONVERGE_MS, "every replica is in sync")
        stored = settle(run)
        ends = {place: found[-1][0] + 1 for place, found in stored.items() if found}
        self._serve(ends)
        run.wait(
            lambda: all(one.done() for one in outside), LOOK_MS, "commits from outside have ended"
        )
        for one in outside:
            one.result()
        looking = world.node(CLIENTS[-1]).attach(self.kept_offsets.look_at_all, name="a last look")
        run.wait(looking.done, LOOK_MS, "every kept offset is fetched")
        looking.result()
        check_owners(self.group_history.claims)
        self._look_at_offsets(ends)
        if self.plan.is_transactional:
            self._judge_transactions()
        check_work(self.group_history, self.plan.groups, stored)
        check_offsets(self.group_history)
        judge(run, stored)
        return self.facts() | {"served": served}

    def _serve(self, ends: dict[Place, int]) -> None:
        """Wait until every group has processed everything."""
        left: list[str] = []

        def is_served() -> bool:
            left[:] = unserved(self.group_history, self.plan.groups, ends, are_told=False)
            return not left

        try:
            self.run.wait(is_served, SERVED_MS, "every group is served")
        except NotReached as error:
            check_owners(self.group_history.claims)
            raise NotReached(f"{error}\n  left to do: {left[:5]}") from None

    def _judge_transactions(self) -> None:
        """Wait until every transaction is decided, and check the logs of the offsets topic."""
        run, name = self.run, CLIENTS[-1]
        places = places_of(run.options, (OFFSETS_TOPIC,))
        reader = ReadingMachine(
            run.world.node(name).runtime(),
            name,
            run.cluster.kafka_bootstrap.split(","),
            [],
            self.observed,
            run.notes,
        )
        wait_for_decisions(run, reader, places)
        found = ask(run, name, lambda runtime: reader.find_all(runtime, places, {}))
        epoch_each = ids_with_an_epoch_each(found.logs, self.observed.shares_epochs)
        logs = TransactionLogs(self.observed.history, epoch_each, frozenset(places))
        self.observed.counts["markers"] = logs.check(found.logs)

    def _look_at_offsets(self, ends: dict[Place, int]) -> None:
        """Fetch the committed offsets once more, with a new client."""
        for group in self.plan.groups:
            places = [place for place in ends if place[0] in group.topics]
            tries = LOOKS * (1 + self.plan.is_transactional)  # some transactions are aborted
            while places and (late := self._uncommitted(group, places, ends)):
                tries -= 1
                if not tries:
                    raise Violation("Uncommitted", f"group {group.name}: {late}")
                end_ms = self.run.world.now_ms() + BETWEEN_LOOKS_MS
                self.run.wait(lambda: self.run.world.now_ms() >= end_ms, LOOK_MS, "time")  # noqa: B023

    def _uncommitted(
        self, group: GroupPlan, places: list[Place], ends: dict[Place, int]
    ) -> list[str]:
        """Fetch the committed offsets; return the missing ones."""
        looking = self.run.world.node(CLIENTS[-1]).attach(
            lambda runtime: self._ask(runtime, group, places), name=f"look at {group.name}"
        )
        self.run.wait(looking.done, LOOK_MS, f"what {group.name} has committed is fetched")
        found = looking.result()
        return [
            f"{found[place].offset} of {place} is committed, which ends at {ends[place]}"
            for place in places
            if found[place].offset != ends[place]
        ]

    async def _ask(
        self, runtime: Runtime, group: GroupPlan, places: list[Place]
    ) -> dict[Place, FoundOffset]:
        client = KafkaClient(
            runtime,
            self.run.cluster.kafka_bootstrap.split(","),
            name=f"look at {group.name}",
            timeout_ms=2_000,
            codec=Codec.NONE,
        )
        is_stable = self.plan.is_transactional
        asking = GroupCalls(runtime, client, group.name, timeout_ms=2_000, is_stable=is_stable)
        while True:
            numbers = {
                place: self.group_history.fetch_offset(group.name, "the last look", place)
                for place in places
            }
            try:
                code, found = await asking.fetch(places)
            except QuorumlogError:
                await asyncio.sleep(0.2)
                continue
            if code:
                await asyncio.sleep(0.2)
                continue
            for place, number in numbers.items():
                one = found[place]
                self.group_history.offset_fetched(number, group.name, place, one.offset, one.note)
            client.close()
            asking.close()
            return found

    def facts(self) -> dict[str, int]:
        """Return the counts for a seed's line."""
        group_history = self.group_history
        return facts_of(self.run) | {
            "members": len(self.plan.members),
            "lives": len(group_history.incarnations),
            "claims": len(group_history.claims),
            "happened": self.machines.happened.total(),
            "group_errors": group_history.errors.total(),
            "passed": self.deleted_groups.rounds,
            "kept_groups": len(self.kept_offsets.kept),
            **{
                name.replace(" ", "_"): group_history.counts[name]
                for name in sorted(group_history.counts)
            },
            **{
                name.replace(" ", "_"): self.observed.counts[name]
                for name in sorted(self.observed.counts)
            },
        }


def loads_of(cluster: Cluster) -> object:
    """Return the loads that coordinators have completed; None while one is loading."""
    found = []
    for node in cluster.nodes:
        groups = node.node.parts.groups if node.sim.alive and node.node is not None else None
        if groups is None:
            continue
        if groups.census().partitions_read:
            return None
        found.append((node.name, id(groups), groups.figures.loads))
    return found


def play(
    world: SimWorld, *, plan: GroupsPlan | None = None, fault_plan: ClusterFaultPlan | None = None
) -> dict[str, int]:
    """Run a seed; raises AssertionError with a violation."""
    entropy = world.entropy.stream("scenario")
    with raise_internal_errors():
        return GroupsRun.of(world, entropy, plan=plan, fault_plan=fault_plan).play(entropy)
