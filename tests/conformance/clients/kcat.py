"""The driver of kcat: one command for each call, on the librdkafka of its distribution."""

import os
import re
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

from tests.kit.client_security import ClientSecurity

from ..driving import (
    HEARTBEAT_MS,
    WITHIN_S,
    Acks,
    Admin,
    Codec,
    Delivered,
    Found,
    GroupProtocol,
    Headers,
    Place,
    Sent,
    Starts,
    TransactionalWriter,
)

KEY_END: Final = "\t"
RECORD_END: Final = "\n"
MARK: Final = b"\n--next--\n"  # after each printed record
PRINTED: Final = r"%p %o %T %K %S\n%k%s%h" + r"\n--next--\n"
FILES_MAX: Final = 200


class Kcat:
    """A `Driver`."""

    name = "kcat"
    cannot: Mapping[str, str] = {
        "admin": "it has none",
        "empty": "it leaves empty messages out",
        "errors": "it tells of errors in words alone",
        "groups.consumer": "the librdkafka of its distribution speaks the classic protocol alone",
        "offsets": "it does not tell",
        "pause": "it reads and ends",
        "timestamps": "it has no way to",
        "transactions": "it sends all of its input in one and cannot abort it",
        "wait": "it reads and ends",
    }

    def __init__(
        self,
        command: Sequence[str],
        bootstrap: str,
        libraries: str = "",
        security: ClientSecurity | None = None,
    ) -> None:
        """`libraries` is the folder of its shared libraries if the system has none."""
        self._command = [*command, "-b", bootstrap]
        for name, value in ({} if security is None else security.librdkafka()).items():
            self._command += ["-X", f"{name}={value}"]
        self._environment = {"LD_LIBRARY_PATH": libraries} if libraries else {}
        said = self.run([command[0], "-V"])
        (self.version,) = re.findall(r"Version ([\w.]+)", said.decode())

    def run(self, command: Sequence[str], stdin: bytes = b"") -> bytes:
        """Return its output. Raise AssertionError with its stderr."""
        finished = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            env=self._environment,
            timeout=WITHIN_S + 10,
            check=False,
        )
        assert finished.returncode == 0, f"{command}: {finished.stderr.decode()[-1000:]}"
        return finished.stdout

    def ask(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run a command of kcat."""
        return self.run([*self._command, "-q", *arguments], stdin)

    @contextmanager
    def writer(
        self,
        *,
        acks: Acks = "all",
        codec: Codec = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
    ) -> Iterator["KcatWriter"]:
        yield KcatWriter(
            self,
            [
                *("-z", codec),
                *("-X", f"acks={acks}"),
                *("-X", f"enable.idempotence={str(idempotent).lower()}"),
                *("-X", f"linger.ms={linger_ms}"),
                *("-X", "topic.partitioner=murmur2_random"),  # as the others choose
                *("-X", f"delivery.timeout.ms={int(WITHIN_S * 1000)}"),
            ],
        )

    def transactional(
        self, transactional_id: str, *, timeout_ms: int = 60_000
    ) -> AbstractContextManager[TransactionalWriter]:
        raise AssertionError("a test that needs transactions is excluded")

    @contextmanager
    def reader(
        self,
        topic: str,
        starts: Starts,
        *,
        fetch_bytes: int | None = None,
        wait_ms: int = 100,
        is_committed: bool = False,
    ) -> Iterator["KcatReader"]:
        level = "read_committed" if is_committed else "read_uncommitted"
        bound = ["-X", f"fetch.wait.max.ms={wait_ms}", "-X", f"isolation.level={level}"]
        if fetch_bytes is not None:
            bound += ["-X", f"fetch.message.max.bytes={fetch_bytes}"]
        reader = KcatReader(self, topic, bound)
        for partition, to in starts.items():
            reader.seek(partition, to)
        yield reader

    def offset(self, topic: str, partition: int, at: int | Literal["beginning", "end"]) -> int:
        time = {"beginning": -2, "end": -1}.get(str(at), at)
        said = self.ask("-Q", "-t", f"{topic}:{partition}:{time}").decode()
        (found,) = re.findall(r"offset (-?\d+)", said)
        return int(found)

    @contextmanager
    def member(
        self, group: str, topic: str, *, protocol: GroupProtocol = "classic"
    ) -> Iterator["KcatMember"]:
        settings = [
            *("-X", f"heartbeat.interval.ms={HEARTBEAT_MS}"),
            *("-X", "auto.offset.reset=earliest"),
            *("-X", "fetch.wait.max.ms=100"),
        ]
        command = [*self._command, *settings, "-u", "-f", PRINTED, "-G", group, topic]
        with KcatMember(command, self._environment) as member:
            yield member

    def admin(self) -> AbstractContextManager[Admin]:
        raise AssertionError("excluded")


class KcatWriter:
    """A `Writer`: records that lines can express are sent as lines, others as files."""

    def __init__(self, kcat: Kcat, settings: Sequence[str]) -> None:
        self._kcat = kcat
        self._settings = settings

    def send(self, topic: str, records: Sequence[Sent]) -> list[Delivered]:
        start = 0
        for end in range(1, len(records) + 1):
            if end == len(records) or _kind(records[end]) != _kind(records[start]):
                self._send_alike(topic, records[start:end])
                start = end
        return []

    def _send_alike(self, topic: str, records: Sequence[Sent]) -> None:
        _, partition, key, headers = _kind(records[0])
        where = ["-P", "-t", topic, *self._settings]
        if partition is not None:
            where += ["-p", str(partition)]
        if key is None:
            where += ["-Z"] if records[0].value is None else []
            lines = [(one.key or b"") + b"\t" + (one.value or b"") for one in records]
            self._kcat.ask(*where, "-K", KEY_END, stdin=b"\n".join(lines) + b"\n")
            return
        for name, value in headers:
            where += ["-H", name if value is None else f"{name}={_argument(value)}"]
        if records[0].key is not None:
            where += ["-k", _argument(key)]
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for at, one in enumerate(records):
                path = Path(folder) / str(at)
                path.write_bytes(one.value or b"")
                files.append(str(path))
            for at in range(0, len(files), FILES_MAX):
                self._kcat.ask(*where, *files[at : at + FILES_MAX])


def _kind(record: Sent) -> tuple[bool, int | None, bytes | None, Headers]:
    """Return the kind of record that one command can send: lines of text, or files with one key and
    headers."""
    is_text = bool(record.key) and not record.headers
    for part in (record.key, record.value):
        is_text = is_text and not any(end.encode() in (part or b"") for end in "\t\n")
    is_text = is_text and len(record.value or b"") < 10_000
    key = None if is_text else record.key or b""
    return record.value is None, record.partition, key, record.headers


def _argument(content: bytes) -> str:
    """Return bytes as an argument of a command."""
    return content.decode("utf-8", "surrogateescape")


class KcatReader:
    """A `Reader` that runs kcat for each poll."""

    def __init__(self, kcat: Kcat, topic: str, settings: Sequence[str]) -> None:
        self._kcat = kcat
        self._topic = topic
        self._settings = settings
        self._places: dict[int, int] = {}

    def seek(self, partition: int, to: Place) -> None:
        at = self._kcat.offset(self._topic, partition, to) if isinstance(to, str) else to
        self._places[partition] = at

    def pause(self, partition: int) -> None:
        raise AssertionError("excluded")

    def resume(self, partition: int) -> None:
        raise AssertionError("excluded")

    def poll(self, within_s: float) -> list[Found]:
        found: list[Found] = []
        for partition, place in self._places.items():
            printed = self._kcat.ask(
                *("-C", "-t", self._topic, "-p", str(partition), "-o", str(place)),
                *("-e", "-f", PRINTED, "-X", "auto.offset.reset=error"),
                *("-X", "check.crcs=true", *self._settings),
            )
            for each in printed.split(MARK)[:-1]:
                found.append(_parsed(each))
                self._places[partition] = found[-1].offset + 1
        return found


class KcatMember:
    """A `Member`: kcat prints records and assignments, and commits periodically and at its end."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._printed = b""
        self._said = b""
        self._owned: set[int] = set()
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(environment)
        )

    def __enter__(self) -> "KcatMember":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop kcat, which leaves its group."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=WITHIN_S)
        finally:
            self._process.kill()

    def poll(self, within_s: float) -> list[Found]:
        end = time.monotonic() + within_s
        while MARK not in self._printed and (left := end - time.monotonic()) > 0:
            self._read(left)
        *complete, self._printed = self._printed.split(MARK)
        return [_parsed(each) for each in complete]

    def owned(self) -> set[int]:
        return set(self._owned)

    def commit(self) -> None:
        """Do nothing: kcat commits by itself."""

    def _read(self, within_s: float) -> None:
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None
        assert stderr is not None
        ready, _, _ = select.select([stdout, stderr], [], [], within_s)
        for pipe in ready:
            content = os.read(pipe.fileno(), 1 << 16)
            assert content, f"kcat has ended: {self._said[-1000:].decode()}"
            if pipe is stdout:
                self._printed += content
            else:
                *lines, self._said = (self._said + content).split(b"\n")
                for line in lines:
                    self._learn(line)

    def _learn(self, line: bytes) -> None:
        match = re.search(rb"rebalanced .*: (assigned|revoked): (.*)", line)
        if match is not None:
            numbers = re.findall(rb"\[(\d+)\]", match[2]) if match[1] == b"assigned" else []
            self._owned = {int(number) for number in numbers}


def _parsed(printed: bytes) -> Found:
    numbers, _, rest = printed.partition(b"\n")
    partition, offset, time_ms, key_size, value_size = (int(one) for one in numbers.split())
    value_at = max(0, key_size)
    headers_at = value_at + max(0, value_size)
    return Found(
        partition=partition,
        offset=offset,
        timestamp_ms=time_ms,
        key=None if key_size < 0 else rest[:value_at],
        value=None if value_size < 0 else rest[value_at:headers_at],
        headers=tuple(_header(pair) for pair in rest[headers_at:].split(b",") if pair),
    )


def _header(pair: bytes) -> tuple[str, bytes | None]:
    name, _, value = pair.partition(b"=")
    return name.decode(), None if value == b"NULL" else value
