"""The files and the printed report of a shrunk seed, and the replay of its plan."""

import sys
from pathlib import Path
from typing import Final

from ..pictures.layout import lay_out
from ..pictures.svg import draw
from .plan import PlanRefused, load_plan, store_plan
from .shrinker import Shrinker
from .story import text_of
from .subjects import PlayedPlan, subject_of

PASSES, REFUSED, DOES_NOT_REPLAY = 3, 2, 4
STORY_LINES_MAX: Final = 400
TIMELINE_EVENTS_MAX: Final = 2_000


def shrink_seed(level: str, seed: int, *, seconds: float, folder: Path) -> int:
    """Shrink a seed, write its plan and its timeline, and print its story.

    Return 0, or PASSES for a seed that passes, or DOES_NOT_REPLAY if the recorded plan of the seed
    has not the violation of the seed.
    """
    subject = subject_of(level, seed)
    first = subject.play(None)
    if not first.rule:
        say(f"seed {seed} of level {level} passes: nothing to shrink ({first.events:,} events)")
        return PASSES
    shrinker = Shrinker(subject, first, seconds=seconds)
    best = shrinker.shrink()
    if best is first:
        say(f"seed {seed} of level {level}: its recorded plan does not replay {first.rule}")
        return DOES_NOT_REPLAY
    path = folder / f"{level}-{seed}.json"
    store_plan(best.plan, path)
    played = subject.play(best.plan, has_story=True)
    timeline = path.with_suffix(".svg")
    timeline.write_text(timeline_of(played))
    say(story_of(played))
    say(
        f"events:   {best.events:,} of {first.events:,} ({best.events / first.events:.1%}),"
        f" after {shrinker.runs} runs\n"
        f"timeline: {timeline}\n"
        f"replay:   python -m tests.simulation --level {level} --seed {seed} --plan {path}"
    )
    return 0


def replay_plan(level: str, seed: int | None, path: Path) -> int:
    """Replay a plan file and print its story. Return 1 if it violates a rule, 0 if it passes, and
    REFUSED for an invalid file."""
    try:
        plan = load_plan(path, level=level, seed=seed)
        played = subject_of(level, plan.seed).play(plan, has_story=True)
    except (OSError, PlanRefused) as error:
        say(error)
        return REFUSED
    say(story_of(played))
    return 1 if played.rule else 0


def say(text: object) -> None:
    """Write a text and the end of its line to the standard output."""
    sys.stdout.write(f"{text}\n")


def story_of(played: PlayedPlan) -> str:
    """Return the story of a replayed plan, with the number of its replaced options and its event
    hash."""
    replaced = sum(len(values) for values in played.plan.options.values())
    lines = played.story[-STORY_LINES_MAX:]
    left_out = len(played.story) - len(lines)
    head = [f"options:  as drawn, {replaced} of them replaced by usual or smaller values"]
    if left_out:
        head.append(f"without the first {left_out} lines")
    body = text_of(lines, rule=played.rule or "nothing", detail=played.detail)
    return "\n".join([*head, body, f"hash:     {played.event_hash[:16]}, {played.events} events"])


def timeline_of(played: PlayedPlan) -> str:
    """Return the timeline as an SVG document; of a long run its end."""
    trace = list(played.trace)[-TIMELINE_EVENTS_MAX:]
    heads = dict(enumerate(played.nodes, start=1))
    title = f"Seed {played.plan.seed} of level {played.plan.level}: {played.rule}"
    return draw(lay_out(trace, nodes=list(heads), heads=heads), title=title)
