"""The fault injector of simulated clusters: faults are drawn, injected at their time, and undone.

Each class of faults is on or off for a whole run, and faults overlap: a machine may be paused
behind a barrier with a full disk.
"""

import heapq
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.links import Direction, apart, between

from ..cluster.machines import ClusterMachine, SimulatedCluster
from ..shrink.plan import PlannedEvent
from ..shrink.script import script_of

STEP_MS: Final = 50
EXCUSE_MS: Final = 3_000  # after a repair of a device, its errors may still be in flight

M = TypeVar("M", bound=ClusterMachine)
F = TypeVar("F", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan(Generic[F]):
    """The classes, frequency and duration of faults."""

    faults: tuple[F, ...]  # enabled classes
    pause_ms: tuple[int, int]  # between two faults
    span_ms: tuple[int, int]  # duration of a fault


class FaultInjector(ABC, Generic[M, F]):
    """Injects drawn faults into a cluster."""

    _cluster: SimulatedCluster[M]

    def __init__(
        self,
        cluster: SimulatedCluster[M],
        plan: FaultPlan[F],
        entropy: SimEntropy,
        clients: list[str],
    ) -> None:
        self._cluster = cluster
        self._script = script_of(cluster.world)
        if self._script is not None:
            self._script.adopt("faults", entropy)
        self.happened: Counter[str] = Counter()
        self._plan = plan
        self._entropy = entropy
        self._clients = clients  # machines of the clients
        self._due: list[tuple[int, int, Callable[[], object]]] = []  # (at, order, undo)
        self._sequence = 0
        self._next_ms = 0
        self._voters_check_ms = 0

    def step(self) -> None:
        """Undo expired faults, and inject the next one if it is due."""
        now_ms, plan = self._now_ms(), self._plan
        while self._due and self._due[0][0] <= now_ms:
            heapq.heappop(self._due)[2]()
        self.before_fault(now_ms)
        for _ in self.due_faults("fault", is_due=bool(plan.faults) and now_ms >= self._next_ms):
            fault = plan.faults[self._entropy.below(len(plan.faults))]
            if self._script is not None:
                self._script.rename(f"fault {fault}")
            if self.inject(fault):
                self.happened[fault] += 1
            self._next_ms = now_ms + self._entropy.spread(*plan.pause_ms)

    def due_faults(self, key: str, *, is_due: bool) -> Iterator[None]:
        """Yield once for each fault to inject now: one if it `is_due`, or those of the run's
        plan."""
        script, now_us = self._script, self._now_ms() * 1000
        if script is not None and script.is_replaying:
            for event in script.due(now_us, prefix=key):
                script.begin(event)
                yield
                script.end()
        elif is_due and script is not None:
            script.begin(PlannedEvent(at_us=now_us, key=key))
            yield
            script.end()
        elif is_due:
            yield

    def end_all(self, repaired: list[M]) -> None:
        """Undo all faults; of the machines, only `repaired` are repaired and resumed."""
        while self._due:
            heapq.heappop(self._due)[2]()
        self._cluster.world.fabric.barriers.open_all()
        for machine in repaired:
            machine.sim.crash_at(None)
            self._cluster.resume(machine)
            machine.sim.device.faults.clear()
            machine.sim.device.disk.capacity_bytes = None
            machine.sim.machine.device_slow_ms = 0

    @abstractmethod
    def before_fault(self, now_ms: int) -> None:
        """Do what is due before the next fault is injected."""

    @abstractmethod
    def inject(self, fault: F) -> bool:
        """Inject a fault. Return True if it took effect."""

    @abstractmethod
    def draw_target(self) -> M:
        """Draw the machine of a fault; leaders are preferred."""

    # --- the time of faults --------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._cluster.world.now_ms()

    def _later(self, undo: Callable[[], None]) -> None:
        """Schedule the end of a fault."""
        self._undo_at(self._now_ms() + self._span_ms(), undo)

    def _undo_at(self, at_ms: int, undo: Callable[[], object]) -> None:
        self._sequence += 1
        heapq.heappush(self._due, (at_ms, self._sequence, undo))

    def _span_ms(self) -> int:
        return self._entropy.spread(*self._plan.span_ms)

    # --- processes and devices -----------------------------------------------------------------

    def _pause(self, machine: M) -> None:
        self._cluster.pause(machine)
        self._later(lambda: self._cluster.resume(machine))

    def _slow_down(self, machine: M) -> None:
        hardware = machine.sim.machine
        hardware.device_slow_ms = self._entropy.spread(2, 400)
        self._later(lambda: setattr(hardware, "device_slow_ms", 0))

    def _fill_disk(self, machine: M, repair: Callable[[], None]) -> None:
        disk, spare = machine.sim.device.disk, self._entropy.below(20_000)
        disk.capacity_bytes = disk.used_bytes() + spare
        machine.excuse = "full"
        self._later(repair)

    def _mend_device(self, machine: M) -> bool:
        """End the device's faults. Return True if an operation failed because of them."""
        device = machine.sim.device
        has_failed = machine.excuse != "full" and not device.faults
        device.faults.clear()
        device.disk.capacity_bytes = None
        machine.excuse_ends_ms = self._now_ms() + EXCUSE_MS
        return has_failed

    # --- the network ---------------------------------------------------------------------------

    def _fail_network(self, fault: F) -> bool:
        """Inject a fault of the network that all clusters have, by its name."""
        match fault.value:
            case "isolate":
                return self._isolate()
            case "split":
                return self._split()
            case "bridge":
                one, other = self._two()
                return self._close([one], [other])
            case "clog":
                return self._clog()
            case "break":
                return self._cluster.world.fabric.break_between(*self._two()) > 0
            case name:
                raise AssertionError(f"{name} is no fault of the network")

    def _isolate(self) -> bool:
        one = self.draw_target().name
        return self._close([one], [name for name in self._names() if name != one])

    def _split(self) -> bool:
        names = self._names()
        left = [name for name in names if self._entropy.chance(0.5)]
        return self._close(left, [name for name in names if name not in left])

    def _clog(self) -> bool:
        barriers, names = self._cluster.world.fabric.barriers, self._names()
        directions = between([name for name in names if self._entropy.chance(0.5)], names)
        barriers.clog(directions, self._entropy.spread(20, 2_000))
        self._later(lambda: barriers.clog(directions, 0))
        return True

    def _close(self, some: list[str], others: list[str]) -> bool:
        """Cut machines off from others, in both directions or in one of them."""
        barriers, directions = self._cluster.world.fabric.barriers, self._one_way(some, others)
        barriers.close(directions)
        self._later(lambda: barriers.open(directions))
        return True

    def _one_way(self, some: list[str], others: list[str]) -> list[Direction]:
        kind = self._entropy.below(4)
        if kind == 0:
            return between(some, others)
        return between(others, some) if kind == 1 else apart(some, others)

    def _two(self) -> tuple[str, str]:
        names = [machine.name for machine in self._cluster.machines]
        one = names.pop(self._entropy.below(len(names)))
        return one, names[self._entropy.below(len(names))]

    def _names(self) -> list[str]:
        return [machine.name for machine in self._cluster.machines] + self._clients
