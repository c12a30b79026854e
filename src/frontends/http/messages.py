"""HTTP requests, responses and routes."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """The head of a request; its body was dropped."""

    method: str  # GET or HEAD
    path: str  # without the query
    query: str = ""
    host: str = ""  # of the caller
    # names in lower case; the last value of each
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A response; the server adds its length and the connection headers."""

    status: int = 200
    content_type: str = TEXT
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Route: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Handles requests of one path; an exception becomes a 500 and a log line."""


Access: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse | None]]
"""Returns the refusal of a request, or None for a request that is answered."""


def sentence(status: int, text: str, **headers: str) -> HttpResponse:
    """Return a plain-text response; an underscore in a header's name stands for a hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpResponse(status=status, body=f"{text}\n".encode(), headers=named)
