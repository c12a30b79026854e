"""Sessions of browsers: one client of the cluster each, with the credentials of its user.

Everything is in memory. A session ends after IDLE_S without a request, by a sign-out, or with the
process. Live updates of an open page do not count as requests.
"""

import asyncio
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from .. import aio
from ..clients.admin.groups import Group
from ..clients.credentials import SCRAM, Token
from ..errors import Overloaded
from ..ids import TopicPartition
from .config import ConsoleConfig

IDLE_S: Final = 30 * 60
CHECK_S: Final = 60  # between two searches for idle sessions
SESSIONS_MAX: Final = 64
STREAMS_MAX: Final = 16  # open pages and downloads of one session
SAMPLES_MAX: Final = 120  # of one series
SERIES_MAX: Final = 200  # of one session
GROUPS_MAX: Final = 8  # groups with kept descriptions of one session
PROGRESS_S: Final = 5.0  # minimum time between them; the default interval of automatic commits
FRAGMENTS_MAX: Final = 16  # last values of pages, kept for an outage
SESSION_STATE: Final = "session"  # of a request with a valid cookie, in its `state`

CONNECT_TIMEOUT_MS: Final = 2_000
REQUEST_TIMEOUT_MS: Final = 4_000
CALL_TIMEOUT_MS: Final = 6_000


Totals: TypeAlias = tuple[float, dict[tuple[str, int], int], dict[tuple[str, int], int]]
"""(monotonic seconds, end offsets, sizes in bytes) of partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetPlan:
    """The previewed offsets of a group, to be set exactly as shown."""

    id: str
    group: str
    after: Mapping[TopicPartition, int]
    changed: int  # offsets that differ from the committed ones


@dataclass(slots=True)
class Session:
    """The state of one browser."""

    config: ConsoleConfig
    id: str
    csrf: str  # token that every form has
    used_s: float  # monotonic time of the last request
    credentials: SCRAM | Token | None = None
    user: str = ""  # the name of the user, "" without credentials or a name in them
    is_signed_in: bool = False
    streams: int = 0  # open live updates and downloads
    # Samples by name, each as (monotonic seconds, value); collected while a page is open.
    series: "OrderedDict[str, deque[tuple[float, float]]]" = field(default_factory=OrderedDict)
    # The last values of pages by URL, as (monotonic seconds, HTML).
    fragments: "OrderedDict[str, tuple[float, str]]" = field(default_factory=OrderedDict)
    # The last end offsets and sizes of partitions by scope, with their time, for rates.
    totals: dict[str, Totals] = field(default_factory=dict)
    # The last two descriptions of groups by name, with their times, for progress.
    groups: "OrderedDict[str, list[tuple[float, Group]]]" = field(default_factory=OrderedDict)
    plan: OffsetPlan | None = None  # the last preview of a reset of offsets
    notice: str = ""  # shown once, on the next page: the outcome of a change
    _log: aio.AsyncLog | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def log(self) -> aio.AsyncLog:
        """Return the session's client, connected. Raise ConnectionFailed, or
        SaslAuthenticationFailed for refused credentials."""
        async with self._opening:
            if self._log is None:
                self._log = await aio.connect(
                    self.config.bootstrap,
                    connect_timeout_ms=CONNECT_TIMEOUT_MS,
                    request_timeout_ms=REQUEST_TIMEOUT_MS,
                    call_timeout_ms=CALL_TIMEOUT_MS,
                    tls=self.config.tls,
                    credentials=self.credentials,
                )
            return self._log

    async def close(self) -> None:
        """Close the client, and forget the credentials and all values of the user."""
        self.credentials = self.plan = None
        self.is_signed_in, self.notice, self.user = False, "", ""
        for values in (self.series, self.fragments, self.totals, self.groups):
            values.clear()
        log, self._log = self._log, None
        if log is not None:
            await log.close()

    def check_streams(self) -> None:
        """Raise Overloaded if the session has STREAMS_MAX open pages and downloads."""
        if self.streams >= STREAMS_MAX:
            raise Overloaded(
                f"{self.streams} pages and downloads of this session are open; the limit is"
                f" {STREAMS_MAX}; close one"
            )

    def sample(self, name: str, value: float, now_s: float) -> None:
        """Append a value to a series."""
        values = self.series.setdefault(name, deque(maxlen=SAMPLES_MAX))
        self.series.move_to_end(name)
        values.append((now_s, value))
        while len(self.series) > SERIES_MAX:
            self.series.popitem(last=False)

    def samples(self, name: str) -> list[tuple[float, float]]:
        """Return a series, the oldest sample first."""
        return list(self.series.get(name, ()))

    def progress_of(self, group: Group, now_s: float) -> tuple[float, Group]:
        """Return an earlier description of a group with its age in seconds, and keep this one.

        The earlier one is PROGRESS_S to two times as old while a page of the group is open. In the
        first second it has no offsets.
        """
        kept = self.groups.setdefault(group.name, [])
        self.groups.move_to_end(group.name)
        while len(self.groups) > GROUPS_MAX:
            self.groups.popitem(last=False)
        if kept and now_s - kept[-1][0] > PROGRESS_S * 12:
            kept.clear()  # of a page that was closed since
        if not kept or now_s - kept[-1][0] >= PROGRESS_S:
            kept.append((now_s, group))
            del kept[:-2]
        at_s, earlier = kept[0]
        if now_s - at_s < 1:
            return 0.0, replace(group, offsets=())
        return now_s - at_s, earlier

    def keep_fragment(self, url: str, html: str, now_s: float) -> None:
        """Keep the last values of a page."""
        self.fragments[url] = (now_s, html)
        self.fragments.move_to_end(url)
        while len(self.fragments) > FRAGMENTS_MAX:
            self.fragments.popitem(last=False)


class Sessions:
    """All sessions, and the login token of this start."""

    def __init__(
        self, config: ConsoleConfig, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.config = config
        self.token: Final = secrets.token_urlsafe(24)
        # Browsers send a host's cookies to all of its ports: a console names its own by its port.
        self.cookie = "quorumlog-session"
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def is_token(self, given: str) -> bool:
        """Return True if a text is the login token, in constant time."""
        return secrets.compare_digest(given.encode(), self.token.encode())

    async def open(self) -> Session:
        """Return a new session. At SESSIONS_MAX the session without requests for the longest time
        ends, of those that are not signed in if there are any: all users have the same token."""
        await self.end_idle()
        while len(self._sessions) >= SESSIONS_MAX:
            sessions = self._sessions.values()
            await self.end(min(sessions, key=lambda each: (each.is_signed_in, each.used_s)))
        credentials = Token(self.config.token) if self.config.token else None
        session = self._make(credentials, "")
        session.is_signed_in = not self.config.needs_credentials
        self._sessions[session.id] = session
        return session

    async def sign_in(
        self, session: Session, credentials: SCRAM | Token, user: str
    ) -> Session | None:
        """Log in at a broker; return the session that replaces the given one, or None if that has
        ended. Raise SaslAuthenticationFailed or another error of the broker.

        The new session has its own id, client and values. Streams of the former one end.
        """
        made = self._make(credentials, user)
        try:
            log = await made.log()
            await log.admin.describe_cluster()
            if self._sessions.get(session.id) is not session:
                return None
            del self._sessions[session.id]
            self._sessions[made.id] = made
            made.is_signed_in = True
        finally:
            await (session if made.is_signed_in else made).close()
        return made

    def _make(self, credentials: SCRAM | Token | None, user: str) -> Session:
        return Session(
            config=self.config,
            id=secrets.token_urlsafe(32),
            csrf=secrets.token_urlsafe(32),
            used_s=self._clock(),
            credentials=credentials,
            user=user,
        )

    def find(self, session_id: str, *, is_use: bool = True) -> Session | None:
        """Return a session that has not been idle for too long; with `is_use` it counts as used."""
        session = self._sessions.get(session_id)
        if session is None or self._clock() - session.used_s > IDLE_S:
            return None
        if is_use:
            session.used_s = self._clock()
        return session

    async def end(self, session: Session) -> None:
        """End a session and close its client."""
        self._sessions.pop(session.id, None)
        await session.close()

    async def end_idle(self) -> None:
        """End the sessions that have been idle for too long."""
        now_s = self._clock()
        for session in list(self._sessions.values()):
            if now_s - session.used_s > IDLE_S:
                await self.end(session)

    async def end_idle_forever(self) -> None:
        """End idle sessions until this is cancelled: their clients and passwords do not stay."""
        while True:
            await asyncio.sleep(CHECK_S)
            await self.end_idle()

    async def close(self) -> None:
        """End every session."""
        for session in list(self._sessions.values()):
            await self.end(session)
