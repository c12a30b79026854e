"""The clients by name, and their preparation on this machine."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tests.kit.client_security import ClientSecurity

from ...foreign.node_packages import installed
from ...interop.kafka_jars import java_command
from ..driving import Driver
from .aio_kafka import AioKafka
from .confluent import Confluent
from .kafka_python import KafkaPython
from .kcat import Kcat
from .program import Program

PROGRAMS: Final = Path(__file__).parents[1] / "programs"
KCAT: Final = Path(__file__).parents[3] / "build" / "kcat"
"""The folder where `make conformance` unpacks kcat and its libraries if the system has none."""


@contextmanager
def kafkajs(bootstrap: str, folder: Path, security: ClientSecurity | None) -> Iterator[Driver]:
    """Start KafkaJS in a separate process."""
    pinned = PROGRAMS / "kafkajs"
    node, modules = installed(pinned)
    program = Program(
        "kafkajs",
        [node, str(pinned / "driver.js")],
        bootstrap,
        folder=folder,
        cannot={
            "admin.elect": "it has no call for that",
            "groups.consumer": "it speaks the classic protocol alone",
            "headers.null": "it takes none",
            "wait": "its consumer waits, and that is always in a group",
            "lz4": "it leaves that to packages, which need a compiler",
        },
        environment={
            **os.environ,
            "NODE_PATH": str(modules),
            "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        },
        security=None if security is None else security.kafkajs(),
    )
    try:
        yield program
    finally:
        program.close()


@contextmanager
def kcat(bootstrap: str, folder: Path, security: ClientSecurity | None) -> Iterator[Driver]:
    """Return the system's kcat, or the fetched one. It logs in by PLAIN: the SCRAM of librdkafka
    before 2.6.1 repeats its nonce, which Kafka 4 rejects as well."""
    if security is not None:
        security = replace(security, mechanism="PLAIN")
    found = shutil.which("kcat")
    if found is not None:
        yield Kcat([found], bootstrap, security=security)
        return
    fetched = KCAT / "usr" / "bin" / "kcat"
    if not fetched.exists():
        pytest.skip("kcat is not installed; install it or run `make conformance`")
    (libraries,) = {str(path.parent) for path in KCAT.glob("usr/lib/**/librdkafka.so.1")}
    yield Kcat([str(fetched)], bootstrap, libraries, security)


@contextmanager
def java(bootstrap: str, folder: Path, security: ClientSecurity | None) -> Iterator[Driver]:
    """Build Kafka's Java client from source and start it in a separate process."""
    command = [*java_command(), "-Xmx256m", str(PROGRAMS / "java" / "Driver.java")]
    settings = None if security is None else security.java()
    program = Program("java", command, bootstrap, folder=folder, cannot={}, security=settings)
    try:
        yield program
    finally:
        program.close()


CLIENTS: Final = ("confluent-kafka", "kafka-python", "aiokafka", "kafkajs", "kcat", "java")

_PACKAGES: Final[Mapping[str, Callable[[str, ClientSecurity | None], Driver]]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}


@contextmanager
def opened(
    name: str, bootstrap: str, folder: Path, security: ClientSecurity | None = None
) -> Iterator[Driver]:
    """Yield the driver of a client. Skip the test if it is not available."""
    make = _PACKAGES.get(name)
    if make is not None:
        yield make(bootstrap, security)
        return
    by_name = {"kafkajs": kafkajs, "kcat": kcat, "java": java}
    with by_name[name](bootstrap, folder, security) as driver:
        yield driver


def fetch_kcat() -> str:
    """Unpack Debian's kcat into build/; return a line about the result."""
    if shutil.which("kcat") is not None or (KCAT / "usr" / "bin" / "kcat").exists():
        return "kcat is here"
    if shutil.which("apt-get") is None:
        return "kcat is not here, and this system has no apt-get to fetch it with"
    planned = subprocess.run(
        ["apt-get", "install", "--simulate", "--no-install-recommends", "kcat"],
        capture_output=True,
        text=True,
        check=False,
    )
    names = [line.split()[1] for line in planned.stdout.splitlines() if line.startswith("Inst ")]
    if planned.returncode != 0 or "kcat" not in names:
        return "apt-get knows no kcat; `apt-get update` may help"
    fresh = KCAT.with_suffix(".fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    fetched = subprocess.run(
        ["apt-get", "download", *names], cwd=fresh, capture_output=True, text=True, check=False
    )
    if fetched.returncode != 0:
        return f"apt-get does not fetch kcat: {fetched.stderr.strip()[-300:]}"
    for package in sorted(fresh.glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(fresh)], check=True)
        package.unlink()
    fresh.rename(KCAT)
    return "kcat was fetched"
