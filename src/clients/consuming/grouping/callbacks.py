"""What the application wants to be told of the partitions that come to it and go."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from inspect import isawaitable
from typing import TypeAlias

from ....errors import InvalidRequest
from ...offsets import Place

OnPartitions: TypeAlias = Callable[[list[Place]], Awaitable[None] | None]
"""Is told of partitions that come or go."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What the application wants to be told."""

    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None  # None: as `on_revoked`

    def __post_init__(self) -> None:
        for name in ("on_assigned", "on_revoked", "on_lost"):
            callback: object = getattr(self, name)
            if callback is not None and not callable(callback):
                raise InvalidRequest(
                    f"{name} is {callback!r}: give a function, which is called with a list of "
                    "(topic, partition)"
                )


async def call(callback: OnPartitions | None, places: Collection[Place]) -> Exception | None:
    """Call the application; return what it raised, which only it knows the meaning of."""
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
            "a callback awaited what was cancelled: catch asyncio.CancelledError in it"
        )
        failure.__cause__ = error
        return failure
    except Exception as error:
        return error
    return None
