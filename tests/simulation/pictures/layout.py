"""The layout of a sequence diagram, from the trace of a run.

Members are columns, time runs down. Time is not to scale: events close in time get the space of
their labels, and an idle second is a gap. The ruler on the left shows milliseconds. Pure and
deterministic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..levels.core.trace import (
    Crashed,
    Delivered,
    HighWatermark,
    LinksCut,
    RoleTaken,
    Sent,
    Started,
    StateChanged,
    TraceEvent,
    VotersSet,
)

LEFT = 70.0  # of the first lifeline
COLUMN = 230.0  # between two lifelines
TOP = 60.0
ROW_MIN, ROW_MAX = 6.0, 40.0  # pixels between consecutive times
PIXELS_PER_MS = 16.0
WORD_ROW = 15.0  # between two labels at one lifeline
QUIET = ("Heartbeat", "HeartbeatResponse")  # drawn thin and without labels


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message; a lost one ends half-way."""

    x1: float
    y1: float
    x2: float
    y2: float
    words: str
    tip: str  # tooltip
    is_lost: bool
    is_quiet: bool


@dataclass(frozen=True, slots=True)
class Band:
    """A section of a lifeline in one role; "down" without a process."""

    x: float
    y1: float
    y2: float
    role: str


@dataclass(frozen=True, slots=True)
class Word:
    """A label at a lifeline or at the ruler."""

    x: float
    y: float
    text: str
    kind: str  # "head", "role", "commit", "voters", "time"


@dataclass(frozen=True, slots=True)
class Cut:
    """A span in which links are cut."""

    y1: float
    y2: float
    words: str


@dataclass(slots=True)
class Diagram:
    """All shapes of a diagram."""

    width: float
    height: float
    arrows: list[Arrow] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)


@dataclass(slots=True)
class _Lifeline:
    x: float
    role: str = "down"
    since_y: float = TOP
    free_y: float = 0.0  # position of the next label
    offset: int = -1  # the last high watermark shown
    voters: tuple[int, ...] | None = None


def lay_out(
    trace: Sequence[TraceEvent], *, nodes: Sequence[int], heads: Mapping[int, str] | None = None
) -> Diagram:
    """Return the diagram of a trace for these members; `heads` are their labels."""
    events = sorted(trace, key=lambda event: event.at_us)
    places = _rows([event.at_us for event in events])
    end_y = (max(places.values()) if places else TOP) + 30
    diagram = Diagram(width=LEFT + COLUMN * (len(nodes) + 0.1), height=end_y + 10)
    lines = {node: _Lifeline(LEFT + COLUMN * (i + 0.35)) for i, node in enumerate(nodes)}
    for node, line in lines.items():
        diagram.words.append(
            Word(line.x, TOP - 24, (heads or {}).get(node, f"node {node}"), "head")
        )
    _ruler(diagram, places)
    _messages(diagram, events, places, lines)
    for event in events:
        _event(diagram, event, places[event.at_us], lines)
    for line in lines.values():
        diagram.bands.append(Band(line.x, line.since_y, end_y, line.role))
    _cuts(diagram, events, places, end_y)
    return diagram


def _rows(times_us: Sequence[int]) -> dict[int, float]:
    """Return the position of each time, in pixels from the top."""
    places: dict[int, float] = {}
    y, last_us = TOP, None
    for at_us in times_us:
        if at_us in places:
            continue
        if last_us is not None:
            y += min(ROW_MAX, max(ROW_MIN, (at_us - last_us) / 1000 * PIXELS_PER_MS))
        places[at_us], last_us = y, at_us
    return places


def _ruler(diagram: Diagram, places: dict[int, float]) -> None:
    last_y = 0.0
    for at_us, y in places.items():
        if y - last_y >= ROW_MAX:
            diagram.words.append(Word(LEFT - 14, y, f"{at_us / 1000:.1f} ms", "time"))
            last_y = y


def _messages(
    diagram: Diagram,
    events: Sequence[TraceEvent],
    places: dict[int, float],
    lines: dict[int, _Lifeline],
) -> None:
    arrivals: dict[int, int] = {}
    for event in events:
        if isinstance(event, Delivered):
            arrivals.setdefault(event.number, event.at_us)
    for event in events:
        if not isinstance(event, Sent) or event.receiver not in lines:
            continue
        source, target = lines[event.sender].x, lines[event.receiver].x
        y1 = places[event.at_us]
        arrived_us = arrivals.get(event.number)
        is_lost = arrived_us is None
        y2 = y1 + 10 if arrived_us is None else places[arrived_us]
        if is_lost:
            target = source + (target - source) * 0.45
        diagram.arrows.append(
            Arrow(
                source,
                y1,
                target,
                y2,
                words="" if event.message in QUIET else _short(event),
                tip=f"{event.message} epoch={event.epoch} {event.detail}".rstrip(),
                is_lost=is_lost,
                is_quiet=event.message in QUIET,
            )
        )


def _short(event: Sent) -> str:
    """Return the label of an arrow."""
    is_pre, is_given = "pre_vote=True" in event.detail, "granted=True" in event.detail
    names = {
        "VoteRequest": "pre-vote request" if is_pre else "vote request",
        "VoteResponse": ("pre-vote" if is_pre else "vote")
        + (" granted" if is_given else " denied"),
        "AppendRequest": "append" if "to=" in event.detail else "probe",
        "AppendResponse": "durable",
        "AppendRejected": "log mismatch",
        "SnapshotChunk": "snapshot",
        "SnapshotResponse": "received",
        "TimeoutNow": "timeout now",
        "EndEpoch": "end epoch",
        "FollowRequest": "find leader",
        "FollowResponse": "leader",
    }
    name = names.get(event.message, event.message)
    return name if event.epoch < 0 else f"{name} · {event.epoch}"


def _event(diagram: Diagram, event: TraceEvent, y: float, lines: dict[int, _Lifeline]) -> None:
    match event:
        case RoleTaken(node=node, role=role, epoch=epoch):
            _take_role(diagram, lines[node], y, role)
            _say(diagram, lines[node], y, f"{role.replace('_', '-')} · epoch {epoch}", "role")
        case Started(node=node):
            _take_role(diagram, lines[node], y, "unattached")
        case StateChanged(node=node, text=text, band=band):
            if band:
                _take_role(diagram, lines[node], y, band)
            _say(diagram, lines[node], y, text, "role" if band else "commit")
        case Crashed(node=node):
            _take_role(diagram, lines[node], y, "down")
            _say(diagram, lines[node], y, "crash", "role")
        case HighWatermark(node=node, offset=offset) if offset > lines[node].offset:
            lines[node].offset = offset
            _say(diagram, lines[node], y, f"committed to {offset}", "commit")
        case VotersSet(node=node, voters=voters) if voters != lines[node].voters:
            is_first = lines[node].voters is None
            lines[node].voters = voters
            if not is_first:
                _say(diagram, lines[node], y, f"voters {', '.join(map(str, voters))}", "voters")
        case _:
            pass


def _take_role(diagram: Diagram, line: _Lifeline, y: float, role: str) -> None:
    if y > line.since_y:
        diagram.bands.append(Band(line.x, line.since_y, y, line.role))
    line.role, line.since_y = role, y


def _say(diagram: Diagram, line: _Lifeline, y: float, text: str, kind: str) -> None:
    """Add a label to a lifeline, below the earlier ones."""
    y = max(y, line.free_y)
    line.free_y = y + WORD_ROW
    diagram.words.append(Word(line.x + 10, y, text, kind))


def _cuts(
    diagram: Diagram, events: Sequence[TraceEvent], places: dict[int, float], end_y: float
) -> None:
    since_y, words = 0.0, ""
    for event in events:
        if not isinstance(event, LinksCut):
            continue
        if words:
            diagram.cuts.append(Cut(since_y, places[event.at_us], words))
        words, since_y = _cut_words(event.links), places[event.at_us]
    if words:
        diagram.cuts.append(Cut(since_y, end_y, words))


def _cut_words(links: tuple[tuple[int, int], ...]) -> str:
    """Return a label of the cut links, by direction."""
    pairs = sorted({(min(link), max(link)) for link in links})
    both = set(links)
    parts = []
    for left, right in pairs:
        if (left, right) in both and (right, left) in both:
            parts.append(f"{left} ↮ {right}")
        else:
            source, target = (left, right) if (left, right) in both else (right, left)
            parts.append(f"{source} ↛ {target}")
    return "cut: " + ", ".join(parts) if parts else ""
