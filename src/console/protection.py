"""Checks of every request and headers of every response.

`Host` must be a name of the console, so that no other site's name resolves to it (DNS rebinding). A
request that changes anything needs the console's own `Origin`, and `page` checks its CSRF token.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # no-referrer would make the Origin of forms "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
SAFE_METHODS: Final = ("GET", "HEAD")
ALLOWED_METHODS: Final = (*SAFE_METHODS, "POST")


def host_names(host: str, port: int, *, allowed: Iterable[str] = ()) -> frozenset[str]:
    """Return the values of `Host` that a console at an address accepts. A name of `allowed` without
    a port is accepted with the console's port and without one."""
    own = f"[{host}]" if ":" in host and not host.startswith("[") else host
    names = {f"{name}:{port}" for name in (own, "localhost", "127.0.0.1", "[::1]")}
    for name in allowed:
        names |= {name} if urlsplit(f"//{name}").port else {name, f"{name}:{port}"}
    return frozenset(name.lower() for name in names)


class Protection:
    """ASGI middleware: refuses foreign hosts and origins, and adds the headers."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], scheme: str) -> None:
        self._app = app
        self._hosts = hosts
        self._scheme = scheme

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send_protected)
            return
        response = PlainTextResponse(f"{refusal[1]}\n", status_code=refusal[0])
        await response(scope, receive, send_protected)

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """Return the status and the reason of a refusal, None for an acceptable request."""
        if method not in ALLOWED_METHODS:
            return 405, f"{method[:20]!r}: not a method of the console; use GET or POST"
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, (
                f"Host {', '.join(hosts)[:100]!r}: not a name of this console; use the URL that it"
                " printed at its start, or start it with --allowed-host"
            )
        if method in SAFE_METHODS:
            return None
        origin = headers.get("origin", "")
        if origin.lower() != f"{self._scheme}://{hosts[0].lower()}":
            return 403, (
                f"Origin {origin[:100]!r}: not this console; changes are accepted from its own"
                " pages only"
            )
        return None
