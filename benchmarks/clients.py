"""The Python clients compared with their ceilings: single records and Arrow, blocking and asyncio.

For values of 100 bytes and of 1 KiB, without keys, to and from a topic of one partition with
`flush.policy=replicated`, without compression: records per second, and CPU seconds per million
records of the client (all its threads) and of the server. The ceilings are measured in the same
round with the same bytes:

- the codec alone: records to batches and back, one by one and in columns, without any network;
- a bare gRPC stream (only `grpc.aio`, see `grpc_throughput.py`) that carries as many bytes one way,
  to and from a server that parses each message and drops it.

Each round has two processes, one for each kind of client, since several loops with gRPC in one
process disturb each other; the medians of the rounds are printed and stored.

Run: python benchmarks/clients.py [--rounds 5] [--records 300000] [--quick] [--profile]
`--quick` is a smoke test: one short round, stored only with `--store`.
`--profile` prints the CPU time of each row instead: nanoseconds per record, by thread and part of
the client.
"""

import argparse
import contextlib
import gc
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import uvloop
from grpc import aio as grpc_aio
from rich.console import Console
from rich.table import Table

import quorumlog
from quorumlog.clients.config import ProducerConfig
from quorumlog.proto import log_pb2
from quorumlog.records import COMPILED, Record, encode_batch
from quorumlog.records.arrow import decode_arrow, record_columns
from quorumlog.records.codec import decode_all, encode_batches

SIZES = (100, 1024)  # bytes of a value
ARROW_FACTOR = 6  # multiple of the records for rows with columns
BATCH_BYTES = ProducerConfig().batch_size
SLICE_ROWS = 50_000  # of an Arrow table that is sent at once
QUICK_RECORDS = 20_000
SAMPLE_S = 0.001
WAIT_S = 600
TICKS = os.sysconf("SC_CLK_TCK")
RESULTS = Path(__file__).parent / "results" / "clients.json"
BARE = str(Path(__file__).with_name("grpc_throughput.py"))  # has a bare server
BARE_BYTES = 1 << 20  # approximate size of a response
NODE = """
import sys
from quorumlog.server.main import DevOptions, dev
sys.exit(dev(DevOptions(data_dir=sys.argv[1], grpc_port=0, controller_port=0), as_json=True))
"""
OPTIONS = [(f"grpc.max_{way}_message_length", 64 << 20) for way in ("receive", "send")]
TOPIC_CONFIGS = {"flush.policy": "replicated"}
BUDGET_US = {  # limits of the client CPU per record of 100 bytes, by way
    "send": 2.5, "send_nowait": 2.5, "send_many": 0.8, "for": 2.5, "async for": 2.5, "poll": 2.5,
    "send_arrow": 0.5, "poll_arrow": 0.4, "read_arrow": 0.4,
}  # fmt: skip
CEILINGS = {  # of each row: (codec, bare stream)
    "produce, each": ("codec: encode each", "bare stream in"),
    "produce, Arrow": ("codec: encode columns", "bare stream in"),
    "consume, each": ("codec: decode each", "bare stream out"),
    "consume, Arrow": ("codec: decode columns", "bare stream out"),
}


@dataclass(frozen=True, slots=True)
class Task:
    """The work of a measuring process, given as JSON."""

    face: str  # aio or blocking
    address: str
    server_pid: int
    bare_address: str
    bare_pid: int
    size: int  # bytes of a value
    records: int  # of rows with single records
    profile: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    group: str  # a key of CEILINGS; empty for a ceiling
    name: str
    records: int
    seconds: float
    client_cpu_s: float
    server_cpu_s: float


# --- the records ---------------------------------------------------------------------------------


class Load:
    """The records of a task in every form, made before the measurement."""

    def __init__(self, task: Task) -> None:
        self.each = task.records
        self.columns = task.records * ARROW_FACTOR
        self.values = [os.urandom(task.size) for _ in range(1000)]
        data = os.urandom(task.size * SLICE_ROWS)
        ends = pa.array(range(0, len(data) + 1, task.size), pa.int32()).buffers()[1]
        array = pa.Array.from_buffers(pa.binary(), SLICE_ROWS, [None, ends, pa.py_buffer(data)])
        self.rows = pa.record_batch({"value": array})
        self.array = record_columns(array)

    def stream(self) -> Iterator[bytes]:
        """Yield the values that are sent one by one."""
        return itertools.islice(itertools.cycle(self.values), self.each)

    def lists(self) -> Iterator[list[bytes]]:
        """Yield the same values in lists of a thousand."""
        for left in range(self.each, 0, -len(self.values)):
            yield self.values[:left]

    def reader(self, count: int) -> Iterator[pa.RecordBatch]:
        """Return Arrow batches of `count` rows in total."""
        for start in range(0, count, SLICE_ROWS):
            yield self.rows.slice(0, min(SLICE_ROWS, count - start))

    def batches(self) -> list[bytes]:
        """Return one slice as the batches of a producer."""
        return list(encode_batches(self.array, batch_bytes=BATCH_BYTES))


class Meter:
    """Measures the cost of blocks of work."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.rows: list[Row] = []

    @contextlib.contextmanager
    def measure(self, group: str, name: str, records: int, *, pid: int | None) -> Iterator[None]:
        """Measure the block; `pid` is the server's, if there is one."""
        gc.collect()  # so that earlier garbage does not count
        server = cpu_of(pid)
        client, began = time.process_time(), time.perf_counter()
        yield
        seconds, cpu = time.perf_counter() - began, time.process_time() - client
        self.rows.append(Row(group, name, records, seconds, cpu, cpu_of(pid) - server))

    def ours(self, group: str, name: str, records: int) -> Any:
        """Measure a block that uses the node, with samples if requested."""
        if not self._task.profile:
            full = f"{self._task.face} {name}"
            return self.measure(group, full, records, pid=self._task.server_pid)
        return sampled(f"{self._task.face} {name}", records)


def cpu_of(pid: int | None) -> float:
    """Return the CPU seconds of a process and its threads so far; 0 for no process."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


# --- the ceilings ---------------------------------------------------------------------------------


def codec_alone(meter: Meter, load: Load) -> None:
    """Measure records to bytes and back, in this thread."""
    records = [Record(0, 1, None, value) for value in load.stream()]
    a_batch = max(1, BATCH_BYTES // (len(load.values[0]) + 12))
    parts = [records[start : start + a_batch] for start in range(0, len(records), a_batch)]
    with meter.measure("", "codec: encode each", load.each, pid=None):
        encoded = [encode_batch(part) for part in parts]
    with meter.measure("", "codec: decode each", load.each, pid=None):
        for batch in encoded:
            decode_all(batch)
    del records, parts, encoded
    rounds = -(-load.columns // SLICE_ROWS)
    with meter.measure("", "codec: encode columns", rounds * SLICE_ROWS, pid=None):
        for _ in range(rounds):
            batches = load.batches()
    joined = b"".join(batches)
    with meter.measure("", "codec: decode columns", rounds * SLICE_ROWS, pid=None):
        for _ in range(rounds):
            decode_arrow(joined)


async def bare_streams(meter: Meter, load: Load, task: Task) -> None:
    """Measure the same bytes over a bare stream, in each direction."""
    batches = load.batches()
    rounds = -(-load.columns // SLICE_ROWS)
    count = rounds * SLICE_ROWS
    async with grpc_aio.insecure_channel(task.bare_address, options=OPTIONS) as channel:
        with meter.measure("", "bare stream in", count, pid=task.bare_pid):
            call: Any = channel.stream_unary("/bare/In")()
            for number in range(rounds):
                for batch in batches:
                    request = log_pb2.ProduceRequest(correlation_id=number)
                    request.partitions.add(topic="bench", partition=0, records=batch)
                    await call.write(request.SerializeToString())
            await call.done_writing()
            assert int(await call) > 0
        left = rounds * sum(map(len, batches))  # the server responds with large batches of its own
        with meter.measure("", "bare stream out", count, pid=task.bare_pid):
            start: Any = channel.unary_stream("/bare/Out")
            answers = start(str(-(-left // BARE_BYTES)).encode())
            while raw := await answers.read():
                left -= len(log_pb2.FetchResponse.FromString(raw).results[0].records)
        assert left < BARE_BYTES


# --- quorumlog -----------------------------------------------------------------------------------


async def aio_rows(task: Task, meter: Meter, load: Load) -> None:
    """Measure the asyncio clients."""
    async with quorumlog.aio.connect(task.address) as log:
        names = map("bench-{}-{}".format, itertools.repeat(task.face), itertools.count())
        for group, name, records, send in aio_sends(load):
            topic = (await log.admin.create_topic(next(names), configs=TOPIC_CONFIGS)).name
            async with log.producer() as producer:
                await producer.send_and_wait(topic, b"warm")
                with meter.ours(group, name, records):
                    await send(producer, topic)
                    await producer.flush()
        few, many = next(names), next(names)
        async with log.producer() as producer:
            for topic, records in ((few, load.each), (many, load.columns)):
                await log.admin.create_topic(topic, configs=TOPIC_CONFIGS)
                await producer.send_arrow(topic, load.reader(records), value="value")
        await aio_consume(log, meter, load, few, many)


def aio_sends(load: Load) -> Sequence[tuple[str, str, int, Callable[[Any, str], Awaitable[None]]]]:
    """Return every way to send: group, name, records, and the function."""

    async def send(producer: Any, topic: str) -> None:
        for value in load.stream():
            await producer.send(topic, value)

    async def send_nowait(producer: Any, topic: str) -> None:
        for value in load.stream():
            try:
                producer.send_nowait(topic, value)
            except quorumlog.errors.Overloaded:
                await producer.send(topic, value)

    async def send_many(producer: Any, topic: str) -> None:
        for values in load.lists():
            await producer.send_many(topic, values)

    async def send_arrow(producer: Any, topic: str) -> None:
        await producer.send_arrow(topic, load.reader(load.columns), value="value")

    return (
        ("produce, each", "send", load.each, send),
        ("produce, each", "send_nowait", load.each, send_nowait),
        ("produce, each", "send_many", load.each, send_many),
        ("produce, Arrow", "send_arrow", load.columns, send_arrow),
    )


async def aio_consume(
    log: quorumlog.aio.AsyncLog, meter: Meter, load: Load, few: str, many: str
) -> None:
    """Measure every way to read."""
    count = 0
    async with log.consumer(few, until_end=True) as consumer:
        with meter.ours("consume, each", "async for", load.each):
            async for _ in consumer:
                count += 1
    async with log.consumer(few, until_end=True) as consumer:
        with meter.ours("consume, each", "poll", load.each):
            while records := await consumer.poll(timeout_ms=None):
                count += len(records)
    assert count == 2 * load.each
    async with log.consumer(many, until_end=True) as consumer:
        with meter.ours("consume, Arrow", "poll_arrow", load.columns):
            while rows := (await consumer.poll_arrow(timeout_ms=None)).num_rows:
                count += rows
    with meter.ours("consume, Arrow", "read_arrow", load.columns):
        count += (await log.read_arrow(many, columns=("value",))).num_rows
    assert count == 2 * (load.each + load.columns)


def blocking_rows(task: Task, meter: Meter, load: Load) -> None:
    """Measure the blocking clients."""
    with quorumlog.connect(task.address) as log:
        names = map("bench-{}-{}".format, itertools.repeat(task.face), itertools.count())

        def new() -> str:
            return log.admin.create_topic(next(names), configs=TOPIC_CONFIGS).name

        for group, name, records, send in blocking_sends(load):
            topic = new()
            with log.producer() as producer:
                producer.send(topic, b"warm").result()
                with meter.ours(group, name, records):
                    send(producer, topic)
                    producer.flush()
        few, many = new(), new()
        with log.producer() as producer:
            producer.send_arrow(few, load.reader(load.each), value="value")
            producer.send_arrow(many, load.reader(load.columns), value="value")
        blocking_consume(log, meter, load, few, many)


def blocking_sends(load: Load) -> Sequence[tuple[str, str, int, Callable[[Any, str], None]]]:
    """Return every way to send: group, name, records, and the function."""

    def send(producer: Any, topic: str) -> None:
        for value in load.stream():
            producer.send(topic, value)

    def send_many(producer: Any, topic: str) -> None:
        for values in load.lists():
            producer.send_many(topic, values)

    def send_arrow(producer: Any, topic: str) -> None:
        producer.send_arrow(topic, load.reader(load.columns), value="value")

    return (
        ("produce, each", "send", load.each, send),
        ("produce, each", "send_many", load.each, send_many),
        ("produce, Arrow", "send_arrow", load.columns, send_arrow),
    )


def blocking_consume(log: quorumlog.Log, meter: Meter, load: Load, few: str, many: str) -> None:
    """Measure every way to read."""
    count = 0
    each, columns = "consume, each", "consume, Arrow"
    with log.consumer(few, until_end=True) as consumer, meter.ours(each, "for", load.each):
        for _ in consumer:
            count += 1
    with log.consumer(few, until_end=True) as consumer, meter.ours(each, "poll", load.each):
        while records := consumer.poll(timeout_ms=None):
            count += len(records)
    assert count == 2 * load.each
    reading = meter.ours(columns, "poll_arrow", load.columns)
    with log.consumer(many, until_end=True) as consumer, reading:
        while rows := consumer.poll_arrow(timeout_ms=None).num_rows:
            count += rows
    with meter.ours("consume, Arrow", "read_arrow", load.columns):
        count += log.read_arrow(many, columns=("value",)).num_rows
    assert count == 2 * (load.each + load.columns)


def measure(task: Task) -> list[Row]:
    """Run the work of a measuring process."""
    meter, load = Meter(task), Load(task)
    if task.face == "blocking":
        blocking_rows(task, meter, load)
        return meter.rows

    async def all_rows() -> None:
        if not task.profile:
            codec_alone(meter, load)
            await bare_streams(meter, load, task)
        await aio_rows(task, meter, load)

    uvloop.run(all_rows())
    return meter.rows


# --- the profile ----------------------------------------------------------------------------------

PARTS = (  # (name, paths): the innermost frame with one of the paths determines the part
    ("the caller's own loop", ("benchmarks/clients.py",)),
    ("encode and decode", ("/records/", "batch_encoding.py", "/arrow_")),
    ("convert and gather", ("producer.py", "accumulator.py", "/content.py", "/bulk.py")),
    ("outcomes", ("clients/producer/batches.py",)),
    ("requests and answers", ("consumer/fetcher.py",)),
    ("hand records out", ("clients/consumer/", "clients/blocking/consumer.py")),
    ("requests and answers", ("quorumlog/clients/", "quorumlog/runtime/", "/proto/", "/grpc/")),
)
NATIVE = "the loop and gRPC: native code"


class Sampler:
    """Samples the other threads about once per millisecond: the CPU time since the last sample is
    added to the part of the client in which the thread is."""

    def __init__(self) -> None:
        self.cpu_s: dict[tuple[str, str], float] = {}  # by thread and part
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="sampler")
        self._last: dict[int, float] = {}

    def __enter__(self) -> "Sampler":
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(SAMPLE_S / 2)
        self._note()
        self._process = time.process_time()
        self.cpu_s.clear()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._note()
        rest = time.process_time() - self._process - sum(self.cpu_s.values()) - self._own_s
        self.cpu_s["native threads of gRPC and Arrow", NATIVE] = max(0.0, rest)
        sys.setswitchinterval(self._interval)

    def _look(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._note()
        self._own_s = time.thread_time()

    def _note(self) -> None:
        frames = sys._current_frames()
        for thread in threading.enumerate():
            ident = thread.ident
            if thread is self._thread or ident is None or ident not in frames:
                continue
            now = time.clock_gettime(time.pthread_getcpuclockid(ident))
            spent = now - self._last.get(ident, 0.0)
            self._last[ident] = now
            key = thread.name, part_of(frames[ident])
            self.cpu_s[key] = self.cpu_s.get(key, 0.0) + spent


def part_of(frame: Any) -> str:
    """Return the part of the client in which a thread is."""
    while frame is not None:
        path = frame.f_code.co_filename
        for name, fragments in PARTS:
            if any(fragment in path for fragment in fragments):
                return name
        if path.endswith("asyncio/runners.py"):
            break
        frame = frame.f_back
    return NATIVE


@contextlib.contextmanager
def sampled(name: str, records: int) -> Iterator[None]:
    """Print the CPU time of a block by part, in nanoseconds per record."""
    began = time.perf_counter()
    with Sampler() as sampler:
        yield
    rate = records / (time.perf_counter() - began)
    table = Table("thread", "part", "ns a record", title=f"{name}: {rate:,.0f} /s")
    table.columns[2].justify = "right"
    for thread in sorted({thread for thread, _ in sampler.cpu_s}):
        parts = {part: spent for (each, part), spent in sampler.cpu_s.items() if each == thread}
        whole = 1e9 * sum(parts.values()) / records
        if whole < 1:
            continue
        table.add_row(thread, "all of it", f"{whole:,.0f}", style="bold")
        for part, spent in sorted(parts.items(), key=lambda item: -item[1]):
            table.add_row("", part, f"{1e9 * spent / records:,.0f}")
    total = 1e9 * sum(sampler.cpu_s.values()) / records
    table.add_row("all threads", "", f"{total:,.0f}", style="bold")
    Console(file=sys.stderr, width=100).print(table)


# --- the run --------------------------------------------------------------------------------------


@contextlib.contextmanager
def started(*command: str) -> Iterator[tuple[str, int]]:
    """Start a server process; yield its address and its id; end it."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["grpc"], process.pid
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)


def one_round(size: int, records: int, *, profile: bool) -> list[Row]:
    """Measure both kinds of clients and the ceilings once, on a new node."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        node, peer = ("-c", NODE, f"{folder}/data"), (BARE, "--bare-server", folder)
        with started(*node) as (ours, our_pid), started(*peer) as (bare, bare_pid):
            for face in ("aio", "blocking"):
                task = Task(face, ours, our_pid, bare, bare_pid, size, records, profile)
                command = [sys.executable, __file__, "--task", json.dumps(asdict(task))]
                output = subprocess.check_output(command, timeout=WAIT_S)
                rows += [Row(**row) for row in json.loads(output)]
    return rows


def medians(rounds: list[list[Row]]) -> list[dict[str, Any]]:
    """Return each row with the medians of its rounds and its ratios to its ceilings."""
    found: dict[str, dict[str, Any]] = {}
    for first in rounds[0]:
        same = [row for rows in rounds for row in rows if row.name == first.name]
        per_million = 1e6 / first.records
        found[first.name] = {
            "group": first.group,
            "name": first.name,
            "records_per_s": statistics.median(row.records / row.seconds for row in same),
            "client_cpu_s_per_million": per_million
            * statistics.median(row.client_cpu_s for row in same),
            "server_cpu_s_per_million": per_million
            * statistics.median(row.server_cpu_s for row in same),
            "budget_us": BUDGET_US.get(first.name.partition(" ")[2]) if first.group else None,
            "rounds_records_per_s": [row.records / row.seconds for row in same],
        }
    for row in found.values():
        for ceiling, name in zip(("codec", "bare"), CEILINGS.get(row["group"], ()), strict=False):
            row[f"ratio_to_{ceiling}"] = row["records_per_s"] / found[name]["records_per_s"]
    groups = ["", *CEILINGS]
    return sorted(found.values(), key=lambda row: groups.index(row["group"]))


def show(size: int, rows: list[dict[str, Any]]) -> None:
    """Print one table."""
    table = Table(title=f"values of {size:,} bytes")
    columns = (
        "what",
        "records/s",
        "client CPU µs",
        "budget",
        "server CPU µs",
        "of codec",
        "of bare",
    )
    for name in columns:
        table.add_column(name, justify="left" if name == "what" else "right")
    group = ""
    for row in rows:
        if row["group"] != group:
            table.add_section()
        group = row["group"]
        ratios = [row.get(f"ratio_to_{ceiling}") for ceiling in ("codec", "bare")]
        table.add_row(
            f"{group}: {row['name']}" if group else row["name"],
            f"{row['records_per_s']:,.0f}",
            f"{row['client_cpu_s_per_million']:.2f}",  # seconds per million are microseconds each
            "" if row["budget_us"] is None or size != SIZES[0] else f"{row['budget_us']:.1f}",
            f"{row['server_cpu_s_per_million']:.2f}",
            *("" if ratio is None else f"{ratio:.3f}" for ratio in ratios),
        )
    Console(width=120).print(table)


def machine() -> dict[str, Any]:
    """Return the conditions of the measurement."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "cpu": model[1] if model else "unknown",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "compiled_codec": COMPILED,
    }


def main() -> None:
    """Measure, print and store; or run as one of the measuring processes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=300_000, help="sent one by one in a round")
    parser.add_argument("--quick", action="store_true", help="one short round, as a smoke test")
    parser.add_argument("--store", type=Path, help="where the result goes")
    parser.add_argument("--profile", action="store_true", help="where the time of a record goes")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps([asdict(row) for row in measure(Task(**json.loads(arguments.task)))]))
        return
    sizes = SIZES[:1] if arguments.quick or arguments.profile else SIZES
    records = QUICK_RECORDS if arguments.quick else arguments.records
    results: dict[str, Any] = {"benchmark": "clients", "machine": machine(), "sizes": {}}
    for size in sizes:
        if arguments.profile:
            one_round(size, records, profile=True)
            return
        count = 1 if arguments.quick else arguments.rounds
        rounds = [one_round(size, records, profile=False) for _ in range(count)]
        results["sizes"][str(size)] = rows = medians(rounds)
        show(size, rows)
    store = arguments.store or (None if arguments.quick else RESULTS)
    if store is not None:
        store.parent.mkdir(exist_ok=True)
        store.write_text(json.dumps(results | {"records": records}, indent=2) + "\n")


if __name__ == "__main__":
    main()
