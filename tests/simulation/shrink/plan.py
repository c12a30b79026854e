"""The recorded plan of a run: changed options and the events that remain, as a JSON file.

A plan replays one seed of one level. Its events are executed in their order, at their times, each
with its recorded draws. The file has exactly the fields of `RunPlan`; any other one is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

PLAN_VERSION: Final = 1
PLAN_BYTES_MAX: Final = 256 << 20
FIELDS: Final = ("version", "level", "seed", "violation", "options", "continues", "events")
EVENT_FIELDS: Final = ("at_us", "key", "draws")

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
    try:
        content = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise _refused(path, f"it is no JSON ({error})", "shrink the seed again") from None
    fields = _checked(path, "plan", content, FIELDS)
    version = fields["version"]
    if version != PLAN_VERSION:
        found = f"version {version!r}, expected {PLAN_VERSION}"
        raise _refused(path, found, "shrink the seed again with this version")
    if fields["level"] != level:
        found = f"level {fields['level']!r}, expected {level!r}"
        raise _refused(path, found, f"use --level {fields['level']}")
    if seed is not None and fields["seed"] != seed:
        found = f"seed {fields['seed']!r}, expected {seed}"
        raise _refused(path, found, f"use --seed {fields['seed']}")
    for name, kind in (
        ("seed", int),
        ("violation", str),
        ("options", dict),
        ("continues", bool),
        ("events", list),
    ):
        _check_kind(path, name, fields[name], kind)
    for group, values in fields["options"].items():
        _check_kind(path, f"options.{group}", values, dict)
    return RunPlan(
        level=level,
        seed=fields["seed"],
        violation=fields["violation"],
        options=fields["options"],
        continues=fields["continues"],
        events=tuple(_event(path, number, one) for number, one in enumerate(fields["events"])),
    )


def _event(path: Path, number: int, content: object) -> PlannedEvent:
    name = f"event {number}"
    fields = _checked(path, name, content, EVENT_FIELDS)
    _check_kind(path, f"{name}: at_us", fields["at_us"], int)
    _check_kind(path, f"{name}: key", fields["key"], str)
    _check_kind(path, f"{name}: draws", fields["draws"], dict)
    for stream, draws in fields["draws"].items():
        _check_kind(path, f"{name}: draws.{stream}", draws, list)
        if not all(type(one) in (int, float) for one in draws):
            raise _refused(path, f"{name}: a draw is no number", "shrink the seed again")
    return PlannedEvent(at_us=fields["at_us"], key=fields["key"], draws=fields["draws"])


def _checked(
    path: Path, name: str, content: object, expected: tuple[str, ...]
) -> Mapping[str, Any]:
    """Return the fields of an object; raises PlanRefused for unknown or missing ones."""
    if not isinstance(content, dict):
        raise _refused(path, f"{name} is no object", "shrink the seed again")
    unknown = sorted(content.keys() - set(expected))
    missing = [each for each in expected if each not in content]
    if unknown or missing:
        found = f"{name} has unknown fields {unknown}, lacks {missing}"
        raise _refused(path, found, "shrink the seed again with this version")
    return content


def _check_kind(path: Path, name: str, value: object, kind: type) -> None:
    if type(value) is not kind:
        found = f"{name} is {value!r:.60}, expected {kind.__name__}"
        raise _refused(path, found, "shrink the seed again")


def _refused(path: Path, found: str, remedy: str) -> PlanRefused:
    return PlanRefused(f"{path}: invalid plan: {found}; {remedy}")
