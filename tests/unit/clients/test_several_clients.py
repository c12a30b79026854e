"""Several clients on one runtime, as on the I/O thread, draw independent random values."""

from collections.abc import Callable, Coroutine
from typing import Any

from quorumlog.clients.config import ClientConfig
from quorumlog.clients.connection import Connection
from quorumlog.clients.log import make_log
from quorumlog.runtime import Runtime

Main = Callable[[Runtime], Coroutine[Any, Any, None]]


def test_clients_of_one_runtime_draw_different_topic_ids(
    run: Callable[[Main], None], client: Any
) -> None:
    """Otherwise the second client's first topic counts as a retry of the first client's."""

    async def main(runtime: Runtime) -> None:
        async with client(runtime) as first:
            cluster = await first.admin.describe_cluster()
            address = cluster.brokers[0].grpc_address
            async with make_log(runtime, address) as second:
                one = await first.admin.create_topic("one")
                two = await second.admin.create_topic("two")
                assert one.topic_id != two.topic_id

    run(main)


def test_clients_of_one_runtime_draw_different_pauses(run: Callable[[Main], None]) -> None:
    """Otherwise all clients would reconnect to a returning broker at once, in spite of the
    jitter."""

    async def main(runtime: Runtime) -> None:
        first, second = (Connection(runtime, ["h:1"], ClientConfig()) for _ in range(2))
        pauses = [[each.backoff.wait_ms(5) for _ in range(20)] for each in (first, second)]
        assert pauses[0] != pauses[1]
        await first.close()
        await second.close()

    run(main)
