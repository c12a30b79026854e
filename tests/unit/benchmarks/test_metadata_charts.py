"""Cost curves: positions of points, and the charts and tables on the page."""

import xml.etree.ElementTree as ElementTree
from typing import Any

from benchmarks.metadata.charts import HEIGHT, LEFT, Curve, Panel, draw, scale
from benchmarks.metadata.sweep import AXES, PANELS, panels
from benchmarks.metadata.words import COSTS, ROLLING
from benchmarks.page import page

MACHINE = {"cores": 2, "cpu": "a processor", "python": "3.11"}
SVG = "{http://www.w3.org/2000/svg}"


def rows(axis: str) -> list[dict[str, Any]]:
    keys = [key for names in PANELS.values() for key in names]
    return [
        {axis: getattr(shape, axis)} | dict.fromkeys(keys, 0.0 if number == 0 else 7.0)
        for number, shape in enumerate(AXES[axis])
    ]


def test_an_axis_holds_whole_decades_and_at_least_one() -> None:
    assert (scale([3, 40], 0, 1).low, scale([3, 40], 0, 1).high) == (0, 2)
    assert (scale([100], 0, 1).low, scale([100], 0, 1).high) == (2, 3)
    axis = scale([1, 100], 10, 30)
    assert [axis.at(value) for value in (1, 10, 100)] == [10, 20, 30]


def test_linear_growth_is_a_straight_line() -> None:
    curve = Curve(name="a cost", points=((1, 10), (10, 100), (100, 1_000)))
    svg = draw([Panel(across="sizes", unit="s", curves=(curve,))], title="A & B")
    line = ElementTree.fromstring(svg).find(f".//{SVG}polyline")
    assert line is not None
    (x1, y1), (x2, y2), (x3, y3) = (map(float, p.split(",")) for p in line.attrib["points"].split())
    assert x2 - x1 == x3 - x2 > 0
    assert y1 - y2 == y2 - y3 > 0
    assert x1 == LEFT
    assert y3 < y1 < HEIGHT


def test_every_axis_has_all_its_costs_even_unmeasurably_small_ones() -> None:
    for axis in AXES:
        svg = ElementTree.fromstring(draw(list(panels(axis, rows(axis))), title=axis))
        assert len(svg.findall(f".//{SVG}polyline")) == sum(len(names) for names in PANELS.values())


def test_page_has_a_picture_for_each_axis_and_a_column_for_each_phase() -> None:
    phase = dict.fromkeys(ROLLING, 1) | {"name": "one after the other"}
    rolling = {"failures": 10, "phases": [phase, phase | {"name": "at the same time"}]}
    took = {"events": 1, "cpu_s": 1.0, "memory_mib": 1}
    text = page(
        {
            "metadata": MACHINE | {"rows": [dict.fromkeys(COSTS, 1) | {"partitions": 1_000}]},
            "metadata_sweep": MACHINE | {"sweeps": {axis: rows(axis) for axis in AXES}},
            "metadata_rolling": MACHINE | rolling | took,
        }
    )
    for axis in AXES:
        assert f"(pictures/metadata_{axis}.svg)" in text
    assert "| 10 brokers | one after the other | at the same time |" in text
    assert "`python -m benchmarks.metadata.rolling`" in text
