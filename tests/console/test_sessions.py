"""Sessions without a server: idle timeout and bounds."""

import asyncio

from quorumlog.console.config import ConsoleConfig
from quorumlog.console.sessions import IDLE_S, SAMPLES_MAX, SESSIONS_MAX, Sessions

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


def test_sign_in_gives_a_session_another_id_and_token() -> None:
    async def check() -> None:
        sessions = Sessions(CONFIG)
        session = await sessions.open()
        before = (session.id, session.csrf)
        sessions.renew_id(session)
        assert sessions.find(before[0]) is None
        assert sessions.find(session.id) is session
        assert session.csrf != before[1]

    asyncio.run(check())


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
