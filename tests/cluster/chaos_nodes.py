"""The nodes of a chaos run: formatting, starts, stops, faults and checks."""

import asyncio
import os
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Final

from tests.kit.node_process import NodeProcess

from quorumlog.runtime.files import RealFiles
from quorumlog.server.addresses import id_text
from quorumlog.storage.inspect.diff import EXPLAINED, DifferenceKind, LogDiff, diff
from quorumlog.storage.inspect.directory_check import check

from .chaos_links import Links, small_disk
from .fault_library import NodeFaults, NoFaultLibrary, build_fault_library, write_faults

DISK_MIB: Final = 512  # size of the separate disk of one node
CAN_LIMIT_MEMORY: Final = hasattr(resource, "prlimit")  # Linux
METADATA_LOG: Final = "__cluster_metadata-"
SETTINGS: Final[dict[str, object]] = {"replica.lag.time.max.ms": 5_000}


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of controllers and brokers; combined nodes have both roles."""

    controllers: int
    brokers: int
    is_combined: bool

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of all nodes."""
        count = self.brokers if self.is_combined else self.controllers + self.brokers
        return list(range(1, count + 1))

    @property
    def broker_numbers(self) -> list[int]:
        """Return the numbers of the brokers."""
        return self.numbers[-self.brokers :]

    @property
    def controller_numbers(self) -> list[int]:
        """Return the numbers of the controllers."""
        return self.numbers[: self.controllers]

    def roles(self, number: int) -> list[str]:
        """Return the roles of a node."""
        is_voter, is_broker = number in self.controller_numbers, number in self.broker_numbers
        return ["controller"] * is_voter + ["broker"] * is_broker


COMBINED: Final = Shape(3, 3, is_combined=True)
APART: Final = Shape(3, 3, is_combined=False)


@dataclass(slots=True)
class ChaosNodes:
    """All nodes of a run, by number."""

    folder: Path
    shape: Shape
    links: Links
    nodes: dict[int, NodeProcess] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)  # impossible faults, with the reasons
    small: int = 0  # the node with a disk that can be filled; 0: none
    starts: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)  # in addition to SETTINGS
    _excused: Counter[int] = field(default_factory=Counter)  # characters of a node's log
    _fault_library: str = ""  # preloaded into nodes; "": none

    def form(self) -> None:
        """Create and format all nodes."""
        if not self.links.can_cut:
            self.skipped.append("wires cut one by one: no network namespaces")
        if why := self.links.no_relay:
            self.skipped += [f"packet loss: {why}", f"network delay: {why}"]
        if not CAN_LIMIT_MEMORY:
            self.skipped.append("memory limits: no prlimit")
        self._fault_library = self._build_fault_library()
        cluster_id = id_text(os.urandom(16))
        addresses = {n: self.links.controller(n) for n in self.shape.controller_numbers}
        voters = [f"{n}@{address}:{id_text(os.urandom(16))}" for n, address in addresses.items()]
        last = self.shape.numbers[-1]
        if why := small_disk(self._place(last), DISK_MIB):
            self.skipped.append(f"full disks: {why}")
        else:
            self.small = last
        for number in self.shape.numbers:
            settings: dict[str, object] = {
                "node.id": number,
                "node.roles": self.shape.roles(number),
                "cluster.id": cluster_id,
                "data.dir": str(self._place(number) / "data"),
                "controller.bootstrap": [a for n, a in addresses.items() if n != number],
                **self.links.settings(number),
                **SETTINGS,
                **self.settings,
            }
            if number in addresses:
                settings["controller.voters"] = voters
            self.nodes[number] = NodeProcess(
                self.folder / f"node-{number}",
                settings=settings,
                prefix=self.links.prefix(number),
                environment=self._environment(number),
            )

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap addresses of clients."""
        return ",".join(self.links.grpc(number) for number in self.shape.broker_numbers)

    # --- starts and stops ----------------------------------------------------------------------

    async def start(self, *numbers: int) -> None:
        """Start nodes concurrently, and wait until all of them serve."""
        self.starts += len(numbers)
        await asyncio.gather(*(asyncio.to_thread(self.nodes[n].start) for n in numbers))

    async def stop(self, number: int) -> None:
        """Stop a node in order. Raise AssertionError if the exit code is not 0."""
        node = self.nodes[number]
        code = await asyncio.to_thread(node.stop)
        assert code == 0, f"node {number} ended with {code}: {node.complaints()[-5_000:]}"

    def kill_all(self) -> None:
        """Kill all nodes, paused ones too."""
        for node in self.nodes.values():
            with suppress(AssertionError):
                node.resume()
            node.kill()

    def check_up(self) -> None:
        """Raise AssertionError if a node has exited or wrote a traceback."""
        for number, node in self.nodes.items():
            code = node.ended()
            said = node.complaints()[self._excused[number] :]
            assert code is None, f"node {number} exited with {code}: {said[-5_000:]}"
            at = said.find("Traceback")
            assert at < 0, f"node {number} wrote a traceback: {said[max(0, at - 500) : at + 4_000]}"

    def excuse(self, number: int) -> None:
        """Accept every traceback that a node has written so far."""
        self._excused[number] = len(self.nodes[number].complaints())

    # --- disks ---------------------------------------------------------------------------------

    @property
    def can_fault(self) -> bool:
        """Return True if nodes can have the faults of the fault library."""
        return bool(self._fault_library)

    def set_faults(self, number: int, faults: NodeFaults) -> None:
        """Replace the faults of a node's disk and wall clock."""
        write_faults(self._faults_file(number), faults)

    def limit_memory(self, number: int, more_bytes: int) -> None:
        """Limit the memory of a node to its present data and `more_bytes`, until the process
        ends."""
        pid = self.nodes[number].pid
        status = Path(f"/proc/{pid}/status").read_text()
        data_kib = int(status.partition("VmData:")[2].split()[0])
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        resource.prlimit(pid, resource.RLIMIT_DATA, (data_kib * 1_024 + more_bytes, hard))

    def fill(self) -> None:
        """Fill the small disk completely."""
        with (self._place(self.small) / "balloon").open("wb", buffering=0) as balloon:
            for size in (1 << 20, 4096):
                with suppress(OSError):
                    while balloon.write(bytes(size)) == size:
                        pass

    def empty(self) -> None:
        """Free the space again."""
        (self._place(self.small) / "balloon").unlink()

    # --- checks of the data --------------------------------------------------------------------

    def judge_disks(self) -> dict[str, int]:
        """Run `check` and `diff` on the data directories of the stopped nodes. Raise AssertionError
        with the findings."""
        files = RealFiles()
        for node in self.nodes.values():
            report = check(files, node.data_dir)
            problems = [one for one in report.all_findings() if one.severity == "problem"]
            assert report.is_ok, f"{node.data_dir} has problems: {problems}"
        same = 0
        for group in (self.shape.broker_numbers, self.shape.controller_numbers):
            for a, b in combinations(group, 2):
                found = diff(files, self.nodes[a].data_dir, self.nodes[b].data_dir)
                logs = [log.as_dict() for log in found.logs if not _is_same(log)]
                lonely = [*found.only_in_a, *found.only_in_b]
                assert not [*logs, *lonely], f"nodes {a} and {b} differ: {logs} {lonely}"
                same += sum(log.same_count for log in found.logs)
        return {"directories": len(self.nodes), "records_equal": same}

    # --- inside --------------------------------------------------------------------------------

    def _place(self, number: int) -> Path:
        return self.folder / f"disk-{number}"

    def _faults_file(self, number: int) -> Path:
        return self.folder / f"faults-{number}"

    def _build_fault_library(self) -> str:
        library = self.folder / "faults.so"
        try:
            build_fault_library(library)
        except NoFaultLibrary as why:
            self.skipped += [f"{what}: {why}" for what in ("slow disks", "disk errors", "clocks")]
            return ""
        return str(library)

    def _environment(self, number: int) -> dict[str, str]:
        found = {"QUORUMLOG_LOG": "INFO"}
        if self.can_fault:
            path = self._faults_file(number)
            write_faults(path, NodeFaults())
            found |= {"LD_PRELOAD": self._fault_library, "FAULTS_FILE": str(path)}
        return found


def _is_same(log: LogDiff) -> bool:
    """Return True if two copies are equal. A metadata log may end earlier: its node had stopped,
    and the commit offset at that time is not stored. `check` has verified that it has no gap."""
    if log.is_same or not log.log.startswith(METADATA_LOG):
        return log.is_same
    left = [one for one in log.differences if one.why not in EXPLAINED]
    return len(left) == 1 and left[0].why is DifferenceKind.MISSING


async def eventually(look: Callable[[], Awaitable[bool]], *, within_s: float, why: str) -> float:
    """Wait until a condition holds; return the seconds. Raise AssertionError with `why` after
    `within_s`."""
    began_s = time.monotonic()
    while not await look():
        assert time.monotonic() < began_s + within_s, f"not within {within_s:.0f} s: {why}"
        await asyncio.sleep(0.1)
    return time.monotonic() - began_s
