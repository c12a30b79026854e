"""Connections break while clients write: retried records are stored once and in order."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

import pytest
from tests.kit.node_process import free_port

from quorumlog.testing import Direction, ForwardingProxy

from .clients.registry import opened
from .cluster import NUMBERS, ThreeNodes, until
from .conftest import is_secure
from .driving import NewTopic, read
from .records import contents, numbered

CLIENTS: Final = ("confluent-kafka", "kafka-python", "aiokafka", "kafkajs", "java")
EACH: Final = 50  # records of one call
FAULTS: Final = 4

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # clients litter
]


class Wires:
    """Three nodes that clients reach only through proxies."""

    def __init__(self, nodes: ThreeNodes, proxies: dict[int, ForwardingProxy]) -> None:
        self.nodes = nodes
        self.proxies = proxies

    def cut(self) -> None:
        """Break every connection."""
        for proxy in self.proxies.values():
            proxy.cut()

    def lose_answers(self) -> None:
        """Forward requests without their responses, then break every connection."""
        for proxy in self.proxies.values():
            proxy.hold(Direction.TO_CLIENT)
        before = {n: proxy.passed_bytes(Direction.TO_SERVER) for n, proxy in self.proxies.items()}
        with suppress(AssertionError):  # a client that waits for a held response sends no request
            until("something is sent", lambda: self._has_sent(before), within_s=1.0)
        self.cut()
        for proxy in self.proxies.values():
            proxy.release()

    def _has_sent(self, before: dict[int, int]) -> bool:
        return any(
            proxy.passed_bytes(Direction.TO_SERVER) > before[number]
            for number, proxy in self.proxies.items()
        )


@pytest.fixture(scope="module")
def wires(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wires]:
    listeners = {number: f"127.0.0.1:{free_port()}" for number in NUMBERS}
    with ExitStack() as stack:
        proxies = {
            number: stack.enter_context(ForwardingProxy(address))
            for number, address in listeners.items()
        }
        advertised = {number: proxy.address for number, proxy in proxies.items()}
        folder = tmp_path_factory.mktemp("wires")
        nodes = ThreeNodes(
            folder, listeners=listeners, advertised=advertised, is_secure=is_secure()
        )
        yield Wires(stack.enter_context(nodes), proxies)
        nodes.check()


@pytest.mark.parametrize("client", CLIENTS)
def test_an_idempotent_producer_stores_retried_records_once(
    wires: Wires, client: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = f"wires.{client}"
    wires.nodes.create(NewTopic(name=name))
    bootstrap = ",".join(proxy.address for proxy in wires.proxies.values())
    enough, rounds = threading.Event(), [0]

    folder = tmp_path_factory.mktemp("client")
    with opened(client, bootstrap, folder, wires.nodes.security) as driver:

        def write() -> int:
            with driver.writer(idempotent=True) as writer:
                while not enough.is_set():
                    writer.send(name, numbered(EACH, since=rounds[0] * EACH))
                    rounds[0] += 1
            return rounds[0] * EACH

        with ThreadPoolExecutor() as pool:
            writing = pool.submit(write)
            try:
                for fault in range(FAULTS):
                    is_past = partial(
                        lambda done: rounds[0] > done + 1 or writing.done(), rounds[0]
                    )
                    until("it writes", is_past)
                    if fault % 2:
                        wires.cut()
                    else:
                        wires.lose_answers()
            finally:
                enough.set()
            count = writing.result(60)
        with driver.reader(name, {0: "beginning"}) as reader:
            found = read(reader, count)
            found += reader.poll(0.5)
    assert contents(found) == contents(numbered(count))
    assert [one.offset for one in found] == list(range(count))
