"""The ceiling as a system: a program that writes received bytes, or sends a file, with one
thread."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kafka_wire.batches import fetch_frame, produce_error_at, records_at
from benchmarks.kafka_wire.generator import program

TOPIC = "load-000000"  # names of topics must have this length
NAME = "receive and write; sendfile"
FILE_BYTES = 256 << 20
PRODUCE_ANSWER_TAIL = 2 + 3 * 8 + 16  # from the error code to the end, about as from brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The running program."""

    port: int
    pids: tuple[int, ...]
    tls_port: int = 0


def opened(folder: Path, brokers: int) -> AbstractAsyncContextManager[Ceiling]:
    """Run it in a block as a system of one broker."""
    assert brokers == 1, "the ceiling is one process"
    return ceiling(folder, TOPIC)


@asynccontextmanager
async def ceiling(folder: Path, topic: str) -> AsyncIterator[Ceiling]:
    """Run it in a block; names of topics must have the length of `topic`."""
    process = _start(folder, topic)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = int(await asyncio.to_thread(process.stdout.readline))
        yield Ceiling(port=port, pids=(process.pid,))
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _start(folder: Path, topic: str) -> subprocess.Popen[str]:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "sent"
    file.write_bytes(bytes(FILE_BYTES))
    _, offset_at = fetch_frame(topic, 0, max_bytes=1)
    answer_bytes = produce_error_at(topic) + PRODUCE_ANSWER_TAIL
    command = [str(program("ceiling")), str(folder), str(file)]
    command += map(str, (answer_bytes, records_at(topic), offset_at))
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
