"""SVG output of a diagram, without scripts or embedded fonts."""

from html import escape
from typing import Final

from .layout import Arrow, Band, Cut, Diagram, Word

COLORS: Final = {
    "unattached": "#b0b7c3",
    "follower": "#6ea8fe",
    "pre_candidate": "#ffd166",
    "candidate": "#f78c2a",
    "leader": "#34b36b",
    "idle": "#b0b7c3",
    "open": "#ffd166",
    "decided": "#f78c2a",
    "complete": "#34b36b",
    "down": "none",
}
STYLE: Final = """
text { font: 11px system-ui, sans-serif; fill: #333; }
text.halo { fill: none; stroke: #fff; stroke-width: 3px; }
.head { font-weight: 600; font-size: 13px; text-anchor: middle; }
.time { fill: #888; text-anchor: end; font-size: 10px; }
.commit { fill: #1d7a48; } .voters { fill: #8a3ffc; } .role { font-weight: 600; }
.message { text-anchor: middle; font-size: 10px; }
line.arrow { stroke: #444; stroke-width: 1.2; marker-end: url(#head); }
line.quiet { stroke: #bbb; stroke-width: 0.7; }
line.lost { stroke: #d1345b; stroke-dasharray: 4 3; marker-end: url(#lost); }
rect.cut { fill: #d1345b; opacity: 0.07; }
text.cut { fill: #d1345b; }
"""


def draw(diagram: Diagram, *, title: str) -> str:
    """Return the SVG document."""
    width, height = _number(diagram.width), _number(diagram.height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        "<defs>",
        _marker("head", "#444", "M0,0 L7,3 L0,6 z"),
        _marker("lost", "#d1345b", "M1,0 L6,6 M6,0 L1,6"),
        "</defs>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    parts += [_cut(cut, diagram.width) for cut in diagram.cuts]
    parts += [_band(band) for band in diagram.bands]
    parts += [_arrow(arrow) for arrow in sorted(diagram.arrows, key=lambda a: not a.is_quiet)]
    parts += [_word(word) for word in diagram.words]
    return "\n".join([*parts, "</svg>", ""])


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _marker(name: str, color: str, path: str) -> str:
    return (
        f'<marker id="{name}" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
        f'<path d="{path}" fill="{color}" stroke="{color}"/></marker>'
    )


def _band(band: Band) -> str:
    x, y1, y2 = _number(band.x), _number(band.y1), _number(band.y2)
    color = COLORS[band.role]
    if color == "none":
        return f'<line x1="{x}" y1="{y1}" x2="{x}" y2="{y2}" stroke="#ccc" stroke-dasharray="2 4"/>'
    return (
        f'<rect x="{_number(band.x - 4)}" y="{y1}" width="8" height="{_number(band.y2 - band.y1)}" '
        f'fill="{color}"/>'
    )


def _arrow(arrow: Arrow) -> str:
    kinds = ["arrow"] + ["quiet"] * arrow.is_quiet + ["lost"] * arrow.is_lost
    toward = 5 if arrow.x2 > arrow.x1 else -5
    x1, x2 = arrow.x1 + toward, arrow.x2 - toward
    line = (
        f'<line class="{" ".join(kinds)}" x1="{_number(x1)}" y1="{_number(arrow.y1)}" '
        f'x2="{_number(x2)}" y2="{_number(arrow.y2)}"><title>{escape(arrow.tip)}</title></line>'
    )
    if not arrow.words:
        return line
    # Closer to the sender, so that the labels of a request and its response do not overlap.
    x, y = x1 + (x2 - x1) * 0.3, arrow.y1 + (arrow.y2 - arrow.y1) * 0.3 - 3
    return line + _text(x, y, arrow.words, "message")


def _word(word: Word) -> str:
    return _text(word.x, word.y, word.text, word.kind)


def _text(x: float, y: float, text: str, kind: str) -> str:
    """Return a label with a halo, so that lines may pass behind it."""
    place = f'x="{_number(x)}" y="{_number(y)}"'
    words = escape(text)
    halo = f'<text class="{kind} halo" {place}>{words}</text>'
    return f'{halo}<text class="{kind}" {place}>{words}</text>'


def _cut(cut: Cut, width: float) -> str:
    y, height = _number(cut.y1), _number(cut.y2 - cut.y1)
    return (
        f'<rect class="cut" x="0" y="{y}" width="{_number(width)}" height="{height}"/>'
        f'<text class="cut" x="8" y="{_number(cut.y1 + 12)}">{escape(cut.words)}</text>'
    )
