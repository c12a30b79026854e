"""The chart of docs/benchmarks.md: rates relative to Apache Kafka's."""

import re
from collections.abc import Iterator
from html import escape
from typing import Final

GROUPS: Final = (
    ("three replicas, acks=all", "Kafka protocol: three replicas"),
    ("one broker, acks=1", "Kafka protocol: one broker"),
)
BARS: Final = (
    ("produce, batches of 16 KB", "produce, 100 B, 16 KB: rate, of Kafka's"),
    ("produce, batches of 1 MiB", "produce, 100 B, 1 MiB: rate, of Kafka's"),
    ("fetch, batches of 16 KB", "fetch, 100 B, 16 KB: rate, of Kafka's"),
    ("fetch, batches of 1 MiB", "fetch, 100 B, 1 MiB: rate, of Kafka's"),
)
LEFT, ROW, BAR, TOP, WIDTH = 190, 22, 14, 40, 640
LABEL: Final = 44  # pixels to the right of the longest bar
TITLE: Final = "Rate relative to Apache Kafka 4.3.0 (= 1.0), records of 100 bytes; higher is better"
STYLE: Final = """
text { font: 12px system-ui, sans-serif; fill: #333; }
text { stroke: #fff; stroke-width: 4px; paint-order: stroke; }
.title, .group { font-weight: 600; }
.kafka { stroke: #888; stroke-dasharray: 4 3; }
"""


def chart(page: str) -> str:
    """Return the SVG document for the ratios of a page of benchmarks."""
    height = TOP + ROW * len(GROUPS) * (len(BARS) + 1) + 12
    end = height - 12
    ratios = {section: [_ratio(page, section, row) for _, row in BARS] for _, section in GROUPS}
    unit = (WIDTH - LEFT - LABEL) / max(1.0, *(max(each) for each in ratios.values()))
    kafka = LEFT + unit
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(TITLE)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text class="title" x="12" y="22">{escape(TITLE)}</text>',
        f'<line class="kafka" x1="{kafka:.0f}" y1="{TOP}" x2="{kafka:.0f}" y2="{end}"/>',
        *_bars(ratios, unit),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _bars(ratios: dict[str, list[float]], unit: float) -> Iterator[str]:
    """Yield a title and the bars of each group; `unit` is the width of Kafka's rate in pixels."""
    y = TOP
    for group, section in GROUPS:
        yield f'<text class="group" x="12" y="{y + 14}">{escape(group)}</text>'
        y += ROW
        for (name, _), ratio in zip(BARS, ratios[section], strict=True):
            color = "#2f6fdb" if ratio >= 1 else "#9aa5b5"
            width = ratio * unit
            yield f'<text x="24" y="{y + 12}">{escape(name)}</text>'
            yield f'<rect x="{LEFT}" y="{y}" width="{width:.0f}" height="{BAR}" fill="{color}"/>'
            yield f'<text x="{LEFT + width + 6:.0f}" y="{y + 12}">{ratio:.2f}</text>'
            y += ROW


def _ratio(page: str, section: str, row: str) -> float:
    """Return a ratio of a section of the page."""
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.search(rf"^\| {re.escape(row)} \| ([\d.]+) \|", text, re.MULTILINE)
    assert found, f"{section}: no row {row!r}"
    return float(found[1])
