"""Pages and changes: the types that the modules of `pages` use, and their routes.

A page has a template with the block `live`, its changing part, and a function that loads the values
of that block from the cluster:

    async def load(visit: Visit) -> Values:
        log = await visit.log()
        return {"groups": await log.admin.list_groups()}

    GROUPS = Page(
        path="/groups", section="groups", title="Groups", template="groups.html", load=load
    )

A change is a form. Its function returns the path of the next page, or raises a `QuorumlogError`,
which the page of the form shows beside the values that the user entered:

    async def delete(visit: Visit, form: Form) -> str: ...

    DELETE = PageChange(page=DELETE_PAGE, act=delete)
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from ..aio import AsyncLog
from ..clients.admin.descriptions import Cluster
from ..errors import InvalidRequest, QuorumlogError, SaslAuthenticationFailed, TimedOut
from ..visible_text import visible
from .cluster_view import Remark, part, remark_of
from .failures import Failure, failure_of
from .html import NAVIGATION, render, render_block, render_head
from .sessions import SESSION_STATE, Session, Sessions

Values: TypeAlias = Mapping[str, Any]
"""The values of a template, by name."""

Write: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends a part of a response, and returns once the connection has accepted it."""

FIRST_LOAD_S: Final = 1.0  # a live page without its values is sent after it; updates bring them
LOAD_S: Final = 15.0
FORM_BYTES_MAX: Final = 1024 * 1024
FIELDS_MAX: Final = 200
REFRESH_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The fields of a form that was sent; a field of that name twice has its last value."""

    fields: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Return a field without surrounding spaces, "" if it is absent."""
        return self.fields.get(name, "").strip()

    def exact(self, name: str) -> str:
        """Return a field as it was entered, "" if it is absent."""
        return self.fields.get(name, "")

    def is_checked(self, name: str) -> bool:
        """Return True if a checkbox is checked."""
        return bool(self.fields.get(name))

    def number(self, name: str, *, low: int, high: int) -> int | None:
        """Return a whole number, None if the field is empty. Raise InvalidRequest."""
        text, label = self.text(name), name.capitalize()
        if not text:
            return None
        try:
            value = int(text) if len(text) <= 20 else high + 1
        except ValueError:
            raise InvalidRequest(f"{label}: {text[:40]!r} is not a whole number") from None
        if not low <= value <= high:
            raise InvalidRequest(f"{label}: {text[:40]} is out of range; give {low:,} to {high:,}")
        return value

    def confirm(self, expected: str) -> None:
        """Raise InvalidRequest unless the field `confirmation` has the expected text, or that text
        with its hidden characters as escapes, as the form shows it."""
        if self.exact("confirmation") not in (expected, visible(expected)):
            raise InvalidRequest(f"not confirmed; enter {visible(expected)} to confirm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request for a page, or one refresh of it."""

    session: Session
    arguments: Mapping[str, str]  # the parts of the path, such as {"topic": "orders"}
    query: Mapping[str, str]
    path: str  # with percent-encoding, as in the URL
    now_s: float  # monotonic
    is_refresh: bool = False  # of an open page; else the page itself, which is sent soon

    async def log(self) -> AsyncLog:
        """Return the client of the user, connected; raise ConnectionFailed."""
        return await self.session.log()

    @property
    def url(self) -> str:
        """The path with the query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


async def _nothing(visit: Visit) -> Values:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page."""

    path: str  # of its route, such as "/topic/{topic}"
    section: str  # its entry of the navigation
    title: str  # may have the parts of the path: "Topic {topic}"
    template: str
    load: Callable[[Visit], Awaitable[Values]] = _nothing
    is_live: bool = True  # its block `live` is refreshed while it is open
    refresh_s: float = REFRESH_S
    # Writes its own server-sent events, instead of the refreshes of `live`.
    stream: Callable[[Visit, Write], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file that a link of a page returns, as an attachment."""

    path: str
    respond: Callable[[Visit], Awaitable[Response]]  # raises QuorumlogError before the response


@dataclass(frozen=True, slots=True, kw_only=True)
class PageChange:
    """One form: it is sent to the path of its page, or to `path`."""

    page: Page  # the page that has the form
    act: Callable[[Visit, Form], Awaitable[str]]  # returns the path of the next page
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The state of a form: what was entered, and the error of the change."""

    form: Form = Form()
    failure: Failure | None = None


class LoadTimedOut(TimedOut):
    """The values of a page took longer than its limit."""


async def load(page: Page, visit: Visit, limit_s: float) -> dict[str, Any]:
    """Return the values of a page, with the remark about the cluster; raise TimedOut after
    `limit_s`, or the cluster's error."""
    limit = asyncio.timeout(limit_s)
    try:
        async with limit:
            values = dict(await page.load(visit))
            if "remark" not in values and page.load is not _nothing:
                values["remark"] = await _remark(visit, values.get("cluster"))
            return values
    except TimeoutError as error:
        if not limit.expired() and isinstance(error, QuorumlogError):
            raise
        raise LoadTimedOut(
            f"the cluster did not answer within {limit_s:g} s; it has no leader or no connection,"
            " or it is busy"
        ) from None


async def _remark(visit: Visit, cluster: Cluster | None) -> Remark | None:
    """Return the remark of a page. `cluster` is the description that the page has read, None
    without one."""
    if cluster is not None:
        return remark_of(cluster)
    log = await visit.log()
    found = await part("cluster", log.admin.describe_cluster())
    return None if isinstance(found, QuorumlogError) else remark_of(found)


class PageServer:
    """Answers requests for pages and forms."""

    def __init__(self, sessions: Sessions, sections: frozenset[str]) -> None:
        self._sessions = sessions
        self._navigation = [entry for entry in NAVIGATION if entry[0] in sections]

    def session_of(self, request: Request, *, is_use: bool = True) -> Session | None:
        """Return the session of a request's cookie, None without a valid one."""
        session = self._sessions.find(request.cookies.get(self._sessions.cookie, ""), is_use=is_use)
        setattr(request.state, SESSION_STATE, session is not None)  # for the bounds of connections
        return session

    def visit_of(self, request: Request, session: Session, *, prefix: str = "") -> Visit:
        """Return the visit of a request; `prefix` is not part of its page's path."""
        return Visit(
            session=session,
            arguments=dict(request.path_params),
            query=dict(request.query_params),
            path=path_of(request).removeprefix(prefix) or "/",
            now_s=time.monotonic(),
        )

    async def show(self, request: Request, page: Page) -> Response:
        """Return a page."""
        session = self.session_of(request)
        if session is None:
            return self.refuse_stranger()
        if not session.is_signed_in:
            return RedirectResponse("/sign-in", status_code=303)
        return await self._page(page, self.visit_of(request, session), Attempt(), 200)

    async def change(self, request: Request, change: PageChange) -> Response:
        """Make a change; return the redirection to the next page, or the form with the error."""
        session = self.session_of(request)
        if session is None:
            return self.refuse_stranger()
        form = await read_form(request, session)
        if form is None:
            return refuse_form()
        if not session.is_signed_in:
            return RedirectResponse("/sign-in", status_code=303)
        visit = self.visit_of(request, session)
        try:
            path = await change.act(visit, form)
        except QuorumlogError as error:
            attempt = Attempt(form=form, failure=failure_of(error))
            return await self._page(change.page, visit, attempt, 422)
        assert path[:1] == "/" != path[1:2], f"not a path: {path}"
        return RedirectResponse(path, status_code=303)

    async def download(self, request: Request, download: Download) -> Response:
        """Return a file, or a page with the error."""
        session = self.session_of(request)
        if session is None:
            return self.refuse_stranger()
        if not session.is_signed_in:
            return RedirectResponse("/sign-in", status_code=303)
        try:
            return await download.respond(self.visit_of(request, session))
        except QuorumlogError as error:
            failure = failure_of(error)
            values = {"title": failure.heading, "message": failure.message}
            return HTMLResponse(render("message.html", values), status_code=failure.http_status)

    async def fragment(self, page: Page, visit: Visit) -> str:
        """Return the changing part of a page with present values, and keep it for an outage."""
        values = await load(page, replace(visit, is_refresh=True), LOAD_S)
        values = self._common(page, visit) | values
        html = render("remark.html", values) + render_block(page.template, "live", values)
        visit.session.keep_fragment(visit.url, html, time.monotonic())
        return html

    async def _page(self, page: Page, visit: Visit, attempt: Attempt, status: int) -> Response:
        session = visit.session
        common = self._common(page, visit) | {"attempt": attempt, "notice": session.notice}
        session.notice = ""
        try:
            values = await load(page, visit, FIRST_LOAD_S if page.is_live else LOAD_S)
        except QuorumlogError as error:
            if isinstance(error, SaslAuthenticationFailed) and session.config.needs_credentials:
                await session.close()
                return RedirectResponse("/sign-in", status_code=303)
            failure = failure_of(error)
            head = render_head(page.template, common)
            common["head"] = {} if failure.http_status == 404 else head
            age_s, html = None, ""
            if failure.http_status == 403:  # the values are not the user's any more
                session.fragments.pop(visit.url, None)
            elif page.is_live and visit.url in session.fragments:
                at_s, html = session.fragments[visit.url]
                age_s = round(time.monotonic() - at_s)
            if page.is_live and isinstance(error, LoadTimedOut):
                common |= {"old": html, "age_s": age_s}
                return HTMLResponse(render("failed.html", common), status_code=status)
            common |= {"failure": failure, "old": html, "age_s": age_s}
            code = status if html or status != 200 else failure.http_status
            return HTMLResponse(render("failed.html", common), status_code=code)
        return HTMLResponse(render(page.template, common | values), status_code=status)

    def _common(self, page: Page, visit: Visit) -> dict[str, Any]:
        """Return the values of every template."""
        session = visit.session
        return {
            "page": page,
            "visit": visit,
            "title": page.title.format(**visit.arguments),
            "navigation": self._navigation,
            "csrf": session.csrf,
            "user": session.user,
            "bootstrap": session.config.bootstrap,
            "failure": None,
            "age_s": None,
            "remark": None,
        }

    def refuse_stranger(self) -> Response:
        """Return the page for a browser without a session."""
        values = {"title": "Not signed in"}
        return HTMLResponse(render("stranger.html", values), status_code=401)


def path_of(request: Request) -> str:
    """Return the path of a request with its percent-encoding."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode("ascii", "replace")


async def read_form(request: Request, session: Session) -> Form | None:
    """Return the fields of a form; None without the session's CSRF token, or for an unreadable
    body."""
    if "application/x-www-form-urlencoded" not in request.headers.get("content-type", ""):
        return None
    body = bytearray()
    try:
        async with asyncio.timeout(LOAD_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > FORM_BYTES_MAX:
                    return None
    except (ClientDisconnect, TimeoutError):
        return None
    try:
        found = parse_qs(
            bytes(body).decode("utf-8"), keep_blank_values=True, max_num_fields=FIELDS_MAX
        )
    except ValueError:
        return None
    fields = {name: values[-1] for name, values in found.items()}
    given = fields.pop("csrf", "") or request.headers.get("x-csrf-token", "")
    if not secrets.compare_digest(given.encode(), session.csrf.encode()):
        return None
    return Form(fields=fields)


def refuse_form() -> Response:
    """Return the response to a form that is not of the session."""
    return PlainTextResponse(
        "The form has no valid token, is too large, or is not a form of this console; reload the"
        " page and send it again.\n",
        status_code=403,
    )
