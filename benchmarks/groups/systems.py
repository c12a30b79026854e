"""What is measured: ours and Apache Kafka, with the settings that both have here."""

import resource
import time
from functools import partial
from typing import Any, Final, Protocol

from benchmarks.groups.wire import ALTER_CONFIGS, COORDINATOR, NOT_READY
from benchmarks.kafka_wire import apache_kafka, ours
from benchmarks.kafka_wire.cases import EITHER, KEPT
from benchmarks.kafka_wire.systems import Kind, Subject, System
from benchmarks.kafka_wire.wire import Asker, check
from benchmarks.raft.processes import Refused

SETTINGS: Final[dict[str, Any]] = {"group.initial.rebalance.delay.ms": 0}
"""A group that is new waits three seconds for more members by default, both here and there."""

OFFSETS: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 50  # by default, both here and there
GROUP, TRANSACTION = 0, 1  # types of keys that have coordinators
READY_S: Final = 60.0
PAUSE_S: Final = 0.1
SET: Final = 0  # of a change of a config

OURS: Final = Kind(
    name=ours.NAME,
    open=partial(ours.nodes, settings=SETTINGS),
    brokers=EITHER,
    configs={"flush.policy": "replicated"},
)
FSYNC: Final = Kind(
    name=ours.FSYNC, open=OURS.open, brokers=frozenset({1}), configs={"flush.policy": "fsync"}
)
KAFKA: Final = Kind(
    name=apache_kafka.NAME,
    open=partial(apache_kafka.kafka, settings=SETTINGS),
    brokers=EITHER,
    configs=KEPT,
    warms_up=True,
)


class Restartable(System, Protocol):
    """Brokers with ids from 1 on that are killed one at a time."""

    def kill(self, number: int) -> None:
        """SIGKILL, without waiting for the end."""

    def start(self, number: int) -> None:
        """Start one that was killed where it was, without waiting for it."""


def kinds() -> tuple[list[Kind], list[str]]:
    """Those that can be started here, ours first, and a line for each that is missing."""
    if apache_kafka.is_here():
        return [OURS, FSYNC, KAFKA], []
    return [OURS, FSYNC], [apache_kafka.MISSING]


def allow_many_connections() -> None:
    """Let this process and those that it starts have as many open files as they may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def coordinator(port: int, name: str, *, key_type: int = GROUP) -> tuple[int, int]:
    """Return the id and port of the broker that coordinates a group or transactional id; ask any
    broker until one is elected. Raises Refused."""
    deadline_s = time.monotonic() + READY_S
    while time.monotonic() < deadline_s:
        with Asker(port) as asker:
            (found,) = asker.ask(
                COORDINATOR, key_type=key_type, coordinator_keys=(name,)
            ).coordinators
        if not int(found.error_code):
            return int(found.node_id), int(found.port)
        if int(found.error_code) not in NOT_READY:
            break
        time.sleep(PAUSE_S)
    raise Refused(f"{name} has no coordinator: {found.error_message}")


def settle_commits(subject: Subject) -> None:
    """Have the topic of the groups' offsets, and commits acknowledged when they are with the
    replicas or on the disk, as the row says."""
    coordinator(subject.system.port, "settled")
    policy = subject.kind.configs.get("flush.policy")
    if policy is None:
        return
    change = {"name": "flush.policy", "config_operation": SET, "value": policy}
    with Asker(subject.system.port) as asker:
        answer = asker.ask(
            ALTER_CONFIGS,
            resources=[{"resource_type": 2, "resource_name": OFFSETS, "configs": [change]}],
            validate_only=False,
        )
    check(f"{OFFSETS} does not get flush.policy={policy}", answer.responses[0].error_code)
