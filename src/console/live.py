"""Live updates: the stream of server-sent events of one open page.

The next values are computed only after the connection accepted the previous event, and only while
the page is open. A pause takes at least PAUSE_FACTOR times as long as the refresh before it: a page
of a large cluster uses at most a fifth of the time. After a failed refresh the page keeps its
values; the event has the banner.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ..errors import Overloaded, QuorumlogError
from .failures import failure_of
from .html import render
from .page import Page, PageServer, Visit
from .sessions import Session, Sessions

PAUSE_FACTOR: Final = 4
PAUSE_S_MAX: Final = 30.0
EVENT_STREAM: Final = {"Content-Type": "text/event-stream; charset=utf-8"}


def event(name: str, data: str) -> bytes:
    """Return a server-sent event."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join((f"event: {name}", *(f"data: {line}" for line in lines), "", "")).encode()


async def stream(server: PageServer, sessions: Sessions, request: Request, page: Page) -> Response:
    """Return the live updates of a page."""
    session = server.session_of(request, is_use=False)
    if session is None or not session.is_signed_in:
        return PlainTextResponse("The session has ended.\n", status_code=401)
    try:
        session.check_streams()
    except Overloaded as error:
        return PlainTextResponse(f"{error}\n", status_code=429)
    visit = server.visit_of(request, session, prefix="/live")
    if page.stream is not None:
        return SessionStream(page.stream(visit), session)
    return SessionStream(Updates(server, sessions, page, visit), session)


class Updates:
    """The events of one page, until its session ends."""

    def __init__(self, server: PageServer, sessions: Sessions, page: Page, visit: Visit) -> None:
        self.session = visit.session
        self._server = server
        self._sessions = sessions
        self._page = page
        self._visit = visit
        # A page that was just sent has its values.
        self._pause_s = page.refresh_s / 2 if visit.url in self.session.fragments else 0.0
        self._last = ""
        self._has_ended = False

    def __aiter__(self) -> "Updates":
        return self

    async def __anext__(self) -> bytes:
        """Wait, refresh, and return the event."""
        if self._has_ended:
            raise StopAsyncIteration
        await asyncio.sleep(self._pause_s)
        is_open = self._sessions.find(self.session.id, is_use=False) is self.session
        if not is_open or not self.session.is_signed_in:
            self._has_ended = True
            return event("ended", "")
        began_s = time.monotonic()
        self._pause_s = self._page.refresh_s
        try:
            html = await self._server.fragment(self._page, replace(self._visit, now_s=began_s))
        except QuorumlogError as error:
            self._last = ""
            return event("failed", render("banner.html", {"failure": failure_of(error)}))
        took_s = time.monotonic() - began_s
        self._pause_s = min(PAUSE_S_MAX, max(self._page.refresh_s, PAUSE_FACTOR * took_s))
        if html == self._last:
            return event("same", "")  # the values are confirmed, and the browser changes nothing
        self._last = html
        return event("live", html)


class SessionStream(StreamingResponse):
    """A response that counts as an open stream of its session until it ends; then its iterator is
    closed."""

    def __init__(
        self,
        parts: AsyncIterator[bytes],
        session: Session,
        headers: Mapping[str, str] = EVENT_STREAM,
    ) -> None:
        super().__init__(parts, headers=headers)
        self._session = session
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._session.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._session.streams -= 1
            if isinstance(self._parts, AsyncGenerator):
                await self._parts.aclose()  # closes its consumer if the browser disconnected
