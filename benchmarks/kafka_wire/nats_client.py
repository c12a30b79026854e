"""A client of NATS JetStream by its Python package: writes or reads messages of a stream.

It imports no other module, so that any Python with nats-py can run it: nats_client.py
produce|consume PORT STREAM VALUE_BYTES MESSAGES
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

UNDER_WAY = 4_000
TOGETHER = 1_000  # messages of one fetch
ANSWER_S = 60.0


async def produce(port: int, stream: str, size: int, count: int) -> dict[str, Any]:
    """Publish random values to a new stream, each acknowledged by the server."""
    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    context = connection.jetstream(publish_async_max_pending=UNDER_WAY)
    await context.add_stream(name=stream, subjects=[stream])
    values = [os.urandom(size) for _ in range(1_000)]
    await context.publish(stream, values[0])
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    for number in range(count):
        await context.publish_async(stream, values[number % 1_000], wait_stall=ANSWER_S)
    await asyncio.wait_for(context.publish_async_completed(), ANSWER_S)
    spent_s, spent_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    held = (await context.stream_info(stream)).state.messages
    await connection.close()
    if held != count + 1:
        sys.exit(f"{held} messages are in the stream, {count + 1} were published")
    return {"seconds": spent_s, "cpu_s": spent_cpu_s, "records": count}


async def consume(port: int, stream: str, count: int) -> dict[str, Any]:
    """Fetch from the start, without single acknowledgements."""
    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    context = connection.jetstream()
    config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
    reader = await context.pull_subscribe(stream, config=config)
    seen = len(await reader.fetch(1, timeout=ANSWER_S))
    began_s, began_cpu_s, began = time.perf_counter(), time.process_time(), seen
    while seen < count:
        seen += len(await reader.fetch(min(TOGETHER, count - seen), timeout=ANSWER_S))
    spent_s, spent_cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    await connection.close()
    return {"seconds": spent_s, "cpu_s": spent_cpu_s, "records": seen - began}


def main() -> None:
    """Run, and print one JSON line."""
    way, port, stream, size, count = sys.argv[1:]
    if way == "produce":
        said = asyncio.run(produce(int(port), stream, int(size), int(count)))
    else:
        said = asyncio.run(consume(int(port), stream, int(count)))
    print(json.dumps(said))


if __name__ == "__main__":
    main()
