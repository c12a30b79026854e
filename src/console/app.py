"""The application: routes of every page and form, static files, and the login."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from . import live
from .html import compile_templates, render
from .page import Download, Page, PageChange, PageServer
from .pages import (
    access,
    broker,
    brokers,
    group,
    groups,
    overview,
    record,
    records,
    settings,
    topic,
    topics,
    transaction,
    transactions,
)
from .protection import Protection
from .sessions import Sessions
from .sign_in import SignIn

MODULES: Final = (
    *(overview, topics, topic, records, record),
    *(groups, group, transactions, transaction),
    *(brokers, broker, access, settings),
)
"""The modules of pages; each has PAGES and CHANGES, some have DOWNLOADS."""

STATIC: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""The static files, by name, with their types."""

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(sessions: Sessions, *, hosts: frozenset[str]) -> Protection:
    """Return the application; `hosts` are the accepted values of `Host`."""
    compile_templates()
    pages: list[Page] = [page for module in MODULES for page in module.PAGES]
    changes: list[PageChange] = [change for module in MODULES for change in module.CHANGES]
    downloads: list[Download] = [
        each for module in MODULES for each in getattr(module, "DOWNLOADS", ())
    ]
    server = PageServer(sessions, frozenset(page.section for page in pages))
    sign_in = SignIn(server, sessions)
    routes = [
        Route("/login", sign_in.login),
        Route("/sign-in", sign_in.show, methods=["GET"]),
        Route("/sign-in", sign_in.sign_in, methods=["POST"]),
        Route("/sign-out", sign_in.sign_out, methods=["POST"]),
        Route("/session", sign_in.state),
        *(_static(name, kind) for name, kind in STATIC.items()),
        *(_route(each.path, partial(server.download, download=each)) for each in downloads),
        *(_route(page.path, partial(server.show, page=page)) for page in pages),
        *(
            _route(
                "/live" + page.path.rstrip("/"), partial(live.stream, server, sessions, page=page)
            )
            for page in pages
            if page.is_live or page.stream is not None
        ),
        *(
            _route(change.path or change.page.path, partial(server.change, change=change), "POST")
            for change in changes
        ),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await sessions.close()

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={404: _not_found, 500: _unexpected},
    )
    return Protection(app, hosts=hosts, scheme=sessions.config.scheme)


async def _not_found(request: Request, error: Exception) -> Response:
    values = {"title": "No such page", "message": "The console has no page of this address."}
    return HTMLResponse(render("message.html", values), status_code=404)


async def _unexpected(request: Request, error: Exception) -> Response:
    message = (
        f"Unexpected {type(error).__name__}. This is a bug; please report it with the traceback in"
        " the console's log."
    )
    values = {"title": "Internal error", "message": message}
    return HTMLResponse(render("message.html", values), status_code=500)


def _route(path: str, answer: Endpoint, method: str = "GET") -> Route:
    async def endpoint(request: Request) -> Response:
        return await answer(request)

    return Route(path, endpoint, methods=[method])


def _static(name: str, kind: str) -> Route:
    content = files(__package__).joinpath("static", name).read_bytes()

    async def endpoint(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "max-age=600"})

    return Route(f"/static/{name}", endpoint)
