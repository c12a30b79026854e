"""Live updates: one stream of server-sent events for an open page.

The next values are computed only after the previous event was accepted by the connection, and only
while the page is open. A stream whose refresh took long pauses longer, so that it uses at most a
fifth of the time. After a failed refresh the page keeps its values; the event has the banner.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from ..errors import QuorumlogError
from .failures import failure_of
from .page import Page, PageServer, Visit
from .rendering import render
from .sessions import STREAMS_MAX, Sessions

PAUSE_FACTOR: Final = 4  # pauses are at least so many times the duration of a refresh


def event(name: str, data: str) -> bytes:
    """Return a server-sent event."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join((f"event: {name}", *(f"data: {line}" for line in lines), "", "")).encode()


async def stream(server: PageServer, sessions: Sessions, request: Request, page: Page) -> Response:
    """Return the live updates of a page."""
    session = server.session_of(request, is_use=False)
    if session is None or not session.is_signed_in:
        return PlainTextResponse("The session has ended.\n", status_code=401)
    if session.streams >= STREAMS_MAX:
        return PlainTextResponse(
            f"{session.streams} pages of this session are open; the limit is {STREAMS_MAX}; close"
            " one.\n",
            status_code=429,
        )
    path = request.url.path.removeprefix("/live") or "/"
    visit = server.visit_of(request, session, path=path)
    return StreamingResponse(_events(server, sessions, page, visit), media_type="text/event-stream")


async def _events(
    server: PageServer, sessions: Sessions, page: Page, first: Visit
) -> AsyncIterator[bytes]:
    session, last = first.session, ""
    session.streams += 1
    try:
        # A page that was just sent has its values.
        await asyncio.sleep(0 if first.url not in session.fragments else page.refresh_s / 2)
        while sessions.find(session.id, is_use=False) is session and session.is_signed_in:
            began_s = time.monotonic()
            try:
                html = await server.fragment(page, _again(first, began_s))
            except QuorumlogError as error:
                yield event("failed", _banner(error))
                last = ""
            else:
                # An equal event costs the browser nothing, and keeps the age of the values.
                yield event("live", html) if html != last else event("same", "")
                last = html
            took_s = time.monotonic() - began_s
            await asyncio.sleep(max(page.refresh_s, PAUSE_FACTOR * took_s))
        yield event("ended", "")
    finally:
        session.streams -= 1


def _again(first: Visit, now_s: float) -> Visit:
    return Visit(
        session=first.session,
        arguments=first.arguments,
        query=first.query,
        path=first.path,
        now_s=now_s,
    )


def _banner(error: QuorumlogError) -> str:
    return render("banner.html", {"failure": failure_of(error)})
