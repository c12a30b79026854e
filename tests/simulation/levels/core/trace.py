"""The story of a run as structured events, for pictures: who sent what to whom and when it arrived,
who took which role, what was committed, who crashed, which links were cut.

Times are microseconds of virtual time; members are named by their node id. An arrow is a `Sent`
and the `Delivered` of the same number; a `Sent` without one was lost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message left a member; one with two copies arrives twice under one number."""

    at_us: int
    number: int
    sender: int
    receiver: int
    message: str  # its class's name
    detail: str  # in a few words, for the arrow
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A message arrived."""

    at_us: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTaken:
    """A member is in another role, or in another epoch."""

    at_us: int
    node: int
    role: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermark:
    """A member's high watermark moved."""

    at_us: int
    node: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersSet:
    """Another voter set is in force at a member."""

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
    """A member's process began."""

    at_us: int
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksCut:
    """From now on nothing arrives over these links, (sender, receiver); none: all are whole."""

    at_us: int
    links: tuple[tuple[int, int], ...]


TraceEvent: TypeAlias = (
    Sent | Delivered | RoleTaken | HighWatermark | VotersSet | Crashed | Started | LinksCut
)
Tracer: TypeAlias = Callable[[TraceEvent], None]


def detail_of(message: object) -> str:
    """A message in a few words: what its arrow says below its name."""
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
