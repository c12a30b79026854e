"""A driver in another language: a program with commands and responses as lines of JSON.

Bytes are encoded as base64. One command is in flight at a time.
"""

import json
import select
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from ..driving import (
    HEARTBEAT_MS,
    WITHIN_S,
    Acks,
    Brokers,
    Codec,
    Delivered,
    Found,
    GroupProtocol,
    NewTopic,
    Place,
    Refused,
    Replicas,
    Sent,
    Starts,
)

ANSWER_S: Final = WITHIN_S + 30


class Program:
    """A `Driver` with the client in a separate process, which starts at once."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        bootstrap: str,
        *,
        folder: Path,
        cannot: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        security: Mapping[str, Any] | None = None,
    ) -> None:
        """`folder` is for the program's stderr; `security` has the settings of its client."""
        self.name = name
        self.cannot = cannot
        self._said = folder / f"{name}.log"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=None if environment is None else dict(environment),
            )
        self.version: str = self.ask("begin", bootstrap=bootstrap, security=security or {})

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def ask(self, command: str, **rest: Any) -> Any:
        """Return the program's response. Raise Refused."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"command": command, **rest}).encode() + b"\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], ANSWER_S)
        line = stdout.readline() if ready else b""
        if not line:
            self.close()  # a late response must not be taken for that of another command
            said = self._said.read_text(errors="replace")[-2000:]
            raise AssertionError(f"{self.name} sends no response to {command}: {said}")
        answer = json.loads(line)
        if "result" not in answer:
            raise Refused(answer["code"], answer["text"])
        return answer["result"]

    @contextmanager
    def writer(
        self,
        *,
        acks: Acks = "all",
        codec: Codec = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
    ) -> Iterator["ProgramWriter"]:
        number = self.ask(
            "writer.open", acks=acks, codec=codec, idempotent=idempotent, linger_ms=linger_ms
        )
        try:
            yield ProgramWriter(self, number)
        finally:
            self.ask("close", number=number)

    @contextmanager
    def transactional(
        self, transactional_id: str, *, timeout_ms: int = 60_000
    ) -> Iterator["ProgramTransactionalWriter"]:
        number = self.ask("transactional.open", id=transactional_id, timeout_ms=timeout_ms)
        try:
            yield ProgramTransactionalWriter(self, number)
        finally:
            self.ask("close", number=number)

    @contextmanager
    def reader(
        self,
        topic: str,
        starts: Starts,
        *,
        fetch_bytes: int | None = None,
        wait_ms: int = 100,
        is_committed: bool = False,
    ) -> Iterator["ProgramReader"]:
        number = self.ask(
            "reader.open",
            topic=topic,
            starts=starts,
            fetch_bytes=fetch_bytes,
            wait_ms=wait_ms,
            is_committed=is_committed,
        )
        try:
            yield ProgramReader(self, number)
        finally:
            self.ask("close", number=number)

    @contextmanager
    def member(
        self, group: str, topic: str, *, protocol: GroupProtocol = "classic"
    ) -> Iterator["ProgramMember"]:
        number = self.ask(
            "member.open",
            group=group,
            topic=topic,
            protocol=protocol,
            heartbeat_ms=HEARTBEAT_MS,
        )
        try:
            yield ProgramMember(self, number)
        finally:
            self.ask("close", number=number)

    def offset(self, topic: str, partition: int, at: int | Literal["beginning", "end"]) -> int:
        found: int = self.ask("offset", topic=topic, partition=partition, at=at)
        return found

    @contextmanager
    def admin(self) -> Iterator["ProgramAdmin"]:
        number = self.ask("admin.open")
        try:
            yield ProgramAdmin(self, number)
        finally:
            self.ask("close", number=number)


class ProgramWriter:
    """A `Writer`."""

    def __init__(self, program: Program, number: int) -> None:
        self._program = program
        self._number = number

    def send(self, topic: str, records: Sequence[Sent]) -> list[Delivered]:
        response = self._program.ask(
            "writer.send",
            number=self._number,
            topic=topic,
            records=[
                {
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": [(name, _text(value)) for name, value in record.headers],
                    "timestamp_ms": record.timestamp_ms,
                    "partition": record.partition,
                }
                for record in records
            ],
        )
        return [
            Delivered(
                partition=each["partition"],
                offset=None if each["offset"] == -1 else each["offset"],
            )
            for each in response
        ]


class ProgramTransactionalWriter(ProgramWriter):
    """A `TransactionalWriter`."""

    def begin(self) -> None:
        self._program.ask("transactional.begin", number=self._number)

    def send_offsets(self, member: Any, topic: str, offsets: Mapping[int, int]) -> None:
        self._program.ask(
            "transactional.send_offsets",
            number=self._number,
            member=member.number,
            topic=topic,
            offsets=list(offsets.items()),
        )

    def commit(self) -> None:
        self._program.ask("transactional.commit", number=self._number)

    def abort(self) -> None:
        self._program.ask("transactional.abort", number=self._number)


class ProgramReader:
    """A `Reader`."""

    def __init__(self, program: Program, number: int) -> None:
        self._program = program
        self._number = number

    def seek(self, partition: int, to: Place) -> None:
        self._program.ask("reader.seek", number=self._number, partition=partition, to=to)

    def pause(self, partition: int) -> None:
        self._program.ask("reader.pause", number=self._number, partition=partition)

    def resume(self, partition: int) -> None:
        self._program.ask("reader.resume", number=self._number, partition=partition)

    def poll(self, within_s: float) -> list[Found]:
        polled = self._program.ask(
            "reader.poll", number=self._number, within_ms=int(within_s * 1000)
        )
        return _all_found(polled)


class ProgramMember:
    """A `Member`."""

    def __init__(self, program: Program, number: int) -> None:
        self._program = program
        self._number = self.number = number

    def poll(self, within_s: float) -> list[Found]:
        polled = self._program.ask(
            "member.poll", number=self._number, within_ms=int(within_s * 1000)
        )
        return _all_found(polled)

    def owned(self) -> set[int]:
        return set(self._program.ask("member.owned", number=self._number))

    def commit(self) -> None:
        self._program.ask("member.commit", number=self._number)


class ProgramAdmin:
    """An `Admin`."""

    def __init__(self, program: Program, number: int) -> None:
        self._program = program
        self._number = number

    def create(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        self._ask(
            "create",
            topic={
                "name": topic.name,
                "partitions": topic.partitions,
                "replication": topic.replication,
                "configs": dict(topic.configs),
                "assignments": [list(each) for each in topic.assignments],
            },
            validate_only=validate_only,
        )

    def delete(self, topic: str) -> None:
        self._ask("delete", topic=topic)

    def topics(self) -> set[str]:
        return set(self._ask("topics"))

    def describe(self, topic: str) -> dict[int, Replicas]:
        return {
            each["partition"]: Replicas(
                leader=each["leader"], replicas=tuple(each["replicas"]), isr=tuple(each["isr"])
            )
            for each in self._ask("describe", topic=topic)
        }

    def brokers(self) -> Brokers:
        found = self._ask("brokers")
        return Brokers(
            cluster_id=found["cluster_id"],
            controller=found["controller"],
            addresses=dict(found["addresses"]),
        )

    def grow(self, topic: str, partitions: int) -> None:
        self._ask("grow", topic=topic, partitions=partitions)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        self._ask("delete_records", topic=topic, before=list(before.items()))

    def configs(self, topic: str) -> dict[str, str | None]:
        return dict(self._ask("configs", topic=topic))

    def alter_configs(self, topic: str, values: Mapping[str, str]) -> None:
        self._ask("alter_configs", topic=topic, values=dict(values))

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        self._ask("reassign", topic=topic, partition=partition, replicas=list(replicas))

    def elect_preferred(self, topic: str, partition: int) -> None:
        self._ask("elect_preferred", topic=topic, partition=partition)

    def _ask(self, what: str, **rest: Any) -> Any:
        return self._program.ask(f"admin.{what}", number=self._number, **rest)


def _all_found(polled: Any) -> list[Found]:
    return [
        Found(
            partition=each["partition"],
            offset=each["offset"],
            value=_bytes(each["value"]),
            key=_bytes(each["key"]),
            headers=tuple((name, _bytes(value)) for name, value in each["headers"]),
            timestamp_ms=each["timestamp_ms"],
        )
        for each in polled
    ]


def _text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
