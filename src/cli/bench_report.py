"""The report of a bench run: results, settings, machine."""

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from .output import cell_text, count_text, print_json, print_table, size_text

if TYPE_CHECKING:
    from .bench_runs import FetchPlan, LatencyPlan, Measured, ProducePlan

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def print_report(
    measured: "Measured",
    plan: "ProducePlan | FetchPlan | LatencyPlan",
    *,
    partitions: int,
    as_json: bool,
) -> None:
    """Print the results of a run with its settings and the machine."""
    row = report_json(measured) | {
        "settings": asdict(plan) | {"partitions": partitions},
        "machine": machine(),
    }
    if as_json:
        print_json(row)
        return
    size = size_text(measured.bytes)
    rate = size_text(row["bytes_per_second"])
    cpu = row["cpu_seconds_per_million"]
    typer.echo(
        f"{count_text(measured.records, 'record')}, {size} in {measured.seconds:.2f} s: "
        f"{row['records_per_second']:,.0f} records/s, {rate}/s, "
        f"{'-' if cpu is None else f'{cpu:.2f}'} CPU seconds per million records (this process)"
    )
    print_table(
        ("latency, ms", "samples", *(f"p{percent:g}" for percent in PERCENTILES), "max"),
        [
            (
                name,
                len(values),
                *(f"{value:.3f}" for value in latency_json(values)["ms"].values()),
            )
            for name, values in measured.latencies_ns.items()
            if values
        ],
        empty="No latency was sampled.",
    )
    settings = {name: value for name, value in row["settings"].items() if value is not None}
    typer.echo(cell_text(settings))
    facts = row["machine"] | {"cpus": count_text(row["machine"]["cpus"], "CPU")}
    typer.echo(", ".join(facts.values()))


def report_json(measured: "Measured") -> dict[str, Any]:
    """Return the JSON object of a run's results."""
    seconds = max(measured.seconds, 1e-9)
    millions = measured.records / 1e6
    return {
        "bench": measured.kind,
        "records": measured.records,
        "bytes": measured.bytes,
        "seconds": round(measured.seconds, 6),
        "records_per_second": round(measured.records / seconds, 1),
        "bytes_per_second": round(measured.bytes / seconds, 1),
        "cpu_seconds": round(measured.cpu_seconds, 6),
        "cpu_seconds_per_million": (
            round(measured.cpu_seconds / millions, 3) if measured.records else None
        ),
        "latency": {
            name: latency_json(values) for name, values in measured.latencies_ns.items() if values
        },
    }


def latency_json(latencies_ns: Sequence[int]) -> dict[str, Any]:
    """Return the percentiles of latencies in milliseconds: `{"samples", "ms": {"p50", ...}}`."""
    ordered = sorted(latencies_ns)
    found = {f"p{percent:g}": percentile(ordered, percent) / 1e6 for percent in PERCENTILES}
    return {"samples": len(ordered), "ms": found | {"max": ordered[-1] / 1e6}}


def percentile(ordered: Sequence[int], percent: float) -> int:
    """Return the percentile by nearest rank: the smallest value that at least `percent` per cent of
    the values do not exceed. The values must be in ascending order."""
    assert ordered, "no values"
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(0, int(rank) - 1)]


def machine() -> dict[str, Any]:
    """Return the CPU, its count, the operating system and the Python version."""
    return {
        "cpu": _cpu_name(),
        "cpus": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
