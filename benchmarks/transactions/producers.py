"""Producers in separate processes: librdkafka and Kafka's Java client."""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.kafka_wire import apache_kafka
from benchmarks.kafka_wire.artifacts import kafka_jars
from benchmarks.kafka_wire.systems import Subject
from benchmarks.raft.processes import Member, cpu_s

HERE: Final = Path(__file__).parent
ANSWER_S: Final = 120.0  # more than the requested seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The records of one measurement."""

    records: int
    seconds: float
    client_cpu_s: float
    broker_cpu_s: float
    commits_us: tuple[int, ...]  # durations, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client and the command of its producer, without arguments."""

    name: str
    command: tuple[str, ...]


def clients() -> tuple[list[Client], list[str]]:
    """Return the clients that can run here, and a line for each missing one."""
    found: list[Client] = []
    missing = []
    if importlib.util.find_spec("confluent_kafka") is not None:
        script = str(HERE / "rdkafka_producer.py")
        found.append(Client(name="librdkafka, Python", command=(sys.executable, script)))
    else:
        missing.append("confluent-kafka is not here: `pip install confluent-kafka`")
    if apache_kafka.is_here():
        source = str(HERE / "TransactionProducer.java")
        found.append(Client(name="Java", command=("java", "-cp", f"{kafka_jars()}/*", source)))
    else:
        missing.append(apache_kafka.MISSING)
    return found, missing


class Producer:
    """A running producer; use it in `with`."""

    def __init__(
        self,
        client: Client,
        subject: Subject,
        folder: Path,
        *,
        topic: str,
        value_bytes: int,
        transactional_id: str,
    ) -> None:
        """An empty `transactional_id`: an idempotent producer without transactions."""
        self._pids = subject.system.pids
        arguments = (str(subject.system.port), topic, str(value_bytes), transactional_id)
        self._member = Member([*client.command, *arguments], folder, talks=True)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_: object) -> None:
        self._member.kill()

    def write(self, seconds: float, *, records: int = 0, interval_ms: float = 0) -> Written:
        """Write for so long, with so many records in a transaction or a commit at an interval.
        Raise Refused."""
        broker_s = cpu_s(self._pids)
        self._member.tell(seconds=seconds, records=records, interval_ms=interval_ms)
        answer = self._member.answer(seconds + ANSWER_S)
        return Written(
            records=answer["records"],
            seconds=answer["seconds"],
            client_cpu_s=answer["cpu_s"],
            broker_cpu_s=cpu_s(self._pids) - broker_s,
            commits_us=tuple(answer["commits_us"]),
        )


def share_of(written: Sequence[Written]) -> float:
    """Return the cores that the client used."""
    return sum(each.client_cpu_s for each in written) / sum(each.seconds for each in written)
