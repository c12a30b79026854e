"""Level `partitions`: play a seed and return its outcome."""

import traceback
from collections.abc import Callable
from typing import Final

from ...runs import Outcome
from .run import PartitionsRun

FRAMES_SHOWN: Final = 6


def play_partitions(seed: int, *, trace: Callable[[str], None] | None = None) -> Outcome:
    """Play a seed; a violation is part of the outcome."""
    run, failure = PartitionsRun(seed, trace=trace), ""
    error_name = ""
    try:
        run.play()
    except Exception as error:
        failure = "".join(traceback.format_exception(error, limit=-FRAMES_SHOWN)).strip()
        error_name = type(error).__name__
    return Outcome(
        level="partitions",
        seed=seed,
        event_hash=run.world.hash(),
        events=run.world.events,
        virtual_ms=run.world.now_us // 1000,
        facts=run.facts,
        options=run.world.options.differing(),
        failure=failure,
        error=error_name,
        last_events=list(run.world.last) if failure else [],
    )
