"""The systems under test: quorumlog and Apache Kafka, with the common settings."""

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
"""A new group waits three seconds for more members by default, in both systems."""

OFFSETS: Final = "__consumer_offsets"
OFFSETS_PARTITIONS: Final = 50  # the default of both systems
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
    """Brokers with ids from 1 that are killed one at a time."""

    def kill(self, number: int) -> None:
        """Kill a broker (SIGKILL) without waiting for its end."""

    def start(self, number: int) -> None:
        """Start a killed broker with its directory and ports, without waiting for it."""


def kinds() -> tuple[list[Kind], list[str]]:
    """Return the systems that can run here, quorumlog first, and a line for each missing one."""
    if apache_kafka.is_here():
        return [OURS, FSYNC, KAFKA], []
    return [OURS, FSYNC], [apache_kafka.MISSING]


def allow_many_connections() -> None:
    """Raise the limit of open files of this process and its children to the maximum."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def coordinator(port: int, name: str, *, key_type: int = GROUP) -> tuple[int, int]:
    """Return the id and port of the broker that coordinates a group or transactional id; query any
    broker until one is elected. Raise Refused."""
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
    """Create the topic of the groups' offsets, with commits acknowledged by the replicas or the
    disk, depending on the row."""
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
