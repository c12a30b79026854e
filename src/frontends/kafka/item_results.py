"""Requests of many items: each item is carried out by itself, and its error is in its own
result."""

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, KeysView, Sequence
from datetime import timedelta
from typing import Final, Protocol, TypeAlias, TypeVar

from ...api.request_context import RequestContext
from ...errors import InvalidRequest, QuorumlogError, TimedOut
from ...runtime.steps import step_counter
from .api import BrokerContext, Call, Fields

PARTS_MAX: Final = 10_000
"""The items that one request may have; with more, each is refused."""
PARTS_AT_ONCE: Final = 100
"""The items of one request that are in progress concurrently."""
PARTS_A_STEP: Final = 200
"""The items that are decided between two turns of other tasks: a few milliseconds."""
LENGTH_A_PART: Final = 100
"""The characters of a name that take as long as one item: its coordinator is that of its hash."""
PARTS_A_REQUEST: Final = 1_000
"""The partitions of one step of storing offsets; a larger request takes several steps."""
NAMED_TWICE: Final = "partition: named twice in the request; name each partition once"
APPLIED_MS_MAX: Final = 1_000
"""The longest wait of a response for its own broker to apply the change."""

P = TypeVar("P")
R = TypeVar("R")
H = TypeVar("H", bound=Hashable)

Place: TypeAlias = tuple[str, int]
"""A topic's name and a partition's index."""


class PartitionItem(Protocol):
    """An item of a call, or its result, that names one partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


async def outcomes(
    broker: BrokerContext,
    parts: Sequence[P],
    carry_out: Callable[[P], Awaitable[R]],
    *,
    context: RequestContext,
) -> list[R | QuorumlogError]:
    """Carry out every item. Return the results or errors in the same order.

    Items begin in order and run concurrently, so that the controller's commits are awaited
    together. An item that has not begun at the deadline is never carried out.
    """
    try:
        check_count(len(parts))
    except InvalidRequest as too_many:
        return [too_many] * len(parts)
    found: dict[int, R | QuorumlogError] = {}
    take_turn = step_counter(PARTS_A_STEP)
    waiting = iter(enumerate(parts))

    async def work() -> None:
        for index, part in waiting:
            # Items that are refused wait for nothing.
            await take_turn(1 + len(part) // LENGTH_A_PART if isinstance(part, str) else 1)
            if broker.runtime.clock.now_ms() < context.deadline_ms:
                found[index] = await outcome(carry_out(part))
            else:
                found[index] = TimedOut(
                    "item: the deadline passed before it was started and nothing was done; retry"
                    " with fewer items or a longer timeout"
                )

    async with broker.runtime.tasks.scope("kafka.parts") as scope:
        for _ in range(min(len(parts), PARTS_AT_ONCE)):
            scope.spawn(work(), name="kafka.part")
    return [found[index] for index in range(len(parts))]


async def in_steps(
    results: Iterable[R], *, step: int = PARTS_A_STEP, weight: Callable[[R], int] = lambda _: 1
) -> list[R]:
    """Return the results of an iterator that computes them; other tasks run after every `step` of
    their weight."""
    found, take_turn = list[R](), step_counter(step)
    for result in results:
        found.append(result)
        await take_turn(weight(result))
    return found


def check_count(count: int) -> None:
    """Raise InvalidRequest if a request, or a list in one item, has too many entries."""
    if count > PARTS_MAX:
        raise InvalidRequest(
            f"request: {count} entries; the limit is {PARTS_MAX}; split it into several requests"
        )


async def outcome(result: Awaitable[R]) -> R | QuorumlogError:
    """Return a result, or the QuorumlogError that was raised."""
    try:
        return await result
    except QuorumlogError as error:
        return error


def with_timeout(call: Call, timeout: timedelta) -> RequestContext:
    """Return the context of a call with the deadline of the request's arrival plus its timeout."""
    milliseconds = max(0, timeout // timedelta(milliseconds=1))
    return call.context_until(call.began_ms + milliseconds)


async def wait_applied(broker: BrokerContext, offset: int, context: RequestContext) -> None:
    """Wait until this broker has applied a change, so that the client sees it here. Return at the
    latest after APPLIED_MS_MAX or at the deadline: the change is committed anyway."""
    left_ms = context.deadline_ms - broker.runtime.clock.now_ms()
    timeout_ms = max(0, min(left_ms, APPLIED_MS_MAX))
    principal = context.client.principal
    await outcome(broker.metadata.wait_applied(offset, timeout_ms=timeout_ms, principal=principal))


def repeated(names: Iterable[H]) -> KeysView[H]:
    """Return the names that occur more than once, each once, in order. Membership tests of the
    result take constant time."""
    return {name: None for name, count in Counter(names).items() if count > 1}.keys()


# --- partitions --------------------------------------------------------------------------------


def place(part: PartitionItem) -> Place:
    """Return the partition that an item names."""
    return part.topic, part.partition


def split_valid(
    parts: Sequence[P], check: Callable[[P], None], *, at: Callable[[P], Place]
) -> tuple[list[P], dict[Place, QuorumlogError]]:
    """Return the valid items, and the errors of the others: `check` raised, or the partition `at`
    the item is named twice."""
    twice = InvalidRequest(NAMED_TWICE)
    refused: dict[Place, QuorumlogError] = dict.fromkeys(repeated(map(at, parts)), twice)
    for part in parts:
        try:
            check(part)
        except QuorumlogError as error:
            refused[at(part)] = error
    return [part for part in parts if at(part) not in refused], refused


def by_topic(
    results: Iterable[tuple[str, Fields]], *, topic_as: str, partitions_as: str
) -> Iterator[Fields]:
    """Yield partition results grouped by topic, as responses have them. Lazy: the results are read
    in the thread that encodes a large response."""
    topics: dict[str, list[Fields]] = {}
    for topic, fields in results:
        topics.setdefault(topic, []).append(fields)
    for topic, of_topic in topics.items():
        yield {topic_as: topic, partitions_as: of_topic}


def slices(parts: Sequence[R]) -> Iterable[Sequence[R]]:
    """Yield the items of a request in chunks that are stored in one step."""
    for begin in range(0, len(parts), PARTS_A_REQUEST):
        yield parts[begin : begin + PARTS_A_REQUEST]
