"""Level `core`: play a seed and return its outcome."""

import traceback
from collections.abc import Callable
from typing import Final

from ...runs import Outcome
from .network import MESSAGE_NAMES
from .run import CoreRun
from .trace import Tracer

LINES_SHOWN: Final = 40
FRAMES_SHOWN: Final = 6


def play_core(
    seed: int, *, trace: Callable[[str], None] | None = None, tracer: Tracer | None = None
) -> Outcome:
    """Play a seed; a violation is part of the outcome.

    `trace` receives every event as a line, at the end; `tracer` receives structured events during
    the run.
    """
    run, failure = CoreRun(seed, tracer=tracer), ""
    error_name = ""
    try:
        run.play()
    except Exception as error:
        failure = "".join(traceback.format_exception(error, limit=-FRAMES_SHOWN)).strip()
        error_name = type(error).__name__
    recorder = run.harness.recorder
    if trace is not None:
        for line in recorder.lines(MESSAGE_NAMES):
            trace(line)
    last_events = list(recorder.lines(MESSAGE_NAMES, last=LINES_SHOWN)) if failure else []
    return Outcome(
        level="core",
        seed=seed,
        event_hash=recorder.hash(),
        events=recorder.count,
        virtual_ms=run.harness.now_us // 1000,
        facts=run.facts,
        options=run.options.differing(),
        failure=failure,
        error=error_name,
        last_events=last_events,
    )
