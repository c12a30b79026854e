"""An asyncio pipeline from one topic to another: read, change, write, in bounded memory.

    python examples/pipeline.py departures delays --until-end

It turns each JSON object into a smaller one with the same key, so the order of a key is kept.
Writes limit reads: `send` waits while the producer's buffer is full, the next poll comes after it,
and the consumer's prefetch is bounded. A round ends when each of its records is stored; invalid
records go to a dead-letter topic and do not stop the others.
"""

import argparse
import asyncio
import json
import sys
from typing import Any

import quorumlog
from quorumlog.errors import QuorumlogError

BUFFER_BYTES = 8 << 20  # of records that are not acknowledged yet


def change(row: dict[str, Any]) -> dict[str, Any]:
    """Return the value to write for a record."""
    return {"carrier": row["carrier"], "late": row.get("dep_delay", 0) > 15}


async def run(bootstrap: str, source: str, target: str, *, until_end: bool) -> tuple[int, int]:
    """Return the numbers of changed and of invalid records."""
    changed = refused = 0
    async with (
        quorumlog.aio.connect(bootstrap) as log,
        log.consumer(source, until_end=until_end) as consumer,
        log.producer(buffer_size=BUFFER_BYTES, compression="lz4") as producer,
    ):
        dead = f"{source}.dead"
        for topic in (target, dead):
            await log.admin.create_topic(topic, if_not_exists=True)
        while records := await consumer.poll(timeout_ms=None):
            deliveries = []
            for record in records:
                try:
                    value = json.dumps(change(json.loads(record.value or b"null")))
                except (ValueError, KeyError, TypeError) as error:
                    why = {"error": repr(error)}
                    sent = await producer.send(dead, record.value, key=record.key, headers=why)
                    refused += 1
                else:
                    sent = await producer.send(target, value, key=record.key)
                    changed += 1
                deliveries.append(sent)
            for delivery in deliveries:  # raises the error of a record that was not stored
                await delivery
    return changed, refused


def main() -> int:
    """Run the pipeline; return the exit code."""
    parser = argparse.ArgumentParser(description="Read a topic, change it, write another.")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--bootstrap", default="127.0.0.1:9094")
    parser.add_argument("--until-end", action="store_true", help="stop at today's end")
    options = parser.parse_args()
    work = run(options.bootstrap, options.source, options.target, until_end=options.until_end)
    try:
        changed, refused = asyncio.run(work)
    except KeyboardInterrupt:
        return 130
    except QuorumlogError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{changed} records to {options.target}, {refused} to {options.source}.dead")
    return 0


if __name__ == "__main__":
    sys.exit(main())
