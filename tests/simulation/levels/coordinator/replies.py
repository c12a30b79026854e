"""Replies as plain values, so that those of a model and of a coordinator can be compared."""

from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias

from quorumlog.broker.coordinator.decision import Ticket
from quorumlog.errors import QuorumlogError

Replies: TypeAlias = dict[Ticket, Any]
"""The expected or actual replies of one step, as `plain` values."""


def plain(outcome: Any) -> Any:
    """Return an outcome without the texts of its errors: an error is the name of its class. Sets
    are in order, so that their texts are the same in each process."""
    if isinstance(outcome, QuorumlogError):
        return type(outcome).__name__
    if is_dataclass(outcome) and not isinstance(outcome, type):
        name = type(outcome).__name__
        return name, {each.name: plain(getattr(outcome, each.name)) for each in fields(outcome)}
    if isinstance(outcome, tuple | list):
        return tuple(map(plain, outcome))
    if isinstance(outcome, dict):
        return {key: plain(value) for key, value in sorted(outcome.items())}
    if isinstance(outcome, frozenset):
        return tuple(sorted(outcome))
    return outcome
