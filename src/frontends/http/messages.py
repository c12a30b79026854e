"""What is asked and answered over HTTP."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
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
    """A request's head; what came as a body was dropped."""

    method: str  # GET or HEAD
    path: str  # without the query
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case; the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """An answer; the length and the connection's fate are the server's."""

    status: int = 200
    content_type: str = TEXT
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Route: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Answers the requests of one path; what it raises becomes a 500 and a line in the journal."""


def sentence(status: int, text: str, **headers: str) -> HttpResponse:
    """An answer for people; an underscore in a header's name stands for a hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpResponse(status=status, body=f"{text}\n".encode(), headers=named)
