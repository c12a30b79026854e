"""Requests of many parts: each is carried out by itself, and what is wrong with it stands in its
own result."""

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, KeysView, Sequence
from datetime import timedelta
from typing import Final, Protocol, TypeAlias, TypeVar

from ...errors import InvalidRequest, QuorumlogError, TimedOut
from ...proto import errors_pb2
from ...runtime import CallContext
from ...runtime.error_detail import decode_error
from .api import Call, Door, Fields

PARTS_MAX: Final = 10_000
"""Parts of one request that are carried out; of a request with more, each is refused."""
PARTS_AT_ONCE: Final = 100
"""Parts of one request that are under way together; the others wait for their turn."""
APPLIED_MS_MAX: Final = 1_000
"""How long an answer waits until its own broker knows of the change."""

P = TypeVar("P")
R = TypeVar("R")
H = TypeVar("H", bound=Hashable)

Place: TypeAlias = tuple[str, int]
"""A topic's name and a partition's index."""


class HasPlace(Protocol):
    """Any part of a call that names one partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


class HasError(HasPlace, Protocol):
    """A result of one partition."""

    @property
    def error(self) -> errors_pb2.Error: ...


PartOfCall = TypeVar("PartOfCall", bound=HasPlace)
Result = TypeVar("Result", bound=HasError)


async def outcomes(
    door: Door,
    parts: Sequence[P],
    carry_out: Callable[[P], Awaitable[R]],
    *,
    context: CallContext,
) -> list[R | QuorumlogError]:
    """Carry out every part; returns what came of each, in their order.

    They begin in their order, and many are under way at once: the controller's commits are waited
    for together. What has not begun at the caller's deadline never does.
    """
    try:
        check_count(len(parts))
    except InvalidRequest as too_many:
        return [too_many] * len(parts)
    found: dict[int, R | QuorumlogError] = {}
    waiting = iter(enumerate(parts))

    async def work() -> None:
        for index, part in waiting:
            if door.runtime.clock.now_ms() < context.deadline_ms:
                found[index] = await outcome(carry_out(part))
            else:
                found[index] = TimedOut(
                    "the time was over before its turn came, so nothing was done: repeat, with"
                    " fewer at once or with a longer timeout"
                )

    async with door.runtime.tasks.scope("kafka.parts") as scope:
        for _ in range(min(len(parts), PARTS_AT_ONCE)):
            scope.spawn(work(), name="kafka.part")
    return [found[index] for index in range(len(parts))]


def check_count(count: int) -> None:
    """Raise InvalidRequest for too many parts, or too many things that one part lists."""
    if count > PARTS_MAX:
        raise InvalidRequest(
            f"the request lists {count} at once; give at most {PARTS_MAX}, the others in another"
            " request"
        )


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


async def applied(door: Door, offset: int, context: CallContext) -> None:
    """Return once this broker knows of a change, so that a client that asks it again sees what it
    did; after a moment, or at the deadline, in any case: the change is made."""
    left_ms = context.deadline_ms - door.runtime.clock.now_ms()
    timeout_ms = max(0, min(left_ms, APPLIED_MS_MAX))
    await outcome(door.metadata.wait_applied(offset, timeout_ms=timeout_ms))


def repeated(names: Iterable[H]) -> KeysView[H]:
    """Return what comes more than once, each once, in order; looked up in one step, however much
    it is."""
    return {name: None for name, count in Counter(names).items() if count > 1}.keys()


# --- partitions --------------------------------------------------------------------------------


def place(part: HasPlace) -> Place:
    """Return which partition a part names."""
    return part.topic, part.partition


def sorted_out(
    parts: Sequence[PartOfCall], check: Callable[[PartOfCall], None]
) -> tuple[list[PartOfCall], dict[Place, QuorumlogError]]:
    """Return the parts that can be asked for, and of the others why not: `check` has raised it, or
    the partition is named twice."""
    twice = InvalidRequest("the request names this partition twice; name each once")
    refused: dict[Place, QuorumlogError] = dict.fromkeys(repeated(map(place, parts)), twice)
    for part in parts:
        try:
            check(part)
        except QuorumlogError as error:
            refused[place(part)] = error
    return [part for part in parts if place(part) not in refused], refused


def error_of(result: HasError) -> QuorumlogError | None:
    """Return what a result says is wrong."""
    return decode_error(result.error) if result.error.name else None


def by_topic(
    results: Iterable[tuple[str, Fields]], *, topic_as: str, partitions_as: str
) -> Iterator[Fields]:
    """Yield results of partitions below their topics, as answers have them; looks at the results
    no sooner than it is asked, so in the thread that encodes a large answer."""
    topics: dict[str, list[Fields]] = {}
    for topic, fields in results:
        topics.setdefault(topic, []).append(fields)
    for topic, of_topic in topics.items():
        yield {topic_as: topic, partitions_as: of_topic}
