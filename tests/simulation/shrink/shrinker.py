"""Shrink the plan of a failed run: remove what the same violation does not need.

Three layers: options get their usual values, phases become shorter, and events are removed in ever
smaller parts (delta debugging, Zeller and Hildebrandt 2002). A change stays if the run violates the
same rule with no more events than before.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from .plan import Options, PlannedEvent, RunPlan
from .subjects import OptionEdit, PlayedPlan, Subject

Rewrite = Callable[[RunPlan], RunPlan]
SCALES = (0.02, 0.1, 0.25, 0.5)
"""Factors by which a phase is shortened."""
GAP_US = 1_000_000
"""Longer spans without an event are shortened to this."""


class Shrinker:
    """The search for a smaller plan, within a budget of time or of runs."""

    def __init__(
        self,
        subject: Subject,
        first: PlayedPlan,
        *,
        seconds: float = math.inf,
        runs_max: float = math.inf,
    ) -> None:
        """`first` is the recorded run; `seconds` of wall time are the bound of `shrink`, up to the
        length of one run. The result of a bound in runs is the same on every machine."""
        self.first = first
        self.best = first
        self.runs = 0
        self._subject = subject
        self._runs_max = runs_max
        self._ends_s = time.monotonic() + seconds

    @property
    def has_budget(self) -> bool:
        """True until the budget is spent."""
        return self.runs < self._runs_max and time.monotonic() < self._ends_s

    def shrink(self) -> PlayedPlan:
        """Return the smallest run that was found; the recorded one if its plan does not replay."""
        if not self._try(self.first.plan, is_first=True):
            return self.best
        if self._subject.replays_events:
            self._simplify_options(parts=4)
            self._remove_events()
            self._simplify_options()
            self._shorten_gaps()
        else:
            before = -1
            while self.has_budget and before != self.best.events:
                before = self.best.events
                self._shorten_phases()
                self._simplify_options(parts=4)
                self._remove_chunks()
        return self.best

    def _try(self, plan: RunPlan, *, is_first: bool = False) -> bool:
        """Replay a plan. Return True if it is the best one now."""
        if not self.has_budget:
            return False
        played = self._subject.play(plan)
        self.runs += 1
        is_better = played.rule == self.first.rule and (
            is_first or played.events <= self.best.events
        )
        if is_better:
            self.best = played
        return is_better

    # --- options and phases --------------------------------------------------------------------

    def _simplify_options(self, *, parts: int = 1 << 30) -> None:
        """Replace options by their usual values: all, then ever smaller parts, up to `parts`."""
        left = [edit for edit in self.best.edits if not self._is_usual(edit)]
        size, smallest = len(left), max(1, len(left) // parts)
        while left and size >= smallest and self.has_budget:
            for start in range(0, len(left), size):
                part = left[start : start + size]
                options = _with_edits(self.best.plan.options, part)
                self._try(replace(self.best.plan, options=options))
            left = [edit for edit in left if not self._is_usual(edit)]
            size = min(size // 2, len(left))

    def _is_usual(self, edit: OptionEdit) -> bool:
        return edit.path in self.best.plan.options.get(edit.group, {})

    def _shorten_phases(self) -> None:
        """Shorten the phases of a run, and move its events to their start."""
        for scale in SCALES:
            names = {name: max(1, int(span * scale)) for name, span in self._spans().items()}
            if names and self._try(_with_durations(_compressed(self.best.plan, scale), names)):
                return
        for name, span in self._spans().items():
            for scale in SCALES:
                durations = {name: max(1, int(span * scale))}
                if self._try(_with_durations(self.best.plan, durations)):
                    break
        for scale in SCALES:
            if self.best.plan.events and self._try(_compressed(self.best.plan, scale)):
                break

    def _spans(self) -> dict[str, int]:
        replaced = self.best.plan.options.get("durations", {})
        return {
            name: span if (now := replaced.get(name)) is None else int(now)
            for name, span in self.best.durations
        }

    def _shorten_gaps(self) -> None:
        """Shorten long spans without an event."""
        number = 1
        while number < len(self.best.plan.events) and self.has_budget:
            events = self.best.plan.events
            gap_us = events[number].at_us - events[number - 1].at_us
            if gap_us > GAP_US:
                earlier_us = gap_us - GAP_US
                moved = [
                    replace(each, at_us=each.at_us - earlier_us * (index >= number))
                    for index, each in enumerate(events)
                ]
                self._try(replace(self.best.plan, events=tuple(moved)))
            number += 1

    # --- events --------------------------------------------------------------------------------

    def _remove_events(self) -> None:
        """Remove the events of one node, of one kind, and in chunks."""
        before = -1
        while self.has_budget and before != len(self.best.plan.events):
            before = len(self.best.plan.events)
            self._remove_groups(_nodes_of)
            self._remove_chunks(end=max(1, before // 20))
            self._remove_groups(_kinds_of)
            self._remove_chunks()

    def _remove_groups(self, groups_of: Callable[[PlannedEvent], Iterable[str]]) -> None:
        """Remove all events of a group, largest groups first."""
        counts: dict[str, int] = {}
        for event in self.best.plan.events:
            for group in groups_of(event):
                counts[group] = counts.get(group, 0) + 1
        for group in sorted(counts, key=lambda name: (-counts[name], name)):
            events = self.best.plan.events
            kept = tuple(event for event in events if group not in groups_of(event))
            if len(kept) < len(events):
                self._try(replace(self.best.plan, events=kept))

    def _remove_chunks(self, *, end: int = 1) -> None:
        """Remove chunks of events, from the last one to the first, down to `end` events each."""
        size = len(self.best.plan.events)
        while size >= end and self.best.plan.events and self.has_budget:
            stop = len(self.best.plan.events)
            while stop > 0 and self.has_budget:
                events = self.best.plan.events
                start = max(0, stop - size)
                self._try(replace(self.best.plan, events=events[:start] + events[stop:]))
                stop = min(start, len(self.best.plan.events))
            size = size // 2 if size > 1 else 0


def _nodes_of(event: PlannedEvent) -> tuple[str, ...]:
    """Return the nodes in the key of an event."""
    words = event.key.replace(">", " ").split()
    return tuple(
        dict.fromkeys(word for word in words[1:] if word[:1] == "n" and word[1:].isdigit())
    )


def _kinds_of(event: PlannedEvent) -> tuple[str, ...]:
    """Return the verb, the kind of message, and the key of an event."""
    verb, _, rest = event.key.partition(" ")
    message = rest.rpartition(" ")[2]
    return tuple(dict.fromkeys((f"verb {verb}", f"message {message}", event.key)))


def _with_edits(options: Options, edits: Iterable[OptionEdit]) -> Options:
    """Return options with further edits."""
    changed = {group: dict(values) for group, values in options.items()}
    for edit in edits:
        changed.setdefault(edit.group, {})[edit.path] = edit.value
    return changed


def _with_durations(plan: RunPlan, durations: dict[str, int]) -> RunPlan:
    changed = {**plan.options.get("durations", {}), **durations}
    return replace(plan, options={**plan.options, "durations": changed})


def _compressed(plan: RunPlan, scale: float) -> RunPlan:
    """Return a plan with its events nearer to the first one."""
    if not plan.events:
        return plan
    first_us = plan.events[0].at_us
    events = [
        replace(each, at_us=first_us + int((each.at_us - first_us) * scale)) for each in plan.events
    ]
    return replace(plan, events=tuple(events))
