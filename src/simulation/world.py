"""The simulated world: nodes on machines, one loop, one network, one event log, one seed.

A scenario is synchronous code that drives it: `world.node("n1").spawn(main)`,
`world.run_until(...)`, `node.power_cut()`, `node.restart()`. All draws come from the seed's
streams.
"""

import gc
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..runtime import Runtime
from .disk import Disk
from .entropy import SimEntropy
from .events import EventLog
from .fault_options import ActiveFaults, Faults
from .files import CrashPoint, Device, SimFiles
from .links import Fabric
from .loop import NS_PER_MS, SimLoop, leak
from .network import SimNetwork
from .process import Machine, Process
from .tasks import SimTasks

if TYPE_CHECKING:
    import asyncio


TICK_MS: Final = (
    0.0005  # 1.001 s times 1000 is a hair under 1001: a float must not cost a millisecond
)


class SimClock:
    """Clocks of a process's machine. Reads are not events."""

    def __init__(self, loop: SimLoop, process: Process) -> None:
        self._loop = loop
        self._process = process

    def now_ms(self) -> int:
        """Return monotonic milliseconds, equal to int(loop.time() * 1000) on this node."""
        self._process.check()
        return int(self._loop.time_of(self._process) * 1000 + TICK_MS)

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970 of this machine's UTC clock."""
        self._process.check()
        return self._process.machine.utc_ms(self._loop.now_ns)

    def busy_us(self) -> int:
        """Return the virtual time in microseconds. While code runs it advances only by writes to a
        slow device."""
        self._process.check()
        waited_us = self._process.machine.waited_ms * 1_000
        return int(self._loop.time_of(self._process) * 1_000_000) + waited_us


WALL_MS: Final = 1_735_689_600_000  # 2025-01-01 UTC: the start of every run
Main = Callable[[Runtime], Coroutine[Any, Any, Any]]


class NotReached(AssertionError):
    """The awaited condition of a scenario did not hold within its virtual time."""


class SimNode:
    """A node as scenarios control it: one machine, and its processes one after another."""

    def __init__(self, world: "SimWorld", name: str) -> None:
        self._world = world
        self.name = name
        entropy = world.entropy.stream(f"machine/{name}")
        drift_max = world.faults.options.drift_ppm_max
        self.machine = Machine(
            name,
            drift_ppm=entropy.below(2 * drift_max + 1) - drift_max,
            base_ns=entropy.below(1_000_000) * 1_000_000_000,
            wall_ms=WALL_MS,
        )
        self.device = Device(Disk(), entropy.stream("device"), boot_id=_boot_id(entropy, 1))
        self._entropy = entropy
        self._main: Main | None = None
        self.process: Process | None = None  # the last one, running or dead
        self.root: asyncio.Task[Any] | None = None  # its main task
        self.stops: list[str] = []  # arguments of stop_node()
        self.killed = False  # the last process was ended by the scenario or a crash point ...
        self.exit_error: BaseException | None = None  # ... or ended by itself with this error

    @property
    def alive(self) -> bool:
        """True if a process runs or is paused."""
        return self.process is not None and self.process.alive

    def runtime(self) -> Runtime:
        """Return the ports of the running process."""
        assert self.process is not None, f"{self.name} was never started"
        assert self.process.alive, f"{self.process} is dead"
        return self._runtime

    def spawn(self, main: Main) -> "asyncio.Task[Any]":
        """Start a process with `main(runtime)` as its root task; it exits when that task ends."""
        self._main = main
        process = self.start_process()
        self.root = self.attach(main, name="main")
        self.root.add_done_callback(lambda task: self._exited(process, task))
        return self.root

    def start_process(self) -> Process:
        """Start a process without a task; `attach` adds tasks."""
        assert not self.alive, f"{self.process} is alive"
        if not self.machine.powered:
            self._power_on()
        number = 1 if self.process is None else self.process.incarnation + 1
        process = self.process = Process(self.name, self.machine, number)
        self._runtime = self._world.runtime_of(process, self)
        self.killed, self.exit_error = False, None
        self._world.events.record(process, "start", self.device.boot_id)
        return process

    def attach(self, main: Main, *, name: str) -> "asyncio.Task[Any]":
        """Run another task inside the running process."""
        runtime, process = self.runtime(), self.process
        assert process is not None, f"{self.name} was never started"
        return self._world.loop.create_task(
            main(runtime), name=f"{process}/{name}", context=process.context()
        )

    def restart(self, main: Main | None = None) -> "asyncio.Task[Any]":
        """Start the next process, with the same `main` unless another is given."""
        again = main or self._main
        assert again is not None, f"{self.name} was never started"
        return self.spawn(again)

    def crash(self) -> None:
        """Kill the process: no clean-up runs, the disk loses nothing."""
        assert self.process is not None, f"{self.name} was never started"
        if self.process.alive:
            self.killed = True
            self._world.events.record(self.process, "crash", "")
            self._world.kill(self.process, silent=None)

    def power_cut(self) -> None:
        """Cut the machine's power: the process dies, unsynced changes may be lost."""
        assert self.machine.powered, f"{self.name} has no power already"
        if self.process is not None and self.process.alive:
            self.killed = True
            self._world.events.record(self.process, "power-cut", "")
            self._world.kill(self.process, silent=True)
        self.machine.powered = False
        self.device.locks.clear()
        self.device.disk.cut_power(self._entropy.stream(f"power-cut/{self.machine.boots}"))

    def pause(self) -> None:
        """Pause the process: handles that fall due run after resume."""
        assert self.process is not None, f"{self.name} was never started"
        self._world.events.record(self.process, "pause", "")
        self._world.loop.pause(self.process)

    def resume(self) -> None:
        """Resume a paused process."""
        assert self.process is not None, f"{self.name} was never started"
        self._world.events.record(self.process, "resume", "")
        self._world.loop.resume(self.process)

    def crash_at(self, point: CrashPoint | None) -> None:
        """Arm (or clear) a crash at a future file operation."""
        self.device.arm(point)

    def wipe(self) -> None:
        """Replace the disk by an empty one; no process may run."""
        assert not self.alive, f"{self.process} is alive"
        self.device.disk = Disk(capacity_bytes=self.device.disk.capacity_bytes)

    def jump_wall_ms(self, by_ms: int) -> None:
        """Move the machine's UTC clock forwards or backwards."""
        self.machine.wall_ms += by_ms

    def _power_on(self) -> None:
        base_ns = self._entropy.stream(f"boot/{self.machine.boots}").below(1_000) * 1_000_000_000
        self.machine.boot(self._world.loop.now_ns, base_ns=base_ns)
        self.device.boot_id = _boot_id(self._entropy, self.machine.boots)
        self._world.fabric.on_boot(self.machine)

    def _exited(self, process: Process, task: "asyncio.Task[Any]") -> None:
        """End the process when its root task ends, as the real runner does."""
        if process.alive:
            self.exit_error = None if task.cancelled() else task.exception()
            self._world.events.record(process, "exit", type(self.exit_error).__name__)
            self._world.kill(process, silent=False)


class SimWorld:
    """A run. Leaving the context ends it: no code of its nodes runs afterwards."""

    def __init__(
        self,
        seed: int,
        *,
        faults: Faults | None = None,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.faults = ActiveFaults(Faults() if faults is None else faults)
        self.loop = SimLoop()  # type: ignore[abstract]  # the methods left out must raise
        self.entropy = SimEntropy(f"seed/{seed}")
        self.events = EventLog(lambda: self.loop.now_ns, trace=trace)
        self.fabric = Fabric(self.loop, self.entropy.stream("network"), self.faults, self.events)
        self._nodes: dict[str, SimNode] = {}
        self._collecting = gc.isenabled()

    def __enter__(self) -> "SimWorld":
        gc.disable()  # a collection would run finalisers at a time that the seed does not determine
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.loop.close()
        leak(self.loop.retained)
        if self._collecting:
            gc.enable()

    def node(self, name: str) -> SimNode:
        """Return the node of a name, created at first use."""
        if name not in self._nodes:
            self._nodes[name] = SimNode(self, name)
        return self._nodes[name]

    def now_ms(self) -> int:
        """Return the virtual milliseconds since the start."""
        return self.loop.now_ns // NS_PER_MS

    def event_hash(self) -> str:
        """Return the digest of all events so far."""
        return self.events.hash()

    def run_until(
        self,
        condition: "Callable[[], bool] | asyncio.Future[Any]",
        *,
        virtual_ms: int,
        why: str = "",
    ) -> None:
        """Run until the condition holds or the future is done.

        Raises NotReached after `virtual_ms`, Deadlock, and errors of callbacks outside of tasks.
        """
        done = condition if callable(condition) else condition.done
        end_ns = self.loop.now_ns + virtual_ms * NS_PER_MS
        if self.loop.run_while(lambda: not done(), end_ns=end_ns):
            wanted = why or getattr(condition, "__name__", repr(condition))
            raise NotReached(f"not within {virtual_ms} ms: {wanted}\n{self.loop.suspended()}")

    def run_for(self, virtual_ms: int, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Run for a span of virtual time, or until `unless` holds."""
        end_ns = self.loop.now_ns + virtual_ms * NS_PER_MS
        self.loop.call_at_ns(end_ns, None, lambda: None)  # idle nodes are no deadlock here
        self.loop.run_while(lambda: self.loop.now_ns < end_ns and not unless(), end_ns=end_ns)

    # --- called by ports and nodes ---

    def runtime_of(self, process: Process, node: SimNode) -> Runtime:
        """Create the five ports of a new process."""
        entropy = self.entropy.stream(f"node/{process.name}/{process.incarnation}")
        return Runtime(
            clock=SimClock(self.loop, process),
            entropy=entropy.stream("node"),
            tasks=SimTasks(
                self.loop,
                process,
                entropy.stream("lanes"),
                self.faults,
                record=lambda what, detail: self.events.record(process, what, detail),
                stop=lambda reason: self._stop(process, reason),
            ),
            files=SimFiles(
                self.events, process, node.device, self.faults, crash_now=self._crash_now
            ),
            network=SimNetwork(self.fabric, process),
        )

    def _crash_now(self, process: Process, power: bool) -> None:
        """Kill the process (or cut its machine's power) during one of its own operations."""
        node = self._nodes[process.name]
        if power:
            node.power_cut()
        else:
            node.crash()

    def kill(self, process: Process, *, silent: bool | None) -> None:
        """End a process: its code never runs again. Its connections are reset or (silent) fall
        silent; None draws which."""
        process.alive = False
        self.loop.retain_tasks(process)
        self.fabric.on_death(process, silent=silent)

    def _stop(self, process: Process, reason: str) -> None:
        process.stop_reason = reason
        self._nodes[process.name].stops.append(reason)
        self.events.record(process, "stop-node", reason)
        self.kill(process, silent=False)


def _boot_id(entropy: SimEntropy, boots: int) -> str:
    return entropy.stream(f"boot-id/{boots}").token(16).hex()


T = TypeVar("T")

VIRTUAL_MS_MAX: Final = 3_600_000  # an hour of virtual time is a test that hangs
CLEAN_UP_MS: Final = 60_000


def run(
    main: Callable[[Runtime], Coroutine[Any, Any, T]],
    *,
    seed: int = 0,
    virtual_ms: int = VIRTUAL_MS_MAX,
) -> T:
    """Run `main(runtime)` on one node without faults and return its result.

    Tasks that are left are cancelled, newest first, as the real runner does. Raises the errors of
    `main`, Deadlock, and NotReached after `virtual_ms`.
    """
    with SimWorld(seed) as world:
        node = world.node("node")
        node.start_process()
        task = node.attach(main, name="main")
        world.run_until(task, virtual_ms=virtual_ms, why="the end of main")
        left = world.loop.pending_tasks()
        for straggler in reversed(left):
            straggler.cancel()
        world.run_until(
            lambda: all(straggler.done() for straggler in left),
            virtual_ms=CLEAN_UP_MS,
            why="the end of the cancelled tasks",
        )
        result: T = task.result()
    return result
