"""Curves over a size as SVG text: panels side by side with logarithmic axes, so that a cost linear
in the size is a straight line of slope one, and a constant cost is a horizontal line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Final

COLORS: Final = ("#2f6fdb", "#d1345b", "#1d7a48", "#8a3ffc")
WIDTH: Final = 300.0  # of a panel
HEIGHT: Final = 260.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 12.0, 52.0, 40.0  # margins of a panel
NAME_HEIGHT: Final = 13.0
STYLE: Final = """
text { font: 11px system-ui, sans-serif; fill: #333; }
.unit { font-weight: 600; }
.tick { fill: #777; font-size: 10px; }
.grid { stroke: #e4e7ec; }
.curve { fill: none; stroke-width: 1.8; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A cost; both coordinates of each point are above 0."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Curves of one unit over one size."""

    across: str  # the unit of the size
    unit: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """A logarithmic axis over whole decades."""

    low: int  # powers of ten
    high: int
    start: float  # in pixels
    end: float

    def at(self, value: float) -> float:
        """Return the position of a value."""
        share = (log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def scale(values: Sequence[float], start: float, end: float) -> Scale:
    """Return the axis for all of these values."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return Scale(low, max(high, low + 1), start, end)


def draw(panels: Sequence[Panel], *, title: str) -> str:
    """Return the SVG document."""
    width, names = WIDTH * len(panels), max(len(panel.curves) for panel in panels)
    height = HEIGHT + NAME_HEIGHT * names
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        _text(12, 20, title, "unit"),
    ]
    for number, panel in enumerate(panels):
        parts += [f'<g transform="translate({number * WIDTH:.0f} 0)">', *_panel(panel), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel) -> Iterator[str]:
    points = [point for curve in panel.curves for point in curve.points]
    across = scale([x for x, _ in points], LEFT, WIDTH - RIGHT)
    up = scale([y for _, y in points], HEIGHT - BOTTOM, TOP)
    yield _text(12, TOP - 14, panel.unit, "unit")
    for power in range(across.low, across.high + 1):
        x = across.at(10.0**power)
        yield _line(x, TOP, x, HEIGHT - BOTTOM)
        yield _text(x, HEIGHT - BOTTOM + 14, _power(power), "tick", "middle")
    for power in range(up.low, up.high + 1):
        y = up.at(10.0**power)
        yield _line(LEFT, y, WIDTH - RIGHT, y)
        yield _text(LEFT - 5, y + 3, _power(power), "tick", "end")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 29, panel.across, "", "middle")
    for number, curve in enumerate(panel.curves):
        color = COLORS[number % len(COLORS)]
        yield from _curve(curve, across, up, color)
        y = HEIGHT + NAME_HEIGHT * number
        yield f'<rect x="{LEFT:.0f}" y="{y - 5:.1f}" width="14" height="3" fill="{color}"/>'
        yield _text(LEFT + 20, y, curve.name)


def _curve(curve: Curve, across: Scale, up: Scale, color: str) -> Iterator[str]:
    places = [(across.at(x), up.at(y)) for x, y in curve.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline class="curve" stroke="{color}" points="{path}"/>'
    for (x, y), (size, cost) in zip(places, curve.points, strict=True):
        tip = escape(f"{curve.name}: {cost:,g} at {size:,.0f}")
        dot = f'cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"'
        yield f"<circle {dot}><title>{tip}</title></circle>"


def _power(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )
