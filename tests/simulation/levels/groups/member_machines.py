"""The machines of members and their faults: members are killed, stopped, paused and restarted."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimNode, SimWorld
from quorumlog.testing.checkers import History

from ...checkers.violation import Violation
from ...cluster.nodes import Cluster
from ..transactions.producer import Observations
from .classic_member import ClassicMember
from .client_member import ClientMember
from .consumer_member import ConsumerMember
from .forged_requests import RequestForger
from .history import GroupHistory
from .member_reader import MemberContext
from .plan import GroupsPlan, MemberKind, MemberPlan

LATE: Final = 0.5  # probability that members of KIP-848 start late in a group of both protocols ...
LATE_MS: Final = (3_000, 9_000)  # ... which is a classic group until then
# of a member that stopped cleanly, or was fenced by its static name
RESTART_MS: Final = (300, 3_000)
FORGER: Final = "liar"


@dataclass(slots=True, eq=False)
class MemberMachine:
    """A machine and its member."""

    plan: MemberPlan
    sim: SimNode
    is_liar: bool = False
    is_over: bool = False  # it is not restarted
    stop: asyncio.Event | None = None
    start_at_ms: int = 0  # -1: it runs
    resume_at_ms: int = -1  # end of a pause, -1: none


class MemberMachines:
    """All members of a run."""

    def __init__(
        self,
        world: SimWorld,
        cluster: Cluster,
        plan: GroupsPlan,
        group_history: GroupHistory,
        history: History,
        observed: Observations | None,
        entropy: SimEntropy,
    ) -> None:
        self.happened: Counter[str] = Counter()
        self._world = world
        self._cluster = cluster
        self._plan = plan
        self._group_history = group_history
        self._history = history
        self._observed = observed
        self._entropy = entropy
        self._next_ms = 0
        self._is_calm = False
        self._machines = [MemberMachine(member, world.node(member.name)) for member in plan.members]
        for group in plan.groups:
            forger = MemberPlan(
                name=f"{FORGER}-{group.name}", group=group.name, kind=group.members[0].kind
            )
            self._machines.append(MemberMachine(forger, world.node(forger.name), is_liar=True))

        for group in plan.groups:
            late = entropy.stream(f"late/{group.name}")
            if len({member.is_classic for member in group.members}) > 1 and late.chance(LATE):
                for machine in self._machines:
                    if machine.plan.group == group.name and not machine.plan.is_classic:
                        machine.start_at_ms = world.now_ms() + late.spread(*LATE_MS)

    @property
    def names(self) -> list[str]:
        """The machines' names."""
        return [machine.plan.name for machine in self._machines]

    def look(self) -> None:
        """Start members that are due; inject the next fault if it is due."""
        now_ms = self._world.now_ms()
        for machine in self._machines:
            self._look_at(machine, now_ms)
        if not self._is_calm and now_ms >= self._next_ms:
            self._happen(now_ms)
            self._next_ms = now_ms + self._entropy.spread(*self._plan.behaviour.pause_ms)

    def calm(self) -> None:
        """End all faults: every member runs, forged requests end."""
        self._is_calm = True
        for machine in self._machines:
            if machine.resume_at_ms >= 0:
                machine.resume_at_ms = 0
            if machine.start_at_ms >= 0:
                machine.start_at_ms = 0
            if machine.is_liar or machine.plan.is_twin:
                machine.is_over = True
                self._tell_to_stop(machine)

    def _look_at(self, machine: MemberMachine, now_ms: int) -> None:
        sim = machine.sim
        if 0 <= machine.resume_at_ms <= now_ms:
            machine.resume_at_ms = -1
            sim.resume()
        if sim.alive:
            return
        if sim.exit_error is not None:
            raise Violation(
                "MemberEnded", f"{machine.plan.name}: {sim.exit_error!r}"
            ) from sim.exit_error
        if machine.is_over:
            return
        if machine.start_at_ms < 0:
            machine.start_at_ms = now_ms + self._entropy.spread(*RESTART_MS)
        if now_ms >= machine.start_at_ms:
            machine.start_at_ms = -1
            sim.spawn(lambda runtime: self._run(machine, runtime))

    async def _run(self, machine: MemberMachine, runtime: Runtime) -> None:
        stop = machine.stop = asyncio.Event()
        group = self._plan.group(machine.plan.group)
        places = [place for place in self._cluster.options.places if place[0] in group.topics]
        setting = MemberContext(
            runtime=runtime,
            plan=machine.plan,
            group=group,
            behaviour=self._plan.behaviour,
            bootstrap=self._cluster.kafka_bootstrap,
            grpc_bootstrap=self._cluster.bootstrap,
            group_history=self._group_history,
            history=self._history,
            places=places,
            stop=stop,
            observed=self._observed,
        )
        await member_of(setting, lies=machine.is_liar).run()

    # --- faults
    # ------------------------------------------------------------------------------------

    def _happen(self, now_ms: int) -> None:
        """Inject a fault of a drawn member."""
        machine = self._machines[self._entropy.below(len(self._machines))]
        if machine.is_liar or not machine.sim.alive or machine.resume_at_ms >= 0:
            return
        span_ms = self._entropy.spread(*self._plan.behaviour.span_ms)
        acts: tuple[tuple[str, Callable[[MemberMachine, int], None]], ...] = (
            ("killed", self._kill),
            ("left", self._leave),
            ("hung", self._hang),
        )
        name, act = acts[self._entropy.below(len(acts))]
        act(machine, now_ms + span_ms)
        self.happened[name] += 1

    def _kill(self, machine: MemberMachine, until_ms: int) -> None:
        machine.sim.crash()
        self._group_history.process_ended(machine.plan.name)
        machine.start_at_ms = until_ms

    def _leave(self, machine: MemberMachine, until_ms: int) -> None:
        self._tell_to_stop(machine)

    def _hang(self, machine: MemberMachine, until_ms: int) -> None:
        machine.sim.pause()
        machine.resume_at_ms = until_ms

    def _tell_to_stop(self, machine: MemberMachine) -> None:
        stop = machine.stop
        if stop is None or not machine.sim.alive:
            return

        async def tell(runtime: Runtime) -> None:
            stop.set()

        machine.sim.attach(tell, name="stop")


def member_of(
    setting: MemberContext, *, lies: bool
) -> RequestForger | ClientMember | ConsumerMember | ClassicMember:
    """Return a member of its plan's kind, or a client that forges requests."""
    if lies:
        return RequestForger(setting)
    match setting.plan.kind:
        case MemberKind.OWN:
            return ClientMember(setting)
        case MemberKind.BEATING:
            return ConsumerMember(setting)
        case _:
            return ClassicMember(setting)
