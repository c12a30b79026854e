"""The assigned partitions of one consumer: assignment changes and selection.

The first assignment is resolved in the background, so that a poll may time out earlier; its error
is raised by the next call.

A topic assigned as a whole is followed: partitions added later are read from their beginning,
whatever `start` was, once the metadata is refreshed. Not with `until_end`.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ...errors import (
    ClientClosed,
    InvalidRequest,
    NoCommittedOffset,
    QuorumlogError,
    TimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...runtime import Scope
from ..connection import Connection
from ..coordination import Changes
from ..offsets import (
    PARTITION_END,
    PartitionLike,
    Partitions,
    Position,
    check_position,
    is_partition,
    parse_partition,
)
from .fetcher import GONE_CHECK_MS, ConsumerFetcher
from .partition_reader import PartitionReader

Assignment: TypeAlias = Mapping[str, Sequence[int] | None]
"""Partitions by topic; None: all partitions."""

Topics: TypeAlias = Partitions | Assignment
"""Topics with all their partitions, partitions, or an `Assignment`."""


def parse_assignment(wanted: Any) -> dict[str, tuple[int, ...] | None]:
    """Return the partitions by topic, without duplicates; raise InvalidRequest if it is
    malformed."""
    if isinstance(wanted, Mapping):
        return {_topic(topic): _partitions(topic, wanted) for topic in wanted}
    found: dict[str, dict[int, None] | None] = {}  # dict: ordered, without duplicates
    for each in _listed(wanted):
        if isinstance(each, tuple):
            topic, partition = parse_partition(each)
            listed = found.setdefault(topic, {})
            if listed is not None:
                listed[partition] = None
        else:
            found[_topic(each)] = None
    return {topic: None if listed is None else tuple(listed) for topic, listed in found.items()}


def parse_partitions(wanted: Partitions) -> list[str | PartitionLike]:
    """Return the topics and the partitions of a selection; raise InvalidRequest if it is
    malformed."""
    return [
        parse_partition(each) if isinstance(each, tuple) else _topic(each)
        for each in _listed(wanted)
    ]


def _listed(wanted: Any) -> Iterable[Any]:
    if isinstance(wanted, str) or is_partition(wanted):
        return (wanted,)
    if isinstance(wanted, bytes | Mapping) or not isinstance(wanted, Iterable):
        raise InvalidRequest(
            f"{wanted!r} is not a list of topics or partitions: give names as str, or "
            "TopicPartition(topic, partition)"
        )
    return wanted


def _topic(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{name!r} is not a topic: give its name as a str")
    return name


def _partitions(topic: Any, wanted: Mapping[Any, Any]) -> tuple[int, ...] | None:
    partitions = wanted[topic]
    if partitions is None:
        return None
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Sequence | range):
        raise InvalidRequest(
            f"{dict(wanted)!r} is not an assignment: give partitions by topic, e.g. "
            "{'flights': [0, 1]}"
        )
    for partition in partitions:
        if type(partition) is not int or not 0 <= partition < PARTITION_END:
            raise InvalidRequest(
                f"{partition!r} is not a partition: give numbers >= 0", topic=str(topic)
            )
    return tuple(dict.fromkeys(partitions))


class AssignedPartitions:
    """The assigned partitions of one consumer. Not thread-safe: one event loop."""

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        fetcher: ConsumerFetcher,
        arrivals: Changes,
        wanted: Topics,
        *,
        start: Position,
        until_end: bool,
        repeat_ms: int,
    ) -> None:
        check_position(start)
        self._connection = connection
        self._clock = connection.runtime.clock
        self._scope = scope
        self._fetcher = fetcher
        self._arrivals = arrivals  # of the fetcher, and of assignments
        self._loop = asyncio.get_running_loop()
        self._first = parse_assignment(wanted)
        self._start = start
        self._until_end = until_end
        self._repeat_ms = repeat_ms  # pause between raising an error and the next attempt
        self._assigning: asyncio.Task[None] | None = None  # resolves the first assignment
        self._assign_error: QuorumlogError | None = None  # of the first assignment, not raised yet
        self._followed: dict[str, int] = {}  # partition counts of the topics assigned as a whole
        fetcher.on_step = self._grow
        self.turns: deque[PartitionReader] = deque()  # all readers, the next one to read first
        self.is_assigned = False
        self.is_closed = False

    def close(self) -> None:
        """Cancel the pending assignment; further calls raise ClientClosed."""
        self.is_closed = True
        if self._assigning is not None:
            self._assigning.cancel()

    # --- assigning ---------------------------------------------------------------------------

    async def ready(self) -> None:
        """Wait for the first assignment; raise the error that prevents it."""
        self.check_open()
        while not self.is_assigned:
            error, self._assign_error = self._assign_error, None
            if error is not None:
                raise error.with_traceback(None)
            if self._assigning is None:
                self._assigning = self._scope.spawn(self._assign_first(), name="assignment")
            await self._arrivals.wait()
            self.check_open()

    async def _assign_first(self) -> None:
        """Resolve the constructor's assignment, or keep the error for the next call."""
        try:
            places = await self._expand(self._first)
        except QuorumlogError as error:
            self._assign_error = error
        else:
            if not self.is_assigned:
                self.is_assigned = True
                self._add(places, self._start)
                self._follow(self._first)
        self._assigning = None
        self._arrivals.announce()

    async def _expand(self, wanted: Mapping[str, Sequence[int] | None]) -> list[PartitionLike]:
        """Return the partitions of an assignment, looking up partition counts."""
        places: list[PartitionLike] = []
        for topic, partitions in wanted.items():
            if partitions is None:
                partitions = range(len((await self._connection.layout(topic)).partitions))
            places += [(topic, partition) for partition in partitions]
        return places

    async def change(self, wanted: Topics, start: Position | None, *, is_whole: bool) -> None:
        """Add partitions from `start` (default: the consumer's); with `is_whole` remove all
        others."""
        start = self._start if start is None else start
        check_position(start)
        parsed = parse_assignment(wanted)
        if is_whole and not self.is_assigned:
            self.check_open()
        else:
            await self.ready()
        places = await self._expand(parsed)
        self.check_open()
        self.is_assigned = True
        if is_whole:
            kept = set(places)
            for reader in list(self.turns):
                if (reader.topic, reader.partition) not in kept:
                    self.remove(reader)
            self._followed.clear()
        added = self._add(places, start)
        self._follow(parsed)
        await self.located(added)

    def _follow(self, wanted: Mapping[str, Sequence[int] | None]) -> None:
        if self._until_end:
            return  # the ends are those of the partitions that existed at the start
        for topic, partitions in wanted.items():
            layout = self._connection.topology.topic(topic)
            if partitions is None and layout is not None:
                self._followed[topic] = len(layout.partitions)

    def _grow(self) -> None:
        """Add the new partitions of followed topics."""
        for topic, known in self._followed.items():
            layout = self._connection.topology.topic(topic)
            if layout is not None and len(layout.partitions) > known:
                self._followed[topic] = len(layout.partitions)
                new = range(known, len(layout.partitions))
                self._add([(topic, partition) for partition in new], "earliest")

    def _add(self, places: Iterable[PartitionLike], start: Position) -> list[PartitionReader]:
        added = []
        for place in places:
            if place not in self._fetcher.readers:
                reader = PartitionReader(place, start, wants_end=self._until_end)
                self._adopt(reader)
                added.append(reader)
        return added

    def _adopt(self, reader: PartitionReader) -> None:
        self._fetcher.add(reader)
        self.turns.append(reader)

    def remove(self, reader: PartitionReader) -> None:
        """Remove a partition, and stop following its topic."""
        self._followed.pop(reader.topic, None)
        self.turns.remove(reader)
        self._fetcher.remove(reader)

    def take(self, reader: PartitionReader) -> None:
        """Start prefetching a partition, without delivery."""
        self._fetcher.add(reader)

    def start_delivery(self, reader: PartitionReader) -> None:
        """Start the delivery of a prefetched partition."""
        if self._fetcher.readers.get((reader.topic, reader.partition)) is reader:
            self.turns.append(reader)
            self._fetcher.has_errors |= reader.error is not None
            self._arrivals.announce()

    def stop_delivery(self, reader: PartitionReader) -> None:
        """Stop the delivery of a partition; it stays prefetched."""
        if reader in self.turns:
            self.turns.remove(reader)

    def drop(self, reader: PartitionReader) -> None:
        """Stop prefetching a partition that is not delivered."""
        self._fetcher.remove(reader)

    async def located(self, readers: Iterable[PartitionReader]) -> None:
        """Wait until the readers that are still assigned have positions; raise what prevents it.

        Raises TimedOut, or the last failure, after `call_timeout_ms`.
        """
        waiting = list(readers)
        try:
            async with asyncio.timeout(self._connection.config.call_timeout_ms / 1000):
                while waiting := [reader for reader in waiting if self._is_awaited(reader)]:
                    self.check_open()
                    for reader in waiting:
                        self._raise_absence(reader)
                    await self._arrivals.wait()
        except TimedOut:
            raise
        except TimeoutError:
            late = waiting[0]
            raise late.retry.failure or TimedOut(
                "position lookup: no broker answered in time",
                topic=late.topic,
                partition=late.partition,
            ) from None

    def _is_awaited(self, reader: PartitionReader) -> bool:
        place = (reader.topic, reader.partition)
        return reader.is_unlocated and self._fetcher.readers.get(place) is reader

    def _raise_absence(self, reader: PartitionReader) -> None:
        error = reader.error
        if error is not None:
            self.error_raised(reader)
            raise error.with_traceback(None)
        if reader.is_gone and reader.retry.failure is not None:
            raise reader.retry.failure.with_traceback(None)

    def resume_from(self, before: "AssignedPartitions") -> None:
        """Continue at the positions of another consumer after its loop has ended.

        Prefetched records are fetched again. Does nothing if the other had no assignment yet.
        """
        if before.is_assigned:
            self.is_assigned = True
            self._followed.update(before._followed)
            for old in before.turns:
                self._adopt(PartitionReader.resumed_from(old))

    # --- selection ---------------------------------------------------------------------------

    def reader(self, topic: str, partition: int) -> PartitionReader:
        """Return the reader of a partition; raise InvalidRequest if it is not assigned."""
        reader = self._fetcher.readers.get((topic, partition))
        if reader is None:
            raise InvalidRequest("not assigned to this consumer", topic=topic, partition=partition)
        return reader

    def selected_of_topic(
        self, topic: str, partitions: Sequence[int] | None
    ) -> list[PartitionReader]:
        """Return readers of a topic (None: all assigned ones); raise InvalidRequest if there is
        none."""
        if partitions is not None:
            return [self.reader(topic, partition) for partition in partitions]
        selected_of_topic = [
            reader for reader in self._fetcher.readers.values() if reader.topic == topic
        ]
        if not selected_of_topic:
            raise InvalidRequest("not assigned to this consumer", topic=topic)
        return selected_of_topic

    def selected(self, partitions: Partitions | None) -> list[PartitionReader]:
        """Return the readers of topics and partitions, without duplicates; None: all."""
        if partitions is None:
            return list(self._fetcher.readers.values())
        found: dict[PartitionReader, None] = {}
        for each in parse_partitions(partitions):
            if isinstance(each, str):
                found.update(dict.fromkeys(self.selected_of_topic(each, None)))
            else:
                found[self.reader(*each)] = None
        return list(found)

    def check_open(self) -> None:
        """Raise ClientClosed if the consumer is closed, InvalidRequest on another event loop."""
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidRequest(
                "the consumer belongs to another event loop: create it on the loop that uses it"
            )
        if self.is_closed or self._fetcher.is_ended:
            raise ClientClosed("the consumer is closed")

    def error_raised(self, reader: PartitionReader) -> None:
        """Schedule the next attempt after the reader's error was raised.

        After UnknownTopicId reading continues in the new topic.
        """
        error = reader.error
        if isinstance(error, NoCommittedOffset):
            return  # raised until a seek
        reader.error = None
        if isinstance(error, UnknownTopicId):
            self._fetcher.begin_again(reader)
            return
        reader.is_gone = isinstance(error, UnknownTopicOrPartition)
        wait_ms = GONE_CHECK_MS if reader.is_gone else self._repeat_ms
        reader.retry.at_ms = self._clock.now_ms() + wait_ms
