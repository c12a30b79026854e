"""Structured events of a run, for diagrams: messages, roles, commits, crashes, cut links.

Times are microseconds of virtual time; members are node ids. A `Sent` with a `Delivered` of the
same number is an arrow; a `Sent` without one was lost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A member sent a message; a duplicated one is delivered twice under one number."""

    at_us: int
    number: int
    sender: int
    receiver: int
    message: str  # its class name
    detail: str  # a summary
    epoch: int  # -1: none


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A message arrived."""

    at_us: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTaken:
    """A member changed its role or epoch."""

    at_us: int
    node: int
    role: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermark:
    """A member's high watermark advanced."""

    at_us: int
    node: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersSet:
    """A member's voter set in force changed."""

    at_us: int
    node: int
    voters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """A member's process ended."""

    at_us: int
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A member's process started."""

    at_us: int
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksCut:
    """The set of links, (sender, receiver), that are cut from now on."""

    at_us: int
    links: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    """A state that a member stores has changed, such as that of a transaction."""

    at_us: int
    node: int
    text: str
    band: str = ""  # the new color of the lifeline: a name of `svg.COLORS`; empty: the same


TraceEvent: TypeAlias = (
    Sent
    | Delivered
    | RoleTaken
    | HighWatermark
    | VotersSet
    | Crashed
    | Started
    | LinksCut
    | StateChanged
)
Tracer: TypeAlias = Callable[[TraceEvent], None]


def detail_of(message: object) -> str:
    """Return a summary of a message."""
    parts = []
    for name in ("log_end", "prev", "hint"):
        place = getattr(message, name, None)
        if place is not None:
            parts.append(f"{name}={place.offset}@{place.epoch}")
    entries = getattr(message, "entries", None)
    if entries:
        parts.append(f"to={entries[-1].next_offset}")
    for name in ("pre_vote", "granted", "match_end", "high_watermark", "round", "position"):
        value = getattr(message, name, None)
        if value is not None:
            parts.append(f"{name}={value}")
    return " ".join(parts)
