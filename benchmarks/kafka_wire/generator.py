"""Compiles the two C programs, once for each version of their source, and runs the generator."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.kafka_wire import dirty_pages
from benchmarks.kafka_wire.artifacts import cache
from benchmarks.kafka_wire.batches import Plan
from benchmarks.raft.processes import Refused

HERE = Path(__file__).parent
MISSING = "the load generator needs Linux and a C compiler (cc): `apt install gcc`"
DRAIN_S = 60.0
PATIENCE_S = 30.0


def is_here() -> bool:
    """Return True if the programs can be compiled and run."""
    return sys.platform == "linux" and shutil.which("cc") is not None


def program(name: str, *, tls: bool = False) -> Path:
    """Return the compiled program of a source file of this folder. With `tls` it needs the headers
    of OpenSSL."""
    source = HERE / f"{name}.c"
    version = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    path = cache() / "programs" / f"{name}-{'tls-' if tls else ''}{version}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        command = ["cc", "-O2", "-Wall", "-Wextra", "-o", str(partial), str(source)]
        if tls:
            command += ["-DTLS", "-lssl", "-lcrypto"]
        subprocess.run(command, check=True)
        partial.rename(path)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The durations of a load."""

    warm_s: float
    measure_s: float
    cap_bytes: int = 0  # of batches, ends the measured phase; an eighth of it the warm-up; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Microseconds after the due time of requests; None without any."""

    count: int
    p50: int | None = None
    p90: int | None = None
    p99: int | None = None
    p999: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The measured part of a load."""

    seconds: float
    bytes: int  # of batches, acknowledged or fetched
    requests: int
    broker_cpu_s: float
    client_cpu_s: float
    machine_cpu_s: float  # of all processes on this machine, including those two
    other_sizes: int  # fetch responses with another number of bytes than requested
    unanswered: int
    written_bytes: int = 0  # written back by the kernel, from the start to the end of the generator
    acknowledged: Latency = field(default_factory=lambda: Latency(count=0))
    delivered: Latency = field(default_factory=lambda: Latency(count=0))

    @property
    def bytes_per_s(self) -> float:
        """Return the rate of batches."""
        return self.bytes / self.seconds

    @property
    def mb_per_s(self) -> float:
        """Return the megabytes (10^6 bytes) per second."""
        return self.bytes_per_s / 1e6

    @property
    def cores(self) -> float:
        """Return the cores that the brokers used."""
        return self.broker_cpu_s / self.seconds

    @property
    def client_cores(self) -> float:
        """Return the share of a core that the generator's thread used."""
        return self.client_cpu_s / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        """Return the CPU seconds of the brokers for 10^9 bytes."""
        return self.broker_cpu_s / self.bytes * 1e9

    @property
    def client_cpu_s_per_gb(self) -> float:
        """Return the CPU seconds of the generator for 10^9 bytes."""
        return self.client_cpu_s / self.bytes * 1e9

    @property
    def disturbance(self) -> float:
        """Return the cores that other processes used."""
        others_s = self.machine_cpu_s - self.broker_cpu_s - self.client_cpu_s
        return max(0.0, others_s / self.seconds)


def run(
    plan: Plan,
    *,
    pids: Sequence[int],
    phases: Phases,
    interval_s: float | None = None,
    tls_ports: Mapping[int, int] | None = None,
) -> Load:
    """Run a load on brokers; `interval_s` is the interval of requests that are sent by the clock;
    `tls_ports` has the TLS ports by plain ports if the load uses TLS. Without a response in the
    measured time, the run is repeated with four times as long, up to `PATIENCE_S`.

    Raise Refused for an invalid response or an error code.
    """
    while True:
        written = dirty_pages.written_bytes()
        said = _said(
            plan, pids=pids, phases=phases, interval_s=interval_s, tls_ports=tls_ports or {}
        )
        if said["errors"] or said["bytes"] or phases.measure_s > PATIENCE_S:
            said["written_bytes"] = dirty_pages.written_bytes() - written
            return load_of(said)
        phases = replace(phases, measure_s=4 * phases.measure_s)


def _said(
    plan: Plan,
    *,
    pids: Sequence[int],
    phases: Phases,
    interval_s: float | None,
    tls_ports: Mapping[int, int],
) -> dict[str, Any]:
    """Run the generator once; return its output."""
    with tempfile.NamedTemporaryFile(prefix="quorumlog-frames-") as file:
        file.write(plan.frames)
        file.flush()
        nanoseconds = (int(each * 1e9) for each in (phases.warm_s, phases.measure_s, DRAIN_S))
        lines = [
            f"frames {file.name}",
            f"phases {' '.join(map(str, nanoseconds))} {phases.cap_bytes}",
            *(f"pid {pid}" for pid in pids),
            *([] if interval_s is None else [f"start {int(interval_s * 1e9)}"]),
            *(f"tls {plain} {encrypted}" for plain, encrypted in tls_ports.items()),
            *plan.lines,
        ]
        process = subprocess.run(
            [program("load", tls=bool(tls_ports))],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=phases.warm_s + phases.measure_s + 2 * DRAIN_S,
        )
    if process.returncode:
        raise Refused(process.stderr.strip() or f"the generator ended with {process.returncode}")
    said: dict[str, Any] = json.loads(process.stdout)
    return said


def load_of(said: dict[str, Any]) -> Load:
    """Return the load from the generator's output. Raise Refused if responses had error codes, or
    none arrived."""
    if errors := said.pop("errors"):
        raise Refused(f"answers had these error codes, so often: {errors}")
    if not said["bytes"]:
        raise Refused("no request was answered while it was measured")
    waits = (Latency(**said.pop(f"{name}_us")) for name in ("acknowledged", "delivered"))
    acknowledged, delivered = waits
    return Load(**said, acknowledged=acknowledged, delivered=delivered)


def total(loads: Sequence[Load]) -> Load:
    """Return the sum of consecutive loads, without their latencies."""

    def sums(name: str) -> Any:
        return sum(getattr(load, name) for load in loads)

    names = (each.name for each in fields(Load) if each.name not in ("acknowledged", "delivered"))
    return Load(**{name: sums(name) for name in names})
