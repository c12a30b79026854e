"""Responses that clients do not read: their memory is bounded for each user and for all."""

import asyncio

import pytest
from tests.kit.kafka_client import connect, connected
from tests.kit.waits import wait_until

from quorumlog import simulation
from quorumlog.frontends.kafka import server as server_module
from quorumlog.frontends.kafka.api import Client
from quorumlog.frontends.kafka.unread_responses import UnreadBytes
from quorumlog.runtime import ClientIdentity, Runtime

from .bare_server import ASKED, LARGE, LARGE_KEY, bare_server, is_served


class _Unread:
    """A connection of a client that does not read."""

    def __init__(self, user: str, ended: list["_Unread"]) -> None:
        self.client = Client(
            peer="", local="", listener="one", identity=ClientIdentity(f"User:{user}", "10.0.0.1")
        )
        self._ended = ended

    def end_unread(self, size: int) -> None:
        """Record the end."""
        self._ended.append(self)


def test_largest_connection_of_the_user_with_the_most_unread_bytes_ends() -> None:
    ended: list[_Unread] = []
    unread = UnreadBytes(100, 150)
    alice, *mallory = (_Unread(user, ended) for user in ("alice", "mallory", "mallory"))
    unread.add(alice, 60)
    unread.add(mallory[0], 30)
    unread.add(mallory[1], 50)
    unread.enforce()
    assert not ended
    unread.add(mallory[0], 30)  # 60 and 50 of mallory, 60 of alice
    unread.enforce()
    assert ended == [mallory[0]]
    unread.remove(mallory[0], 60)  # discarded before
    unread.remove(mallory[1], 50)
    unread.add(alice, 40)
    unread.enforce()
    assert ended == [mallory[0]]
    unread.add(alice, 1)
    unread.enforce()
    assert ended == [mallory[0], alice]


def test_user_with_too_many_unread_bytes_loses_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each one alone is within the bound of a connection."""
    monkeypatch.setattr(server_module, "UNREAD_BYTES", (1_000_000, 2_000_000))

    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime, LARGE, unsent_bytes_max=200_000) as (server, addresses),
            connected(runtime, addresses["one"]) as reader,
        ):
            for _ in range(20):
                reader.send(LARGE_KEY, 2, **ASKED)
                await reader.answer(LARGE_KEY, 2)
            deaf = [await connect(runtime, addresses["one"]) for _ in range(30)]
            for client in deaf:
                client.connection.pause_reading()
                for _ in range(8):
                    client.send(LARGE_KEY, 2, **ASKED)
            await wait_until(lambda: "slow" in server.figures.listeners["one"].ended)
            await asyncio.sleep(1)
            assert 2 <= server.connection_count < len(deaf)
            assert await is_served(reader)
            for client in deaf:
                client.connection.abort()
            await wait_until(lambda: server.connection_count == 1)
            assert await is_served(reader)

    simulation.run(main)
