"""The costs of partitions, topics and brokers: one of them grows, the others are constant.

The cases are those of benchmarks.metadata, in CPU seconds instead of wall time, so that the shape
of a curve does not depend on other load of the machine. Every size is a separate process. The
curves go into docs/pictures.

Run: python -m benchmarks.metadata --sweep; python -m benchmarks.metadata.sweep draws the stored
results again.
"""

import json
import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any, Final

from benchmarks.metadata.cases import measure
from benchmarks.metadata.charts import Curve, Panel, draw
from benchmarks.metadata.subject import Shape
from benchmarks.raft.result import machine

RESULT = Path(__file__).parent.parent / "results" / "metadata_sweep.json"
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
FIXED: Final = 20_000
"""Partitions while topics or brokers grow."""
BROKERS: Final = 20
AXES: Final = {
    "partitions": tuple(
        Shape(partitions=count, partitions_a_topic=10, brokers=BROKERS)
        for count in (1_000, 3_000, 10_000, 30_000, 100_000)
    ),
    "topics": tuple(
        Shape(partitions=FIXED, partitions_a_topic=each, brokers=BROKERS)
        for each in (1_000, 100, 10, 1)
    ),
    "brokers": tuple(
        Shape(partitions=FIXED, partitions_a_topic=10, brokers=count) for count in (3, 10, 30, 100)
    ),
}
PANELS: Final = {
    "µs of processor a command": {
        "config_us": "config set",
        "move_us": "replicas changed",
        "create_us": "topic created",
        "delete_us": "topic deleted",
    },
    "s of processor": {
        "load_s": "start on a snapshot",
        "write_s": "snapshot written",
        "moved_s": "a broker falls",
    },
    "MiB": {"image_mib": "image", "snapshot_mib": "snapshot"},
}
LEAST: Final = 1e-3
"""The drawn value of results that are too small to measure."""


def main() -> None:
    """Measure, print, store, draw."""
    sweeps: dict[str, list[dict[str, Any]]] = {}
    spawned = multiprocessing.get_context("spawn")
    for axis, shapes in AXES.items():
        sweeps[axis] = []
        for shape in shapes:
            with spawned.Pool(1) as pool:
                row = pool.apply(measure, (shape, process_time))
            sweeps[axis].append(row)
            print(axis, "  ".join(f"{name}={value}" for name, value in row.items()), flush=True)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({**machine(), "sweeps": sweeps}, indent=2) + "\n")
    pictures(sweeps)


def pictures(sweeps: dict[str, list[dict[str, Any]]]) -> None:
    """Draw a picture for each axis."""
    for axis, rows in sweeps.items():
        path = PICTURES / f"metadata_{axis}.svg"
        path.write_text(draw(list(panels(axis, rows)), title=f"Cost against {axis}"))
        print(f"wrote {path.name}")


def panels(axis: str, rows: list[dict[str, Any]]) -> Iterator[Panel]:
    """Return the panels of an axis."""
    for unit, names in PANELS.items():
        curves = tuple(
            Curve(
                name=name,
                points=tuple((float(row[axis]), max(LEAST, float(row[key]))) for row in rows),
            )
            for key, name in names.items()
        )
        yield Panel(across=axis, unit=unit, curves=curves)


if __name__ == "__main__":
    pictures(json.loads(RESULT.read_text())["sweeps"])
    sys.exit(0)
