"""Sessions without a server: idle timeout and bounds."""

import asyncio
from dataclasses import replace

import pytest

from quorumlog.clients.admin.security import Acl
from quorumlog.clients.credentials import SCRAM, TLS
from quorumlog.console.config import ConsoleConfig
from quorumlog.console.sessions import IDLE_S, SAMPLES_MAX, SESSIONS_MAX, Session, Sessions
from quorumlog.errors import SaslAuthenticationFailed
from quorumlog.testing import Broker

CONFIG = ConsoleConfig(bootstrap="127.0.0.1:1")


class Clock:
    """A clock that a test advances."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_session_ends_after_the_idle_time_and_live_updates_do_not_count() -> None:
    async def check() -> None:
        clock = Clock()
        sessions = Sessions(CONFIG, clock=clock)
        session = await sessions.open()
        clock.now_s += IDLE_S - 1
        assert sessions.find(session.id) is session  # a request renews it
        clock.now_s += IDLE_S - 1
        assert sessions.find(session.id, is_use=False) is session
        clock.now_s += 2
        assert sessions.find(session.id) is None
        await sessions.end_idle()
        clock.now_s -= IDLE_S
        assert sessions.find(session.id) is None, "it was removed"

    asyncio.run(check())


def test_number_of_sessions_is_bounded() -> None:
    async def check() -> None:
        clock = Clock()
        sessions = Sessions(CONFIG, clock=clock)
        opened = [await sessions.open() for _ in range(SESSIONS_MAX)]
        clock.now_s += 1
        kept = sessions.find(opened[0].id)  # a request
        newest = await sessions.open()
        assert sessions.find(opened[1].id) is None, "the one without requests for the longest time"
        found = [each for each in (*opened, newest) if sessions.find(each.id, is_use=False)]
        assert len(found) == SESSIONS_MAX
        assert kept is opened[0]

    asyncio.run(check())


def test_sessions_without_a_sign_in_end_no_signed_in_session() -> None:
    async def check() -> None:
        clock = Clock()
        sessions = Sessions(replace(CONFIG, needs_credentials=True), clock=clock)
        signed_in = await sessions.open()
        signed_in.is_signed_in = True
        clock.now_s += 1
        opened = [await sessions.open() for _ in range(2 * SESSIONS_MAX)]
        assert sessions.find(signed_in.id) is signed_in
        assert sessions.find(opened[-1].id) is opened[-1]
        assert sessions.find(opened[0].id) is None

    asyncio.run(check())


@pytest.mark.slow
def test_sign_in_replaces_the_session_and_concurrent_ones_do_not_mix() -> None:
    async def check(broker: Broker) -> None:
        config = ConsoleConfig(
            bootstrap=broker.grpc, tls=TLS(ca=broker.ca_file), mechanism="SCRAM-SHA-256"
        )
        sessions = Sessions(config)
        first = await sessions.open()
        right, wrong, other = (
            sessions.sign_in(first, SCRAM(user=user, password=password), user)
            for user, password in (("alice", "wonder"), ("bob", "wrong"), ("bob", "builder"))
        )
        alice, failure = await asyncio.gather(right, wrong, return_exceptions=True)
        assert isinstance(failure, SaslAuthenticationFailed)
        assert isinstance(alice, Session)
        assert alice.user == "alice"
        assert sessions.find(alice.id) is alice
        assert sessions.find(first.id) is None
        assert not first.is_signed_in, "its streams end"
        assert await other is None, "the session of its form has ended"
        assert alice.csrf != first.csrf
        await sessions.close()

    with Broker(secure=True) as broker:
        with broker.connect() as log:
            log.admin.set_password("alice", "wonder")
            log.admin.set_password("bob", "builder")
            for user in ("alice", "bob"):
                rights = {"principal": f"User:{user}", "resource_type": "Cluster"}
                log.admin.create_acls(
                    [Acl(operation="Describe", resource="kafka-cluster", **rights)]
                )
        asyncio.run(check(broker))


def test_series_keeps_the_newest_samples() -> None:
    async def check() -> None:
        session = await Sessions(CONFIG).open()
        for number in range(SAMPLES_MAX + 5):
            session.sample("rate", float(number), float(number))
        assert len(session.samples("rate")) == SAMPLES_MAX
        assert session.samples("rate")[0] == (5.0, 5.0)

    asyncio.run(check())


def test_values_of_a_user_do_not_outlive_the_sign_in() -> None:
    async def check() -> None:
        session = await Sessions(CONFIG).open()
        session.keep_fragment("/access/users", "alice", 1.0)
        session.sample("rate", 1.0, 1.0)
        session.totals["all"] = (1.0, {}, {})
        session.notice = "Created user alice."
        session.is_signed_in = True
        await session.close()
        left = (session.fragments, session.series, session.totals, session.groups)
        assert not any(left)
        assert (session.notice, session.plan, session.credentials) == ("", None, None)
        assert not session.is_signed_in

    asyncio.run(check())
