"""Charts as SVG without scripts or styles of their own; the style sheet colours them."""

from collections.abc import Callable, Sequence
from typing import Final

from markupsafe import Markup

from . import formats

Samples = Sequence[tuple[float, float]]
"""(seconds, value), the oldest first."""

SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 28
CHART_WIDTH: Final = 640
CHART_HEIGHT: Final = 190
_LEFT: Final = 96  # room for the labels of the values
_BOTTOM: Final = 28


def sparkline(samples: Samples, label: str) -> Markup:
    """Return a small line of a series, for a tile. Its axis begins at 0."""
    points = _points(samples, 1, 3, SPARK_WIDTH - 2, SPARK_HEIGHT - 6)
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" role="img" preserveAspectRatio="none">'
        "<title>{label}</title>{area}{line}</svg>"
    ).format(
        w=SPARK_WIDTH,
        h=SPARK_HEIGHT,
        label=label,
        area=_area(points, SPARK_HEIGHT - 3),
        line=_line(points),
    )


def line_chart(samples: Samples, label: str, text: Callable[[float], str] = formats.rate) -> Markup:
    """Return a line of a series over time, with labels. Its axis begins at 0."""
    top, width, height = 10, CHART_WIDTH - _LEFT - 8, CHART_HEIGHT - _BOTTOM - 10
    if len(samples) < 2:
        return _empty_chart(label)
    points = _points(samples, _LEFT, top, width, height)
    highest = max(value for _, value in samples) or 1.0
    span_s = samples[-1][0] - samples[0][0]
    since = f"{formats.duration(span_s * 1000)} ago"
    rows = Markup("").join(
        Markup('<line class="grid" x1="{x}" x2="{end}" y1="{y}" y2="{y}"/>').format(
            x=_LEFT, end=CHART_WIDTH - 8, y=round(top + height * (1 - part), 1)
        )
        + Markup('<text x="{x}" y="{y}" text-anchor="end">{text}</text>').format(
            x=_LEFT - 8, y=round(top + height * (1 - part) + 4, 1), text=text(highest * part)
        )
        for part in (0.0, 0.5, 1.0)
    )
    times = Markup(
        '<text x="{x}" y="{y}">{since}</text><text x="{end}" y="{y}" text-anchor="end">now</text>'
    ).format(x=_LEFT, end=CHART_WIDTH - 8, y=CHART_HEIGHT - 7, since=since)
    return Markup(
        '<svg class="chart" viewBox="0 0 {w} {h}" role="img"><title>{label}</title>'
        "{rows}{times}{area}{line}</svg>"
    ).format(
        w=CHART_WIDTH,
        h=CHART_HEIGHT,
        label=label,
        rows=rows,
        times=times,
        area=_area(points, top + height),
        line=_line(points),
    )


def _empty_chart(label: str) -> Markup:
    return Markup(
        '<svg class="chart" viewBox="0 0 {w} {h}" role="img"><title>{label}</title>'
        '<line class="grid" x1="0" x2="{w}" y1="{base}" y2="{base}"/>'
        '<text class="none" x="{x}" y="{y}" text-anchor="middle">The line begins with the second'
        " refresh.</text></svg>"
    ).format(
        w=CHART_WIDTH,
        h=CHART_HEIGHT,
        label=label,
        base=CHART_HEIGHT - _BOTTOM,
        x=CHART_WIDTH // 2,
        y=CHART_HEIGHT // 2,
    )


def bar(part: float, label: str) -> Markup:
    """Return a horizontal bar of which `part`, 0 to 1, is filled."""
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" role="img" preserveAspectRatio="none">'
        '<title>{label}</title><rect class="track" width="100" height="8"/>'
        '<rect class="fill" width="{width}" height="8"/></svg>'
    ).format(label=label, width=round(max(0.0, min(1.0, part)) * 100, 1))


def _points(
    samples: Samples, left: float, top: float, width: float, height: float
) -> list[tuple[float, float]]:
    if len(samples) < 2:
        return []
    first_s, last_s = samples[0][0], samples[-1][0]
    highest = max(value for _, value in samples) or 1.0
    span_s = max(last_s - first_s, 1e-6)
    return [
        (
            round(left + width * (at_s - first_s) / span_s, 1),
            round(top + height * (1 - value / highest), 1),
        )
        for at_s, value in samples
    ]


def _line(points: Sequence[tuple[float, float]]) -> Markup:
    if not points:
        return Markup("")
    return Markup('<polyline class="line" points="{}"/>').format(_pairs(points))


def _area(points: Sequence[tuple[float, float]], base: float) -> Markup:
    if not points:
        return Markup("")
    closed = [(points[0][0], base), *points, (points[-1][0], base)]
    return Markup('<polygon class="area" points="{}"/>').format(_pairs(closed))


def _pairs(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)
