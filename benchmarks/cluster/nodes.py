"""A cluster of quorumlog: node processes with their configurations, started, stopped and
observed."""

import asyncio
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.raft.processes import Member, Refused, cpu_s, free_ports

from quorumlog.server.addresses import id_text
from quorumlog.server.main import format_storage, load_config

START_S = 60.0
STOP_S = 60.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SERVE = """
import sys
from quorumlog.server.main import serve
sys.exit(serve(sys.argv[1], as_json=True))
"""
BOTH, CONTROLLER, BROKER = ("controller", "broker"), ("controller",), ("broker",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The roles and listeners of a node, constant over its restarts."""

    id: int
    roles: tuple[str, ...]
    grpc: str
    controller: str
    http: str
    kafka: str
    folder: Path

    @property
    def is_broker(self) -> bool:
        """Return True if it serves clients."""
        return "broker" in self.roles


class Nodes:
    """A cluster that runs within a `with` block."""

    def __init__(
        self,
        folder: Path,
        roles: Sequence[tuple[str, ...]] = (BOTH,) * 3,
        *,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """Nodes 1, 2, ... get these roles; `settings` go into every configuration."""
        ports = iter(free_ports(4 * len(roles)))
        self.places = {
            number: Place(
                id=number,
                roles=each,
                grpc=f"127.0.0.1:{next(ports)}",
                controller=f"127.0.0.1:{next(ports)}",
                http=f"127.0.0.1:{next(ports)}",
                kafka=f"127.0.0.1:{next(ports)}",
                folder=folder / f"n{number}",
            )
            for number, each in enumerate(roles, 1)
        }
        self._settings = settings or {}
        self._cluster_id = id_text(os.urandom(16))
        self._members: dict[int, Member] = {}
        self._stack = ExitStack()

    async def __aenter__(self) -> "Nodes":
        with self._stack:
            self._stack.callback(self._kill_all)
            await asyncio.to_thread(self._form)
            for number in self.places:
                self.start(number)
            for number in self.places:
                await self.wait_ready(number)
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    # --- starts and stops ----------------------------------------------------------------------

    def start(self, number: int) -> None:
        """Start a node on its existing directory, without waiting for it."""
        folder = self.places[number].folder
        command = [sys.executable, "-c", SERVE, str(folder / "node.toml")]
        self._members[number] = Member(command, folder, talks=False)

    def kill(self, number: int) -> None:
        """Kill a node (SIGKILL), as a crash does."""
        self._members[number].kill()

    def signal_kill(self, number: int) -> None:
        """Send SIGKILL without waiting for the end."""
        os.kill(self._members[number].pid, signal.SIGKILL)

    async def stop(self, number: int) -> float:
        """Stop a node (SIGTERM) and wait for its end; return the seconds."""
        began_s = time.perf_counter()
        member = self._members[number]
        member.stop()
        if not await asyncio.to_thread(member.is_stopped, STOP_S):
            raise Refused(f"node {number} did not stop in order: {member.complaints()}")
        return time.perf_counter() - began_s

    async def wait_ready(self, number: int) -> None:
        """Wait until the node is ready."""
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            if await self.is_ready(number):
                return
            await asyncio.sleep(0.05)
        raise Refused(
            f"node {number} is not ready after {START_S:.0f} s: "
            f"{self._members[number].complaints()}"
        )

    # --- state ---------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap addresses of clients."""
        return ",".join(place.grpc for place in self.places.values() if place.is_broker)

    async def is_ready(self, number: int) -> bool:
        """Return the result of /ready; a node without a response is not ready."""
        try:
            await self._get(number, "/ready")
        except (OSError, urllib.error.HTTPError):
            return False
        return True

    async def metrics(self, number: int) -> dict[str, float]:
        """Return the metrics' values by name with labels, as in the text format."""
        text = await self._get(number, "/metrics")
        rows = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in rows}

    async def active_controller(self) -> int:
        """Return the active controller once exactly one node reports it."""
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            found = []
            for number, place in self.places.items():
                if "controller" in place.roles:
                    try:
                        metrics = await self.metrics(number)
                    except OSError:
                        continue
                    if metrics.get("quorumlog_controller_active") == 1:
                        found.append(number)
            if len(found) == 1:
                return found[0]
            await asyncio.sleep(0.05)
        raise Refused(f"no single controller is active after {START_S:.0f} s")

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the ids of the running processes."""
        return tuple(member.pid for member in self._members.values())

    def cpu_s(self, number: int) -> float:
        """Return the CPU seconds of a node's current process."""
        return cpu_s([self._members[number].pid])

    def memory_bytes(self, number: int) -> int:
        """Return the resident memory of a node's current process."""
        fields = Path(f"/proc/{self._members[number].pid}/statm").read_text().split()
        return int(fields[1]) * PAGE_BYTES

    async def _get(self, number: int, path: str) -> str:
        address = f"http://{self.places[number].http}{path}"

        def get() -> str:
            with urllib.request.urlopen(address, timeout=START_S) as answer:
                text: str = answer.read().decode()
                return text

        return await asyncio.to_thread(get)

    # --- creation ------------------------------------------------------------------------------

    def _form(self) -> None:
        controllers = [each for each in self.places.values() if "controller" in each.roles]
        voters = [f"{each.id}@{each.controller}:{id_text(os.urandom(16))}" for each in controllers]
        for place in self.places.values():
            place.folder.mkdir(parents=True)
            others = [each.controller for each in controllers if each.id != place.id]
            rows: dict[str, Any] = {
                "node.id": place.id,
                "node.roles": list(place.roles),
                "cluster.id": self._cluster_id,
                "data.dir": str(place.folder / "data"),
                "listeners.grpc": place.grpc,
                "listeners.controller": place.controller,
                "listeners.http": place.http,
                "controller.bootstrap": others,
                **self._settings,
            }
            if place in controllers:
                rows["controller.voters"] = voters
            if place.is_broker:
                rows.setdefault("listeners.kafka", [place.kafka])
            path = place.folder / "node.toml"
            path.write_text("".join(f"{key} = {json.dumps(rows[key])}\n" for key in rows))
            format_storage(load_config(str(path)))

    def _kill_all(self) -> None:
        for member in self._members.values():
            member.kill()
