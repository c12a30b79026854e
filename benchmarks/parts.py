"""The parts of a benchmark package: their options, and runs of single parts."""

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import uvloop

Play: TypeAlias = Callable[[Path], Awaitable[dict[str, Any]]]
"""Measures one part in its own folder; returns the result."""


def parser(
    about: str | None, parts: Iterable[str], *, rounds: int, seconds: float
) -> argparse.ArgumentParser:
    """Return a parser with the common options."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--only", choices=tuple(parts), default=None, help="one part")
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--seconds", type=float, default=seconds, help="of each row and round")
    made.add_argument("--dir", type=Path, default=None, help="the disk; default: temporary")
    made.add_argument("--quick", action="store_true", help="a little of it, not stored")
    return made


def play(
    parts: Mapping[str, Play], options: argparse.Namespace, *, prefix: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the selected parts; yield each result as soon as it is measured."""
    for name, part in parts.items():
        if options.only not in (None, name):
            continue
        with (
            tempfile.TemporaryDirectory(prefix=prefix, dir=options.dir) as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            result = runner.run(_awaited(part, Path(folder)))
        yield name, result


async def _awaited(part: Play, folder: Path) -> dict[str, Any]:
    return await part(folder)


def say(compared: Sequence[Mapping[str, Any]]) -> None:
    """Print ratios with their goals."""
    for each in compared:
        verdict = "reached" if each["met"] else "missed"
        print(f"{each['what']}: {each['ratio']:.2f}, goal {each['goal']} {verdict}")
