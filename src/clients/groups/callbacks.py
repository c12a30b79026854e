"""Rebalance callbacks of the application."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from inspect import isawaitable
from typing import TypeAlias

from ...errors import InvalidRequest
from ..offsets import Place

OnPartitions: TypeAlias = Callable[[list[Place]], Awaitable[None] | None]
"""A rebalance callback: called with (topic, partition) pairs; may be async."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The rebalance callbacks of a consumer."""

    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None  # None: `on_revoked` is called

    def __post_init__(self) -> None:
        for name in ("on_assigned", "on_revoked", "on_lost"):
            callback: object = getattr(self, name)
            if callback is not None and not callable(callback):
                raise InvalidRequest(
                    f"{name} is {callback!r}: give a function that takes a list of "
                    "(topic, partition)"
                )


async def call(callback: OnPartitions | None, places: Collection[Place]) -> Exception | None:
    """Run a callback of the application; return the error that it raised, if any."""
    if callback is None:
        return None
    try:
        outcome = callback(list(places))
        if isawaitable(outcome):
            await outcome
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        failure = InvalidRequest(
            "a callback awaited a task that was cancelled: catch asyncio.CancelledError in it"
        )
        failure.__cause__ = error
        return failure
    except Exception as error:
        return error
    return None
