"""The links between the nodes of a chaos run, which can be cut and impaired.

If this machine permits it, each node has a network namespace of its own, connected to a hub that
forwards packets. The hub drops packets from one node to another, each direction separately and
without a reset, as a broken switch does. Otherwise a forwarding proxy runs before each listener of
a node; it can only hold all traffic of one direction, from every source, and not the traffic
between voters. The hub also sends the packets of an impaired node through a relay
(`packet_relay.py`). This needs no kernel module besides TUN: netem is often missing, and netfilter
cannot delay or reorder packets.

Members are numbers: 0 is this process, with the clients; the others are nodes.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol

from tests.kit.node_process import free_port

from quorumlog.testing import Direction, ForwardingProxy

from . import packet_relay
from .packet_relay import Impairment

CLIENTS: Final = 0
SANDBOX: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
SANDBOX_MARK: Final = "QUORUMLOG_CHAOS_SANDBOX"
"""Set in a process with its own namespaces, which end with the process."""

RELAY: Final = "relay"  # the hub's TUN device
RELAY_TABLE: Final = "77"  # the routing table with this device as its only route

Cut = tuple[int, int]  # (source, target): packets from source to target are dropped


class Links(Protocol):
    """The links of a run. Enter before the nodes start, exit after they ended."""

    can_cut: bool  # between any two members, each direction separately
    no_relay: str  # the reason why packets cannot be impaired; "": they can

    def __enter__(self) -> "Links": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def prefix(self, number: int) -> Sequence[str]:
        """Return the command prefix that runs a node in its network namespace."""

    def settings(self, number: int) -> dict[str, object]:
        """Return the listeners and advertised addresses of a node."""

    def grpc(self, number: int) -> str:
        """Return the address of a node's gRPC listener for clients."""

    def controller(self, number: int) -> str:
        """Return the address of a node's controller listener for other nodes."""

    def cut(self, cuts: Iterable[Cut]) -> None:
        """Drop all packets in these directions."""

    def impair(self, number: int, impairment: Impairment) -> None:
        """Delay, lose or reorder the packets from and to a member."""

    def heal(self) -> None:
        """Remove all cuts and impairments."""


def is_permitted() -> bool:
    """Return True if this machine permits network namespaces. The test leaves nothing behind."""
    script = (
        "ip link add quorumlog-a type veth peer name quorumlog-b && ip link set lo up && "
        "ip rule add from 10.0.0.1 to 10.0.0.2 blackhole && "
        "echo 1 > /proc/sys/net/ipv4/ip_forward && nsenter --net=/proc/self/ns/net true"
    )
    try:
        tried = subprocess.run(
            [*SANDBOX, "sh", "-c", script], capture_output=True, timeout=120, check=False
        )
    except OSError:
        return False
    return tried.returncode == 0


def enter_sandbox(module: str, arguments: Sequence[str]) -> int | None:
    """Run the module again in its own namespaces and return the exit code. Return None in that
    process, and if namespaces are not permitted."""
    if SANDBOX_MARK in os.environ or not is_permitted():
        return None
    command = [*SANDBOX, sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env={**os.environ, SANDBOX_MARK: "1"}, check=False).returncode


def links_for(numbers: Sequence[int]) -> Links:
    """Return namespace links if this process has namespaces, otherwise proxy links."""
    return NamespaceLinks(numbers) if SANDBOX_MARK in os.environ else ProxyLinks(numbers)


class NamespaceLinks:
    """One namespace for each node and one for the hub; this process, with the clients, has
    another."""

    can_cut = True

    def __init__(self, numbers: Sequence[int]) -> None:
        self.no_relay = ""
        self._numbers = list(numbers)
        self._holders: dict[int, subprocess.Popen[bytes]] = {}  # they keep the namespaces open
        self._hub: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self._cuts: set[Cut] = set()  # only for membership tests
        self._impaired = CLIENTS  # the member with relayed packets; 0: none
        self._relay: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "NamespaceLinks":
        with self._stack:
            self._hub = self._hold()
            self._on_hub("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            self._on_hub("ip", "link", "set", "lo", "up")
            _run("ip", "link", "set", "lo", "up")
            self._wire(CLIENTS, str(os.getpid()), ())
            for number in self._numbers:
                holder = self._holders[number] = self._hold()
                self._wire(number, str(holder.pid), self.prefix(number))
            self.no_relay = self._make_relay_device()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def prefix(self, number: int) -> Sequence[str]:
        return ("nsenter", f"--net=/proc/{self._holders[number].pid}/ns/net", "--")

    def settings(self, number: int) -> dict[str, object]:
        return {
            "listeners.grpc": self.grpc(number),
            "listeners.controller": self.controller(number),
            "allow.insecure.listeners": True,
        }

    def grpc(self, number: int) -> str:
        return f"{_host(number)}:9094"

    def controller(self, number: int) -> str:
        return f"{_host(number)}:9093"

    def cut(self, cuts: Iterable[Cut]) -> None:
        for cut in sorted(set(cuts) - self._cuts):
            self._cuts.add(cut)
            self._rule("add", cut)

    def impair(self, number: int, impairment: Impairment) -> None:
        program = [sys.executable, packet_relay.__file__, RELAY, *impairment.arguments()]
        self._relay = self._start_on_hub(*program)
        self._impaired = number
        self._relay_rules("add")

    def heal(self) -> None:
        for cut in sorted(self._cuts):
            self._rule("del", cut)
        self._cuts.clear()
        if self._relay is not None:
            self._relay_rules("del")
            assert self._relay.poll() is None, "the relay has ended"
            _end(self._relay)
            self._relay = None

    def _rule(self, verb: str, cut: Cut) -> None:
        source, target = (_host(member) for member in cut)
        self._on_hub("ip", "rule", verb, "from", source, "to", target, "blackhole")

    def _make_relay_device(self) -> str:
        """Make the device that relayed packets enter and leave. Return the reason if the machine
        has none, else ""."""
        try:
            self._on_hub("ip", "tuntap", "add", "dev", RELAY, "mode", "tun")
        except AssertionError as error:
            return str(error).strip()
        self._on_hub("ip", "link", "set", RELAY, "txqueuelen", "10000", "up")
        self._on_hub("ip", "route", "add", "default", "dev", RELAY, "table", RELAY_TABLE)
        self._on_hub("ip", "rule", "add", "pref", "100", "iif", RELAY, "lookup", "main")
        return ""

    def _relay_rules(self, verb: str) -> None:
        """Start or stop the relaying of all packets from and to the impaired member."""
        for way in ("from", "to"):
            rule = ("pref", "200", way, _host(self._impaired), "lookup", RELAY_TABLE)
            self._on_hub("ip", "rule", verb, *rule)

    def _hold(self) -> subprocess.Popen[bytes]:
        """Start an idle process in a new network namespace."""
        return self._start("unshare", "--net", "sh", "-c", "echo && exec sleep infinity")

    def _start_on_hub(self, *command: str) -> subprocess.Popen[bytes]:
        return self._start(*self._enter_hub(), *command)

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a process and wait for its first line. It ends no later than the links."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._stack.callback(_end, process)
        assert process.stdout is not None
        assert process.stdout.readline(), f"{' '.join(command)}: ended"
        return process

    def _on_hub(self, *command: str) -> None:
        _run(*self._enter_hub(), *command)

    def _enter_hub(self) -> Sequence[str]:
        assert self._hub is not None, "the links are not entered"
        return ("nsenter", f"--net=/proc/{self._hub.pid}/ns/net", "--")

    def _wire(self, number: int, pid: str, prefix: Sequence[str]) -> None:
        """Connect a member to the hub."""
        here, hub = _host(number), _host(number, 1)
        link = ("ip", "link", "add", f"member{number}", "type", "veth")
        self._on_hub(*link, "peer", "name", "hub", "netns", pid)
        self._on_hub("ip", "address", "add", f"{hub}/30", "dev", f"member{number}")
        self._on_hub("ip", "link", "set", f"member{number}", "up")
        _run(*prefix, "ip", "address", "add", f"{here}/30", "dev", "hub")
        _run(*prefix, "ip", "link", "set", "hub", "up")
        _run(*prefix, "ip", "link", "set", "lo", "up")
        _run(*prefix, "ip", "route", "add", "default", "via", hub)


class ProxyLinks:
    """A proxy before each listener of each node. A cut between two nodes cuts them from all
    others."""

    can_cut = False
    no_relay = "no network namespaces"

    def __init__(self, numbers: Sequence[int]) -> None:
        self._ports = {number: (free_port(), free_port()) for number in numbers}
        self._grpc = {n: ForwardingProxy(_local(grpc)) for n, (grpc, _) in self._ports.items()}
        self._controller = {
            n: ForwardingProxy(_local(port)) for n, (_, port) in self._ports.items()
        }
        self._stack = ExitStack()

    def __enter__(self) -> "ProxyLinks":
        with self._stack:
            for proxy in self._all():
                self._stack.enter_context(proxy)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def prefix(self, number: int) -> Sequence[str]:
        return ()

    def settings(self, number: int) -> dict[str, object]:
        grpc, controller = self._ports[number]
        return {
            "listeners.grpc": _local(grpc),
            "listeners.controller": _local(controller),
            "advertised.grpc": self.grpc(number),
            "advertised.controller": self.controller(number),
        }

    def grpc(self, number: int) -> str:
        return self._grpc[number].address

    def controller(self, number: int) -> str:
        return self._controller[number].address

    def cut(self, cuts: Iterable[Cut]) -> None:
        for source, target in cuts:
            for number, way in ((target, Direction.TO_SERVER), (source, Direction.TO_CLIENT)):
                if number != CLIENTS:
                    self._grpc[number].hold(way)
                    self._controller[number].hold(way)

    def impair(self, number: int, impairment: Impairment) -> None:
        raise AssertionError(f"packets of node {number} cannot be impaired: {self.no_relay}")

    def heal(self) -> None:
        for proxy in self._all():
            proxy.release()

    def _all(self) -> list[ForwardingProxy]:
        return [*self._grpc.values(), *self._controller.values()]


def _host(number: int, at: int = 2) -> str:
    """Return the address of a member's end of its link; with `at` 1 the address of the hub's
    end."""
    return f"10.77.{number}.{at}"


def _local(port: int) -> str:
    return f"127.0.0.1:{port}"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def small_disk(folder: Path, size_mib: int) -> str:
    """Create a folder and mount a memory file system of this size there; it ends with the
    namespaces of this process. Return the reason if that is impossible, otherwise ""."""
    if SANDBOX_MARK not in os.environ:
        return "no mount namespace"
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""
