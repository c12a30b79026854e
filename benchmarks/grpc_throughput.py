"""Rates of gRPC produce and fetch of 1 MiB batches, compared with bare one-way Python gRPC streams.

The bare servers use only `grpc.aio`, with the same message types, sizes and client loops. Server
and client are two processes each; rounds alternate so that a busy machine affects both equally. The
topic has `flush.policy=replicated` and full validation of received batches.

Each row is compared with a bare server that moves the same bytes to or from the page cache, in as
many messages or calls, without checks:

- produce: a stream to a server that writes each batch to one file without a response;
- subscribe: a stream from a server that reads each batch from that file;
- fetch: one call for each response, as many in flight, to a server that reads it from that
  file; two batches per response (the default of quorumlog's consumer), and one.

"bare stream in" and "out" use no file: the stream alone.

Run: python benchmarks/grpc_throughput.py [--rounds 5] [--messages 400] [--data-dir DIR]
Goal: every row reaches at least 0.8 of its bare server.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from grpc import aio

from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import COMPILED, Record, encode_batch, parse_header
from quorumlog.runtime import Channel, Runtime, real
from quorumlog.services import (
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_TOPIC,
    LOG_FETCH,
    LOG_PRODUCE,
    LOG_SUBSCRIBE,
)

SIZE = 1 << 20
RECORD_BYTES = 1000
INFLIGHT = 8  # produce requests in flight
FETCHES = 4  # fetch calls in flight
WAIT_MS = 120_000
GOAL = 0.8
PEERS = {
    "produce": "bare stream, written",
    "subscribe": "bare stream, read",
    "fetch": "bare calls, read",
    "fetch, 1 a call": "bare calls, 1 read",
}
"""The bare row of each row of quorumlog."""
RESULTS = Path(__file__).parent / "results"
OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
]
NODE = """
import sys
from quorumlog.server.main import DevOptions, dev
sys.exit(dev(DevOptions(data_dir=sys.argv[1], grpc_port=0, controller_port=0), as_json=True))
"""


def batch() -> bytes:
    """Return one batch of whole records with a size near SIZE."""
    record = Record(0, 1, None, bytes(RECORD_BYTES))
    one = len(encode_batch([record] * 100)) - len(encode_batch([record] * 99))
    return encode_batch([record] * ((SIZE - 61) // one))


# --- the bare stream -----------------------------------------------------------------------------


class BareMethods:
    """The methods of the bare server, which stores the batches of the last write in one file."""

    def __init__(self, folder: str) -> None:
        self._records = batch()
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115, open for good

    async def take(self, requests: Any, context: Any) -> bytes:
        """Parse each produce request; return their number."""
        count = 0
        async for raw in requests:
            count += len(log_pb2.ProduceRequest.FromString(raw).partitions[0].records) > SIZE // 2
        return str(count).encode()

    async def write(self, requests: Any, context: Any) -> bytes:
        """Write the batch of each produce request to new pages of the file, as for a new topic;
        return their number."""
        count = 0
        self._file.seek(0)
        self._file.truncate()
        async for raw in requests:
            records = log_pb2.ProduceRequest.FromString(raw).partitions[0].records
            count += self._file.write(records) == len(records)
        return str(count).encode()

    async def give(self, request: bytes, context: Any) -> None:
        """Send the requested number of equal fetch responses."""
        message = self._response(self._records)
        for _ in range(int(request)):
            await context.write(message.SerializeToString())

    async def read(self, request: bytes, context: Any) -> None:
        """Send the requested number of batches from the file, one each."""
        for number in range(int(request)):
            await context.write(self._stored(number, 1).SerializeToString())

    async def call(self, request: bytes, context: Any) -> bytes:
        """Return the response to a fetch request from the file; its offset is a number of
        batches."""
        part = log_pb2.FetchRequest.FromString(request).partitions[0]
        return self._stored(part.offset, part.max_bytes // SIZE).SerializeToString()

    def _stored(self, first: int, count: int) -> log_pb2.FetchResponse:
        size = len(self._records)
        return self._response(os.pread(self._file.fileno(), count * size, first * size))

    def _response(self, records: bytes) -> log_pb2.FetchResponse:
        response = log_pb2.FetchResponse()
        response.results.add(topic="bench", partition=0, records=records)
        return response


async def bare_server(folder: str) -> None:
    """Serve `BareMethods` until it is killed; print the port."""
    import grpc

    bare = BareMethods(folder)
    methods: dict[str, Any] = {
        "/bare/In": grpc.stream_unary_rpc_method_handler(bare.take),
        "/bare/Written": grpc.stream_unary_rpc_method_handler(bare.write),
        "/bare/Out": grpc.unary_stream_rpc_method_handler(bare.give),
        "/bare/Read": grpc.unary_stream_rpc_method_handler(bare.read),
        "/bare/Call": grpc.unary_unary_rpc_method_handler(bare.call),
    }

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> Any:
            return methods[details.method]

    server = aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((Handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"grpc": f"127.0.0.1:{port}"}), flush=True)
    await server.wait_for_termination()


async def bare_in(address: str, path: str, records: bytes, messages: int) -> None:
    """Send `messages` produce requests one way."""
    async with aio.insecure_channel(address, options=OPTIONS) as channel:
        call: Any = channel.stream_unary(path)()
        for number in range(messages):
            await call.write(produce_request(records, number).SerializeToString())
        await call.done_writing()
        assert int(await call) == messages


async def bare_out(address: str, path: str, messages: int) -> None:
    """Receive `messages` fetch responses one way."""
    async with aio.insecure_channel(address, options=OPTIONS) as channel:
        start: Any = channel.unary_stream(path)
        call = start(str(messages).encode())
        left = messages
        while left and (raw := await call.read()):
            left -= len(log_pb2.FetchResponse.FromString(raw).results[0].records) > SIZE // 2
        assert left == 0


async def bare_calls(address: str, messages: int, *, batches: int) -> None:
    """Fetch as `fetch` does; the offsets are numbers of batches."""
    async with aio.insecure_channel(address, options=OPTIONS) as channel:
        call: Any = channel.unary_unary("/bare/Call")

        async def ask(request: log_pb2.FetchRequest) -> log_pb2.FetchResponse:
            return log_pb2.FetchResponse.FromString(await call(request.SerializeToString()))

        async with asyncio.TaskGroup() as group:
            for first in range(FETCHES):
                group.create_task(fetch_some(ask, 1, messages, first=first, batches=batches))


async def fetch_some(
    ask: Callable[[log_pb2.FetchRequest], Awaitable[log_pb2.FetchResponse]],
    step: int,
    messages: int,
    *,
    first: int,
    batches: int,
) -> None:
    """Fetch every FETCHES-th response in sequence; `step` is the number of records of a batch."""
    for number in range(first * batches, messages, FETCHES * batches):
        size = min(batches, messages - number) * SIZE
        request = log_pb2.FetchRequest(max_bytes=size)
        request.partitions.add(topic="bench", partition=0, offset=number * step, max_bytes=size)
        response = await ask(request)
        assert len(response.results[0].records) > size // 2


# --- quorumlog -----------------------------------------------------------------------------------


def produce_request(records: bytes, number: int) -> log_pb2.ProduceRequest:
    """Return the message that both sides of the comparison send."""
    request = log_pb2.ProduceRequest(correlation_id=number)
    request.partitions.add(topic="bench", partition=0, records=records)
    return request


async def produce(runtime: Runtime, channel: Channel, records: bytes, messages: int) -> None:
    """Produce with acks=all and INFLIGHT requests in flight."""
    stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
    window = asyncio.Semaphore(INFLIGHT)

    async def answers() -> None:
        count = 0
        while (response := await stream.receive()) is not None:
            assert not response.results[0].HasField("error"), response.results[0]
            count += 1
            window.release()
        assert count == messages

    async with runtime.tasks.scope("producer") as scope:
        scope.spawn(answers(), name="answers")
        for number in range(messages):
            await window.acquire()
            await stream.send(produce_request(records, number))
        await stream.finish()


async def fetch(
    runtime: Runtime, channel: Channel, step: int, messages: int, *, batches: int
) -> None:
    """Fetch `batches` per call with FETCHES calls in flight (the offsets are known)."""

    async def ask(request: log_pb2.FetchRequest) -> log_pb2.FetchResponse:
        return await channel.call(LOG_FETCH, request, timeout_ms=WAIT_MS)

    async with runtime.tasks.scope("consumer") as scope:
        for first in range(FETCHES):
            work = fetch_some(ask, step, messages, first=first, batches=batches)
            scope.spawn(work, name=f"fetch {first}")


async def subscribe(channel: Channel, step: int, messages: int) -> None:
    """Receive the same batches over one Subscribe stream."""
    stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
    await stream.send(
        log_pb2.SubscribeRequest(
            topic="bench", offset=0, end_offset=step * messages, max_bytes=SIZE
        )
    )
    await stream.finish()
    size = 0
    while (response := await stream.receive()) is not None:
        size += len(response.batches)
    assert size > messages * (SIZE // 2)


async def new_topic(channel: Channel, *, first: bool) -> None:
    """Create a topic with an empty log for each round."""
    if not first:
        await channel.call(
            ADMIN_DELETE_TOPIC, admin_pb2.DeleteTopicRequest(name="bench"), timeout_ms=WAIT_MS
        )
    request = admin_pb2.CreateTopicRequest(name="bench")
    request.configs.add(name="flush.policy", value="replicated")
    await channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)


# --- the run -------------------------------------------------------------------------------------


@contextmanager
def started(*command: str) -> Iterator[str]:
    """Start a server process; yield its address; end it."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["grpc"]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def timed(work: Callable[[], Awaitable[None]]) -> float:
    """Return the seconds of a coroutine."""
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


async def rounds(
    runtime: Runtime, bare: str, ours: str, *, count: int, messages: int
) -> dict[str, list[float]]:
    """Return the MB/s of every row by round, without the first, warming round."""
    records = batch()
    step = parse_header(records).record_count
    channel = runtime.network.channel(ours)
    rows: dict[str, list[float]] = {}
    for number in range(count + 1):
        await new_topic(channel, first=number == 0)
        written = partial(bare_in, bare, "/bare/Written", records, messages)
        fetching = partial(fetch, runtime, channel, step, messages)
        seconds = {
            "bare stream in": await timed(partial(bare_in, bare, "/bare/In", records, messages)),
            "bare stream, written": await timed(written),
            "produce": await timed(partial(produce, runtime, channel, records, messages)),
            "bare stream out": await timed(partial(bare_out, bare, "/bare/Out", messages)),
            "bare stream, read": await timed(partial(bare_out, bare, "/bare/Read", messages)),
            "subscribe": await timed(partial(subscribe, channel, step, messages)),
            "bare calls, read": await timed(partial(bare_calls, bare, messages, batches=2)),
            "fetch": await timed(partial(fetching, batches=2)),
            "bare calls, 1 read": await timed(partial(bare_calls, bare, messages, batches=1)),
            "fetch, 1 a call": await timed(partial(fetching, batches=1)),
        }
        if number:
            for name, value in seconds.items():
                rows.setdefault(name, []).append(len(records) * messages / value / 1e6)
    return rows


def report(rows: dict[str, list[float]], arguments: argparse.Namespace) -> None:
    """Print the table and store it."""
    medians = {name: statistics.median(values) for name, values in rows.items()}
    ratios = {name: medians[name] / medians[peer] for name, peer in PEERS.items()}
    print(f"{'row':<20} {'median MB/s':>12} {'of bare':>8}   rounds")
    for name, values in rows.items():
        ratio = f"{ratios[name]:.2f}" if name in ratios else ""
        print(f"{name:<20} {medians[name]:>12.0f} {ratio:>8}   {[round(v) for v in values]}")
    verdict = "reached" if min(ratios.values()) >= GOAL else "missed"
    print(f"goal {GOAL} of the bare server: {verdict}")
    RESULTS.mkdir(exist_ok=True)
    result = {
        "benchmark": "grpc_throughput",
        "goal": GOAL,
        "ratios": ratios,
        "median_mb_per_s": medians,
        "rounds_mb_per_s": rows,
        "message_bytes": SIZE,
        "messages_a_round": arguments.messages,
        "inflight": INFLIGHT,
        "compiled_codec": COMPILED,
        "record_validation": "full",
        "python": platform.python_version(),
        "machine": platform.platform(),
    }
    (RESULTS / "grpc_throughput.json").write_text(json.dumps(result, indent=2) + "\n")


def main() -> None:
    """Parse the arguments, run, and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=400, help="messages a row and round")
    parser.add_argument("--data-dir", help="where the node keeps its log; default: a new folder")
    parser.add_argument("--bare-server", metavar="DIR", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare_server:
        uvloop.run(bare_server(arguments.bare_server))
        return
    with ExitStack() as stack:
        folder = arguments.data_dir or stack.enter_context(tempfile.TemporaryDirectory())
        bare = stack.enter_context(started(__file__, "--bare-server", folder))
        ours = stack.enter_context(started("-c", NODE, str(Path(folder) / "node")))
        rows = real.run(
            lambda runtime: rounds(
                runtime, bare, ours, count=arguments.rounds, messages=arguments.messages
            )
        )
    report(rows, arguments)


if __name__ == "__main__":
    main()
