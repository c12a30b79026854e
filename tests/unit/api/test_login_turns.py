"""Turns of logins with PLAIN in the lane of password digests."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

import pytest
from immutables import Map
from tests.kit.users import SALT, SHA_256

from quorumlog import simulation
from quorumlog.api.authentication.sasl import LOGINS_WAITING_MAX, SaslServer
from quorumlog.errors import SaslAuthenticationFailed
from quorumlog.metadata import EMPTY_IMAGE
from quorumlog.metadata.scram_credentials import credential_of_password
from quorumlog.runtime import Runtime, Tasks

T = TypeVar("T")
HOST, OTHER_HOST = "10.0.0.1", "10.0.0.2"
MANY: Final = 40
_CREDENTIAL: Final = credential_of_password(SHA_256, "secret", salt=SALT, iterations=1)
_USERS: Final = ("mallory", "bob", *(f"user{number}" for number in range(MANY)))


class Lane:
    """The lanes of a runtime, and the results of their jobs."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.results: list[object] = []
        self.scope, self.drain, self.stop_node = tasks.scope, tasks.drain, tasks.stop_node

    async def offload(self, lane: str, job: Callable[[], T], *, cost_bytes: int = 0) -> T:
        """Run a job and keep its result."""

        def run() -> T:
            result = job()
            self.results.append(result)
            return result

        return await self._tasks.offload(lane, run, cost_bytes=cost_bytes)


class Logins:
    """The logins at one server, by the order of their ends."""

    def __init__(self, runtime: Runtime) -> None:
        image = replace(
            EMPTY_IMAGE, scram_credentials=Map({(each, SHA_256): _CREDENTIAL for each in _USERS})
        )
        self.lane = Lane(runtime.tasks)
        self.sasl = SaslServer(
            tasks=self.lane,
            nonces=runtime.entropy.stream("sasl"),
            secret=bytes(32),
            image=lambda: image,
            tokens=None,
        )
        self.ended: list[str] = []

    async def log_in(self, user: str, host: str = HOST) -> None:
        """Log in with PLAIN."""
        exchange = self.sasl.begin("PLAIN", ("PLAIN",), host=host)
        step = await exchange.step(f"\0{user}\0secret".encode())
        assert step.user is not None
        self.ended.append(user)


def run(main: Callable[[Logins], Awaitable[None]]) -> None:
    """Run with a server in simulated time."""

    async def with_logins(runtime: Runtime) -> None:
        await main(Logins(runtime))

    simulation.run(with_logins)


@pytest.mark.parametrize("host", [HOST, OTHER_HOST])
def test_user_with_many_logins_delays_another_user_by_one(host: str) -> None:
    async def main(logins: Logins) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(MANY):
                group.create_task(logins.log_in("mallory"))
            group.create_task(logins.log_in("bob", host))
        assert "bob" in logins.ended[:3]
        assert len(logins.ended) == MANY + 1

    run(main)


def test_address_with_many_users_delays_another_address_by_one_login() -> None:
    async def main(logins: Logins) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(MANY):
                group.create_task(logins.log_in(f"user{number}"))
            group.create_task(logins.log_in("bob", OTHER_HOST))
        assert "bob" in logins.ended[:3]

    run(main)


def test_logins_of_a_user_beyond_the_limit_are_refused_alone() -> None:
    async def main(logins: Logins) -> None:
        waiting = [asyncio.create_task(logins.log_in("mallory")) for _ in range(LOGINS_WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(SaslAuthenticationFailed, match="too many logins"):
            await logins.log_in("mallory")
        await logins.log_in("bob")
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await logins.log_in("mallory")

    run(main)


def test_digests_of_clients_that_left_are_not_computed() -> None:
    async def main(logins: Logins) -> None:
        left = [asyncio.create_task(logins.log_in("mallory")) for _ in range(MANY)]
        await asyncio.sleep(0)
        for each in left:  # each but the first waits behind the one before it
            each.cancel()
            await asyncio.gather(each, return_exceptions=True)
        await logins.log_in("bob")
        assert logins.lane.results.count(None) > 0
        assert len(logins.lane.results) - logins.lane.results.count(None) <= 2

    run(main)
