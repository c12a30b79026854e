"""Live updates: the stream of server-sent events of one open page.

The next values are computed only after the connection accepted the previous event, and only while
the page is open. A pause takes at least PAUSE_FACTOR times as long as the refresh before it: a page
of a large cluster uses at most a fifth of the time. After a failed refresh the page keeps its
values; the event has the banner.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ..errors import Overloaded, QuorumlogError
from .failures import failure_of
from .html import render
from .page import Page, PageServer, Visit, Write
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
        return SessionStream(partial(page.stream, visit), session)
    return SessionStream(partial(_update, server, sessions, page, visit), session)


async def _update(
    server: PageServer, sessions: Sessions, page: Page, visit: Visit, write: Write
) -> None:
    """Write the events of one page until its session ends."""
    session, last = visit.session, ""
    # A page that was just sent has its values.
    pause_s = page.refresh_s / 2 if visit.url in session.fragments else 0.0
    while True:
        await asyncio.sleep(pause_s)
        if sessions.find(session.id, is_use=False) is not session or not session.is_signed_in:
            await write(event("ended", ""))
            return
        began_s = time.monotonic()
        pause_s = page.refresh_s
        try:
            html = await server.fragment(page, replace(visit, now_s=began_s))
        except QuorumlogError as error:
            last = ""
            await write(event("failed", render("banner.html", {"failure": failure_of(error)})))
            continue
        took_s = time.monotonic() - began_s
        pause_s = min(PAUSE_S_MAX, max(page.refresh_s, PAUSE_FACTOR * took_s))
        # Equal values are confirmed, and the browser changes nothing.
        await write(event("same", "") if html == last else event("live", html))
        last = html


class SessionStream(StreamingResponse):
    """A response with a body that a function writes. It counts as an open stream of its session
    until it ends; the function is cancelled if the browser disconnects."""

    def __init__(
        self,
        body: Callable[[Write], Awaitable[None]],
        session: Session,
        headers: Mapping[str, str] = EVENT_STREAM,
    ) -> None:
        super().__init__((), headers=headers)
        self._session = session
        self._body = body

    async def stream_response(self, send: Send) -> None:
        """Send the head and what the function writes."""

        async def write(part: bytes) -> None:
            await send({"type": "http.response.body", "body": part, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._body(write)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._session.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._session.streams -= 1
