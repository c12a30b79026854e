"""A program with blocking clients that is interrupted in one call: `... ADDRESS TOPIC CALL`.

It prints "ready" and waits for a line, while the node is paused, then calls. It prints
"interrupted" if Ctrl-C ended the call. Then it closes without waiting, and exits.
"""

import sys
from collections.abc import Callable

import quorumlog
from quorumlog.errors import QuorumlogError

FOREVER_MS = 100_000


def main(address: str, topic: str, call: str) -> None:
    log = quorumlog.connect(address)
    producer = log.producer(linger_ms=0, buffer_size=10_000)
    producer.send(topic, b"first").result()
    consumer = log.consumer(topic, start="latest")
    consumer.poll(timeout_ms=0)

    def send_to_a_full_buffer() -> None:
        while True:
            producer.send(topic, b"x" * 1_000)

    def flush() -> None:
        producer.send(topic, b"x")
        producer.flush()

    def close() -> None:
        producer.send(topic, b"x")
        log.close()

    calls: dict[str, Callable[[], object]] = {
        "connect": lambda: quorumlog.connect(address, connect_timeout_ms=FOREVER_MS),
        "send": send_to_a_full_buffer,
        "result": lambda: producer.send(topic, b"x").result(),
        "flush": flush,
        "poll": lambda: consumer.poll(timeout_ms=FOREVER_MS),
        "iterate": lambda: next(iter(consumer)),
        "admin": lambda: log.admin.list_topics(),
        "close": close,
    }
    print("ready", flush=True)
    sys.stdin.readline()
    print("calling", flush=True)
    try:
        calls[call]()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    try:
        producer.close(flush=False)
        log.close()
    except QuorumlogError as error:
        print(type(error).__name__, flush=True)
    print("closed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
