"""A program whose loop ends while its client and producer are open.

It must neither hang nor print warnings. A test runs it in its own interpreter: `python
early_end_program.py ADDRESS TOPIC`.
"""

import asyncio
import sys

import quorumlog
from quorumlog.clients.log import AsyncLog
from quorumlog.clients.producer.batches import Delivery
from quorumlog.clients.producer.producer import AsyncProducer
from quorumlog.errors import ClientClosed


async def begin(address: str, topic: str) -> tuple[AsyncLog, AsyncProducer, Delivery]:
    """Open a client and a producer, and leave a record unsent."""
    log = await quorumlog.aio.connect(address)
    producer = log.producer(linger_ms=60_000)
    return log, producer, await producer.send(topic, b"v")


async def go_on(log: AsyncLog, producer: AsyncProducer) -> None:
    """Close them on another loop, which is too late."""
    await producer.close()
    await log.close()


def main() -> None:
    """Run the program; see the module."""
    log, producer, delivery = asyncio.run(begin(sys.argv[1], sys.argv[2]))
    assert delivery.done(), "the record has no outcome"
    assert isinstance(delivery.exception(), ClientClosed), delivery.exception()
    try:
        producer.send_nowait(sys.argv[2], b"w")
    except ClientClosed as error:
        print(error)
    asyncio.run(go_on(log, producer))


main()
