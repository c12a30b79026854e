"""Requests of many parts: each is carried out by itself, and what is wrong with it stands in its
own result."""

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from datetime import timedelta
from typing import Final, TypeVar

from ...errors import QuorumlogError
from ...runtime import CallContext
from .api import Call, Door

PARTS_AT_ONCE: Final = 100
"""Parts of one request that are under way together; the others wait for their turn."""

P = TypeVar("P")
R = TypeVar("R")
H = TypeVar("H", bound=Hashable)


async def outcomes(
    door: Door, parts: Sequence[P], carry_out: Callable[[P], Awaitable[R]]
) -> list[R | QuorumlogError]:
    """Carry out every part; returns what came of each, in their order.

    They begin in their order, and many are under way at once: the controller's commits are waited
    for together.
    """
    found: dict[int, R | QuorumlogError] = {}
    waiting = iter(enumerate(parts))

    async def work() -> None:
        for index, part in waiting:
            found[index] = await outcome(carry_out(part))

    async with door.runtime.tasks.scope("kafka.parts") as scope:
        for _ in range(min(len(parts), PARTS_AT_ONCE)):
            scope.spawn(work(), name="kafka.part")
    return [found[index] for index in range(len(parts))]


async def outcome(result: Awaitable[R]) -> R | QuorumlogError:
    """Return a result, or the error that came instead of it."""
    try:
        return await result
    except QuorumlogError as error:
        return error


def within(call: Call, timeout: timedelta) -> CallContext:
    """Return what a handler may know of a caller who waits so long, from its request on."""
    milliseconds = max(0, timeout // timedelta(milliseconds=1))
    return CallContext(deadline_ms=call.began_ms + milliseconds, peer=call.context.peer)


def repeated(names: Iterable[H]) -> list[H]:
    """Return what comes more than once, each once, in order."""
    return [name for name, count in Counter(names).items() if count > 1]
