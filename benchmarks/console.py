"""The latency of the console's pages, its memory, and the cost of a live tail.

A broker and a console, each in a separate process, on loopback; requests are those of a browser
without its rendering. First pages: each round starts a console, logs in, and measures the first
page after the login, with 1,000 topics of one partition; again after a restart of the broker, which
closes all logs. Lists: pages of 10,000 topics, the median of the rounds. Memory: the resident
memory of a console one second after its ready line, and after these pages. Live tail: the processor
time of the broker while a producer appends 500 records of 1 KiB per second, alone, with a live tail
open, and with a consumer of the Python client, in turns.

Run: python benchmarks/console.py [--rounds 10] [--seconds 10]
Goal: the first page takes at most 300 ms, each list 500 ms; idle memory is below 80 MB; a live tail
costs the broker at most what the consumer does.
"""

import argparse
import asyncio
import http.client
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import quorumlog
from quorumlog.testing import Broker

RESULTS = Path(__file__).parent / "results"
IDLE_S = 1.0
TOPICS = 1_000
MANY_TOPICS = 10_000
CREATED_AT_ONCE = 32
LISTS = {
    "topics": ("/topics", "topic-00000"),
    "last topics": ("/topics?page=200", "topic-09990"),
    "filtered topics": ("/topics?filter=topic-0999", "topic-09999"),
    "sorted topics": ("/topics?sort=-partitions", "topic-0"),
    "topics of records": ("/records", "topic-00000"),
}
"""Pages of lists by name: a path, and a text that the page has with its values."""
TAILED = "tailed"
RATE = 500  # records a second
RECORD = b"x" * 1_024
TICK_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Console:
    """A console process."""

    url: str  # with the login token
    pid: int
    cookie: str = ""

    def login(self) -> None:
        """Log in."""
        parts = urlsplit(self.url)
        self.cookie = self._get(f"{parts.path}?{parts.query}").headers["set-cookie"].split(";")[0]

    def page_ms(self, path: str, shown: str) -> float:
        """Return the milliseconds until a page has a text. A page with values that take over a
        second is sent without them, and requested again."""
        began = time.perf_counter()
        while shown not in self._get(path).read().decode():
            assert time.perf_counter() - began < 60, f"{path}: no {shown!r}"
        return 1000 * (time.perf_counter() - began)

    def stream(self, path: str) -> http.client.HTTPResponse:
        """Return an open stream of events."""
        return self._get(path)

    def _get(self, path: str) -> http.client.HTTPResponse:
        address = urlsplit(self.url).netloc
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("GET", path, headers={"Cookie": self.cookie})
        reply = connection.getresponse()
        assert reply.status == 200, f"{path}: {reply.status}"
        return reply

    def memory_mb(self) -> float:
        """Return the resident memory in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024 / 1e6


@contextmanager
def console_of(broker: Broker) -> Iterator[Console]:
    """Run a console in a block."""
    command = [sys.executable, "-m", "quorumlog.cli", "console", "--bootstrap", broker.grpc]
    command += ["--port", "0", "--output", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Console(json.loads(process.stdout.readline())["console"], process.pid)
        finally:
            process.terminate()


async def create_topics(broker: Broker, first: int, end: int) -> None:
    """Create topics of one partition with these numbers."""
    room = asyncio.Semaphore(CREATED_AT_ONCE)
    async with quorumlog.aio.connect(broker.grpc) as log:

        async def create(number: int) -> None:
            async with room:
                await log.admin.create_topic(f"topic-{number:05}", partitions=1)

        await asyncio.gather(*map(create, range(first, end)))


def first_page_ms(broker: Broker) -> tuple[float, float]:
    """Return the milliseconds of the first page of a new console, and its idle memory."""
    with console_of(broker) as console:
        time.sleep(IDLE_S)
        memory_mb = console.memory_mb()
        console.login()
        return console.page_ms("/", "all replicas in sync"), memory_mb


def cpu_s(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK_S


@contextmanager
def appending(broker: Broker) -> Iterator[None]:
    """Append records at a constant rate."""
    is_over = threading.Event()

    def append() -> None:
        with broker.connect() as log, log.producer(linger_ms=0) as producer:
            while not is_over.wait(0.02):
                for _ in range(round(RATE * 0.02)):
                    producer.send(TAILED, RECORD)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def nothing() -> Iterator[None]:
    """Read nothing."""
    yield


@contextmanager
def consuming(broker: Broker) -> Iterator[None]:
    """Read the records by a consumer with its defaults, in a separate process."""
    program = (
        f"import quorumlog\nwith quorumlog.connect({broker.grpc!r}) as log:\n"
        f"    with log.consumer({TAILED!r}, start='latest') as consumer:\n"
        "        consumer.poll(timeout_ms=0)\n        print('ready', flush=True)\n"
        "        while True:\n            consumer.poll()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.kill()


@contextmanager
def tailing(console: Console) -> Iterator[None]:
    """Open a live tail; a thread reads its events."""
    reply = console.stream(f"/live/topic/{TAILED}/records/tail")
    is_over = threading.Event()
    begun = threading.Event()

    def read() -> None:
        while not is_over.is_set() and reply.readline():
            begun.set()
        reply.close()

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(30), "the tail sends no event"
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def tail_costs(broker: Broker, console: Console, rounds: int, seconds: float) -> dict[str, float]:
    """Return the processor time of the broker in ms per second, by reader."""
    readers: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "alone": nothing,
        "tail": lambda: tailing(console),
        "consumer": lambda: consuming(broker),
    }
    found: dict[str, list[float]] = {name: [] for name in readers}
    with appending(broker):
        for number in range(rounds + 1):
            for name, reader in readers.items():
                with reader():
                    time.sleep(IDLE_S)
                    before, began = cpu_s(broker.pid), time.perf_counter()
                    time.sleep(seconds)
                    used = (cpu_s(broker.pid) - before) / (time.perf_counter() - began)
                if number:
                    found[name].append(1000 * used)
    return {name: statistics.median(values) for name, values in found.items()}


def measure(rounds: int, seconds: float) -> dict[str, Any]:
    """Return all results."""
    firsts, closed, memory = [], [], []
    with Broker() as broker:
        broker.create_topic(TAILED)
        asyncio.run(create_topics(broker, 0, TOPICS))
        for number in range(rounds + 1):
            took, size = first_page_ms(broker)
            if number:
                firsts.append(took)
                memory.append(size)
        for _ in range(rounds):
            broker.restart()
            closed.append(first_page_ms(broker)[0])
        with console_of(broker) as console:
            console.login()
            costs = tail_costs(broker, console, max(1, rounds // 3), seconds)
        asyncio.run(create_topics(broker, TOPICS, MANY_TOPICS))
        with console_of(broker) as console:
            console.login()
            lists = {
                name: [console.page_ms(path, shown) for _ in range(rounds + 1)]
                for name, (path, shown) in LISTS.items()
            }
            used_mb = console.memory_mb()
    return {
        "first_page_ms_median": statistics.median(firsts),
        "first_page_ms": firsts,
        "first_page_closed_logs_ms_median": statistics.median(closed),
        "list_ms_median": {name: statistics.median(times[1:]) for name, times in lists.items()},
        "list_first_ms": {name: times[0] for name, times in lists.items()},
        "idle_mb_max": max(memory),
        "used_mb": used_mb,
        "broker_cpu_ms_per_s": costs,
    }


def main() -> None:
    """Measure, print, and write benchmarks/results/console.json."""
    parser = argparse.ArgumentParser(description="The pages of the console.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10, help="of each reader and round")
    options = parser.parse_args()
    found = measure(options.rounds, options.seconds)
    result = {
        "benchmark": "console",
        **found,
        "python": platform.python_version(),
        "machine": platform.platform(),
    }
    first, closed = found["first_page_ms_median"], found["first_page_closed_logs_ms_median"]
    print(f"first page, {TOPICS:,} topics    {first:.0f} ms (goal 300)")
    print(f"after the broker's restart  {closed:.0f} ms")
    costs = found["broker_cpu_ms_per_s"]
    for name, took in found["list_ms_median"].items():
        print(f"{name:<16} {took:.0f} ms with {MANY_TOPICS:,} topics (goal 500)")
    print(f"idle memory      {found['idle_mb_max']:.0f} MB (goal 80), used {found['used_mb']:.0f}")
    for name in ("tail", "consumer"):
        print(f"{name:<16} {costs[name] - costs['alone']:.1f} ms/s of the broker's processor")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "console.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
