"""The recorded plan of a run: changed options and the events that remain, as a JSON file.

A plan replays one seed of one level. Its events are executed in their order, at their times, each
with its recorded draws. The file has exactly the fields of `RunPlan`; any other one is refused.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

PLAN_VERSION: Final = 1
PLAN_BYTES_MAX: Final = 256 << 20

Draws: TypeAlias = dict[str, list[float | int]]
"""The draws of one event by stream, in order: a float of `random()`, an int of `getrandbits()`."""
OptionValue: TypeAlias = bool | int | float | str | None
Options: TypeAlias = dict[str, dict[str, OptionValue]]
"""Replaced options by group and path, such as {"faults": {"link_break": 0.0}}."""


class PlanRefused(ValueError):
    """A plan file is not valid here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvent:
    """An event of a run."""

    at_us: int  # virtual time
    key: str  # its name in the level, such as "deliver n1>n2 VoteRequest"
    draws: Draws = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A plan of one run."""

    level: str
    seed: int
    violation: str = ""  # the rule that the run violates
    options: Options = field(default_factory=dict)
    continues: bool = False  # the run continues after its last event, as after the faults
    events: tuple[PlannedEvent, ...] = ()


class _EventRow(msgspec.Struct, forbid_unknown_fields=True):
    """An event of a plan file."""

    at_us: int
    key: str
    draws: Draws


class _PlanFile(msgspec.Struct, forbid_unknown_fields=True):
    """A plan file."""

    version: int
    level: str
    seed: int
    violation: str
    options: Options
    continues: bool
    events: list[_EventRow]


class _Version(msgspec.Struct):
    """The field of a plan file that decides whether the others can be read."""

    version: int


def store_plan(plan: RunPlan, path: Path) -> None:
    """Write a plan file, one event a line."""
    head = {
        "version": PLAN_VERSION,
        "level": plan.level,
        "seed": plan.seed,
        "violation": plan.violation,
        "options": plan.options,
        "continues": plan.continues,
    }
    events = ",\n".join(
        json.dumps({"at_us": event.at_us, "key": event.key, "draws": event.draws})
        for event in plan.events
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "events": [\n{events}\n]}}\n')


def load_plan(path: Path, *, level: str, seed: int | None = None) -> RunPlan:
    """Read a plan file for a level, and for a seed if one is given.

    Raises PlanRefused for a file that is no plan, has unknown or missing fields, another version,
    level or seed; OSError if it cannot be read.
    """
    if path.stat().st_size > PLAN_BYTES_MAX:
        raise _refused(path, f"it has over {PLAN_BYTES_MAX} bytes", "shrink the seed again")
    content = path.read_bytes()
    again = "shrink the seed again with this version"
    try:
        version = msgspec.json.decode(content, type=_Version).version
        if version != PLAN_VERSION:
            raise _refused(path, f"version {version}, expected {PLAN_VERSION}", again)
        found = msgspec.json.decode(content, type=_PlanFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refused(path, str(error), again) from None
    for name, given, expected in (("level", found.level, level), ("seed", found.seed, seed)):
        if expected is not None and given != expected:
            raise _refused(
                path, f"{name} {given!r}, expected {expected!r}", f"use --{name} {given}"
            )
    return RunPlan(
        level=level,
        seed=found.seed,
        violation=found.violation,
        options=found.options,
        continues=found.continues,
        events=tuple(
            PlannedEvent(at_us=each.at_us, key=each.key, draws=each.draws) for each in found.events
        ),
    )


def _refused(path: Path, found: str, remedy: str) -> PlanRefused:
    return PlanRefused(f"{path}: invalid plan: {found}; {remedy}")
