"""The mirror: follows topics of a source cluster and replicates them to mirror topics in a target.

Topics are checked every few seconds. Per source broker one read is in flight, and concurrently the
appends of earlier reads; appends of one partition are sequential. Memory use is therefore at most
APPENDS_MAX + 1 responses per source broker. An error of either side never ends the mirror: the
partition is compared again and resumed.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ...errors import InvalidRequest, NotMirror, QuorumlogError, TopicAlreadyExists
from ...runtime import Buffer, Runtime, Scope
from ..admin.descriptions import Topic
from ..offsets import PartitionLike
from .batches import Divergence, PreparedBatches, find_divergence, overlap, prepare
from .copy_progress import CopyProgress, CopyState, reached_offset
from .group_offsets import CopiedOffsets, CopyEnd
from .source import MirrorSource, PartitionData, PartitionFetch, SourceTopic, source_name
from .target import SOURCE, CopyBounds, CopyChunk, Target

WAIT_MS: Final = 500  # maximum wait of a read for records
TURN_MS: Final = 200  # interval of the scheduling passes without events
APPENDS_MAX: Final = 3  # concurrent appends per source broker
LOOKS_MAX: Final = 16  # concurrent comparisons
STEP_BACK: Final = 8  # factor of the distance at which a comparison continues after compaction


CopyGroups: TypeAlias = Callable[[Mapping[PartitionLike, CopyEnd]], Awaitable[CopiedOffsets]]
"""Copies committed offsets of groups, up to the mirrored offsets; see `group_offsets`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorReport:
    """The progress of a mirror."""

    topics: int
    partitions: int
    caught_up: int  # partitions copied up to the last known end of their sources
    stopped: int  # partitions that are no longer copied, diverged ones included
    diverged: int
    records: int  # copied by this mirror
    bytes: int
    lag: int  # offsets committed in the sources and not in the copies, as far as known
    problems: tuple[str, ...]  # what is not mirrored, with the reason; divergences come last


@dataclass(slots=True)
class _Sending:
    """A chunk in flight."""

    progress: CopyProgress
    turn: int
    chunk: CopyChunk
    what: PreparedBatches


class Mirror:
    """Replicates the topics of a source that match a pattern with their whole name."""

    def __init__(
        self,
        runtime: Runtime,
        source: MirrorSource,
        target: Target,
        *,
        topics: str,
        refresh_ms: int = 5_000,
        copy_groups: CopyGroups | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`copy_groups` copies committed offsets of groups; None: they are not copied. `say` gets
        a sentence about each event. Raises InvalidRequest if the pattern is invalid."""
        try:
            self._pattern = re.compile(topics)
        except re.error as error:
            raise InvalidRequest(f"{topics!r} is not a regular expression: {error}") from None
        self._runtime = runtime
        self._source = source
        self._target = target
        self._refresh_ms = refresh_ms
        self._copy_groups = copy_groups
        self._say = say
        self._copies: dict[PartitionLike, CopyProgress] = {}
        self._problems: dict[str, str] = {}  # by topic, or "" for all topics
        self._told: dict[str, str] = {}  # the last sentence, by subject
        self._has_looked = False  # the topics were checked successfully at least once
        self._cluster_id = ""
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._turns: dict[str, None] = {}  # source addresses with a read in flight
        self._rooms: dict[str, asyncio.Semaphore] = {}  # limits of appends, by source address
        self._newest: dict[PartitionLike, asyncio.Task[None]] = {}  # last append of each partition
        self._looks = 0
        self._reads = 0
        self._at_groups = asyncio.Lock()

    @property
    def copies(self) -> list[CopyProgress]:
        """The partitions that are or were copied, by topic and number."""
        return [self._copies[place] for place in sorted(self._copies)]

    def stop(self) -> None:
        """Stop soon; requests in flight are cancelled, and the next mirror resumes from the
        copies."""
        self._is_stopping = True
        self._wake.set()

    def report(self) -> MirrorReport:
        """Return the present progress."""
        copies = self._copies.values()
        failing = [progress for progress in copies if progress.is_failing]
        stopped = [progress for progress in copies if progress.state is CopyState.STOPPED]
        stopped.sort(key=lambda progress: progress.is_diverged)
        return MirrorReport(
            topics=len({progress.topic for progress in copies}),
            partitions=len(copies),
            caught_up=sum(progress.is_caught_up for progress in copies),
            stopped=len(stopped),
            diverged=sum(progress.is_diverged for progress in stopped),
            records=sum(progress.records for progress in copies),
            bytes=sum(progress.bytes for progress in copies),
            lag=sum(max(0, progress.lag) for progress in copies),
            problems=tuple(
                [self._problems[topic] for topic in sorted(self._problems)]
                + [f"{each.topic}-{each.partition}: {each.reason}" for each in failing + stopped]
            ),
        )

    async def run(self, *, once: bool = False) -> MirrorReport:
        """Replicate until `stop`, or with `once` until every copy has caught up."""
        async with self._runtime.tasks.scope("mirror") as scope:
            scope.spawn(self._follow_topics(), name="mirror topics")
            scope.spawn(self._follow_all_groups(), name="mirror groups")
            while not self._is_stopping and not (once and self._is_done()):
                self._wake.clear()
                self._begin(scope)
                try:
                    async with asyncio.timeout(TURN_MS / 1000):
                        await self._wake.wait()
                except TimeoutError:
                    pass
            if once and not self._is_stopping:
                await self._follow_groups()
            scope.cancel()
        return self.report()

    def _is_done(self) -> bool:
        return self._has_looked and all(
            progress.is_caught_up or progress.state is CopyState.STOPPED
            for progress in self._copies.values()
        )

    @property
    def _now_ms(self) -> int:
        return self._runtime.clock.now_ms()

    # --- topics -------------------------------------------------------------------------------

    async def _follow_topics(self) -> None:
        while True:
            try:
                await self._check_topics()
                await self._follow_starts()
            except QuorumlogError as error:
                self._report_problem("", f"not all topics can be checked now: {error}")
            else:
                self._problems.pop("", None)
                self._has_looked = True
            self._wake.set()
            await asyncio.sleep(self._refresh_ms / 1000)

    async def _check_topics(self) -> None:
        if not self._cluster_id:
            self._cluster_id = await self._source.cluster_id()
        sources = {
            topic.name: topic
            for topic in await self._source.topics()
            if self._pattern.fullmatch(topic.name)
        }
        copies = await self._target.topics()
        passing: QuorumlogError | None = None
        for name, topic in sources.items():
            try:
                await self._follow_topic(topic, copies.get(name))
            except QuorumlogError as error:
                if error.retriable or isinstance(error, TopicAlreadyExists):  # a race of creations
                    passing = error  # raised after the other topics
                else:
                    self._report_problem(name, f"{name} is not mirrored: {error}")
        for progress in self._copies.values():
            if progress.topic not in sources and progress.state is not CopyState.STOPPED:
                progress.stop("the topic was deleted in the source; the copy remains", is_gone=True)
                self._say(f"{progress.topic}-{progress.partition}: {progress.reason}")
        if passing is not None:
            raise passing

    async def _follow_topic(self, topic: SourceTopic, copy: Topic | None) -> None:
        source = source_name(self._cluster_id, topic.topic_id)
        if copy is None:
            await self._target.create(topic, source)
            self._say(f"{topic.name}: mirroring started")
            self._forget(topic.name)
        elif copy.configs.get(SOURCE) != source:
            self._refuse(topic, copy.configs.get(SOURCE))
            return
        failure = None if copy is None else await self._follow_copy(topic, copy)
        count = topic.partitions
        if failure is None:
            self._problems.pop(topic.name, None)
        elif copy is not None:
            count = min(count, len(copy.partitions))  # the existing partitions are copied
        for partition in range(count):
            place = (topic.name, partition)
            known = self._copies.get(place)
            if known is None or known.source != source or known.is_gone:
                self._copies[place] = CopyProgress(
                    topic=topic.name, partition=partition, source=source
                )
        if copy is not None:
            self._follow_leaders(copy, count)
        if failure is not None and failure.retriable:
            raise failure

    def _follow_leaders(self, copy: Topic, count: int) -> None:
        for part in copy.partitions:
            if part.partition < count:
                progress = self._copies[copy.name, part.partition]
                progress.copy_changed((copy.topic_id, part.leader_epoch))

    async def _follow_copy(self, topic: SourceTopic, copy: Topic) -> QuorumlogError | None:
        """Apply the source's partitions and configs to a copy; return the error that prevents
        it."""
        try:
            for change in await self._target.follow(copy, topic):
                self._report_once(topic.name, change)
        except QuorumlogError as error:
            if not error.retriable:
                why = f"the copy cannot get its source's partitions and configs: {error}"
                self._report_problem(
                    topic.name, f"{topic.name} is mirrored with its old settings: {why}"
                )
            return error
        return None

    def _forget(self, topic: str) -> None:
        """Drop the state of a topic's partitions: its copies start from the beginning."""
        for place in [place for place in self._copies if place[0] == topic]:
            self._copies.pop(place).stop("the copy was deleted")

    def _refuse(self, topic: SourceTopic, mirrored: str | None) -> None:
        """Stop a topic because its name in the target belongs to another topic."""
        name = topic.name
        if mirrored is None and any(progress.topic == name for progress in self._copies.values()):
            why = "the copy was promoted and is an ordinary topic now"
        elif mirrored is None:
            why = "the target has a topic of this name that is no mirror; delete or rename it"
        else:
            why = (
                f"the target's topic of this name mirrors {mirrored}, but the source topic is"
                f" {source_name(self._cluster_id, topic.topic_id)}: it was deleted and created"
                " again, or belongs to another cluster"
            )
        for progress in self._copies.values():
            if progress.topic == name and progress.state is not CopyState.STOPPED:
                progress.stop(why)
        self._report_problem(name, f"{name} is not mirrored: {why}")

    async def _follow_starts(self) -> None:
        """Advance the log start offsets of the copies to those of their sources.

        Raises a retriable error once all topics were tried.
        """
        starts: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for progress in self._copies.values():
            start = min(progress.source_start, progress.copied_to)
            if progress.state is CopyState.COPYING and start > progress.copy_start:
                starts[progress.topic][progress.partition] = start
        passing: QuorumlogError | None = None
        for topic, by_partition in starts.items():
            key = f"start of {topic}"
            try:
                await self._target.delete_before(topic, by_partition)
            except QuorumlogError as error:
                passing = error if error.retriable else passing
                self._report_problem(key, f"{topic} cannot get its source's log start: {error}")
                continue
            self._problems.pop(key, None)
            for partition, start in by_partition.items():
                self._copies[topic, partition].copy_start = start
        if passing is not None:
            raise passing

    async def _follow_all_groups(self) -> None:
        """Copy group offsets periodically, in a task of its own: it may be slow."""
        while True:
            await self._follow_groups()
            await asyncio.sleep(self._refresh_ms / 1000)

    async def _follow_groups(self) -> None:
        """Copy group offsets once. Serialised: a concurrent pass could write older offsets."""
        async with self._at_groups:
            await self._copy_groups_once()

    async def _copy_groups_once(self) -> None:
        if self._copy_groups is None:
            return
        ends = {
            progress.place: CopyEnd(progress.copied_to, reached_offset(progress))
            for progress in self._copies.values()
            if progress.state is CopyState.COPYING
        }
        if not ends:
            return
        try:
            done = await self._copy_groups(ends)
        except QuorumlogError as error:
            self._report_problem("all groups", f"group offsets are not copied now: {error}")
            return
        self._problems.pop("all groups", None)
        for group, why in done.refused.items():
            self._report_once(
                f"group {group}", f"the offsets of group {group} are not copied: {why}"
            )

    def _report_problem(self, key: str, sentence: str) -> None:
        if self._problems.get(key) != sentence:
            self._say(sentence)
        self._problems[key] = sentence

    def _report_once(self, key: str, sentence: str) -> None:
        """Report a sentence that is no problem, once."""
        if self._told.get(key) != sentence:
            self._told[key] = sentence
            self._say(sentence)

    # --- partitions ---------------------------------------------------------------------------

    def _begin(self, scope: Scope) -> None:
        """Start the reads and comparisons that are due and not in flight."""
        now_ms = self._now_ms
        reads: defaultdict[str, list[CopyProgress]] = defaultdict(list)
        due: list[CopyProgress] = []
        for progress in self._copies.values():
            if progress.state is CopyState.COPYING and progress.address not in self._turns:
                reads[progress.address].append(progress)
            elif progress.state is CopyState.COMPARING and not progress.is_comparing:
                due += [progress] if progress.not_before_ms <= now_ms else []
        # Longest wait first: partitions that keep failing must not starve the others.
        due.sort(key=lambda progress: progress.not_before_ms)
        for progress in due[: max(0, LOOKS_MAX - self._looks)]:
            progress.is_comparing = True
            self._looks += 1
            scope.spawn(self._ended(self._look(progress)), name="mirror look")
        for address, copies in reads.items():
            # A response is filled in this order: partitions that got records last come last.
            copies.sort(key=lambda progress: progress.served)
            self._turns[address] = None
            scope.spawn(self._ended(self._read_from(scope, address, copies)), name="mirror read")

    async def _ended(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._wake.set()

    async def _look(self, progress: CopyProgress) -> None:
        """Compare a copy with its source; errors schedule another comparison."""
        turn = progress.turn
        try:
            await self._compare(progress, turn)
        except NotMirror as error:
            self._stop(progress, str(error))
        except QuorumlogError as error:
            if progress.turn == turn:
                self._failed(progress, error)
        finally:
            self._looks -= 1
            self._report_failing(progress)

    async def _compare(self, progress: CopyProgress, turn: int) -> None:
        place = progress.place
        copy = await self._copy_of(progress)
        if progress.turn != turn:
            return  # it was stopped during the request
        if copy.high_watermark < copy.end:
            progress.failed("the copy's end is not committed yet", self._now_ms)
            return
        address, epoch = await self._source.leadership(place)
        start, end = await self._source.bounds(place)
        found = None
        if copy.end > max(copy.start, start) and end >= copy.end:
            found = await self._find_divergence(
                progress, address, epoch, first=max(copy.start, start), last=copy.end - 1
            )
        if progress.turn != turn:
            return
        if end < copy.end:
            progress.ends_before(end, copy.end, self._now_ms)
        elif found is not None:
            progress.differs_at(found.offset, found.what)
        if progress.state is CopyState.STOPPED:
            self._say(
                f"{progress.topic}-{progress.partition}: mirroring stopped: {progress.reason}"
            )
        elif progress.is_comparing:
            progress.looked(
                copy_start=copy.start,
                copy_end=copy.end,
                source_start=start,
                address=address,
                epoch=epoch,
            )

    async def _find_divergence(
        self, progress: CopyProgress, address: str, epoch: int, *, first: int, last: int
    ) -> Divergence | None:
        """Return the divergence of the copy's last batch and the source's batch there, if any.

        If compaction has removed the source's batch, compare further back until both logs have
        one.
        """
        newest: Buffer = b""
        distance = 0
        while True:
            offset = max(first, last - distance)
            wants = [PartitionFetch(progress.place, offset, epoch, 1, progress.source)]
            (theirs,) = await self._source.fetch(address, wants, max_wait_ms=0)
            mine = await self._target.read(progress.place, offset)
            for piece in (theirs, mine):
                if piece.error is not None:
                    raise piece.error
            newest = newest or mine.records
            found = find_divergence(mine.records, theirs.records) or find_divergence(
                newest, theirs.records
            )
            if found is not None or offset == first or overlap(mine.records, theirs.records):
                return found
            distance = distance * STEP_BACK or 1

    async def _copy_of(self, progress: CopyProgress) -> CopyBounds:
        address = await self._target.leader(progress.place)
        (copied,) = await self._target.append(
            address, [CopyChunk(progress.place, progress.source, 0)]
        )
        if copied.error is not None:
            raise copied.error
        return copied

    async def _read_from(self, scope: Scope, address: str, copies: list[CopyProgress]) -> None:
        """Read the partitions led at an address and start the appends of their records."""
        turns = [progress.turn for progress in copies]
        wants = [
            PartitionFetch(each.place, each.asked_to, each.checked_epoch, source=each.source)
            for each in copies
        ]
        try:
            try:
                pieces = await self._source.fetch(address, wants, max_wait_ms=WAIT_MS)
            except QuorumlogError as error:
                for progress, turn in zip(copies, turns, strict=True):
                    if progress.turn == turn:
                        self._failed(progress, error, self._source)
                return
            sending: list[_Sending] = []
            self._reads += 1
            for progress, turn, piece in zip(copies, turns, pieces, strict=True):
                if progress.turn == turn:
                    progress.served = self._reads if piece.records else progress.served
                    sending += self._take(progress, piece)
            if sending:
                room = self._rooms.setdefault(address, asyncio.Semaphore(APPENDS_MAX))
                await room.acquire()
                self._begin_append(scope, sending).add_done_callback(lambda _: room.release())
        finally:
            del self._turns[address]

    def _take(self, progress: CopyProgress, piece: PartitionData) -> list[_Sending]:
        """Return the chunks to send for a response."""
        if piece.error is not None:
            self._failed(progress, piece.error, self._source)
            return []
        try:
            what = prepare(piece.records, progress.asked_to)
        except QuorumlogError as error:
            self._failed(progress, error)
            return []
        next_offset = max(what.next_offset, piece.next_offset)
        if not what.size:
            progress.asked_to = next_offset  # only markers, aborted or compacted batches
        progress.answered(source_start=piece.start, source_end=piece.end, now_ms=self._now_ms)
        if not what.size:
            return []
        chunk = CopyChunk(progress.place, progress.source, progress.sent_to, what.parts)
        progress.sent(next_offset=next_offset, end_offset=what.end_offset)
        return [_Sending(progress, progress.turn, chunk, what)]

    def _begin_append(self, scope: Scope, sending: list[_Sending]) -> asyncio.Task[None]:
        """Start to append chunks, after earlier appends of the same partitions."""
        places = [each.chunk.place for each in sending]
        before = [self._newest[place] for place in places if place in self._newest]
        task = scope.spawn(self._ended(self._append(sending, before)), name="mirror append")

        def end(_: asyncio.Task[None]) -> None:
            for place in places:
                if self._newest.get(place) is task:
                    del self._newest[place]

        self._newest.update(dict.fromkeys(places, task))
        task.add_done_callback(end)
        return task

    async def _append(self, sending: list[_Sending], before: list[asyncio.Task[None]]) -> None:
        """Append chunks to their copies; return once each is committed or failed."""
        await asyncio.gather(*before)
        groups: defaultdict[str, list[_Sending]] = defaultdict(list)
        for each in sending:
            if each.progress.turn != each.turn:
                continue  # an earlier append failed: the partition is compared again
            try:
                groups[await self._target.leader(each.chunk.place)].append(each)
            except QuorumlogError as error:
                self._failed(each.progress, error, self._target)
        await asyncio.gather(*(self._append_to(*group) for group in groups.items()))

    async def _append_to(self, address: str, sending: list[_Sending]) -> None:
        try:
            copied = await self._target.append(address, [each.chunk for each in sending])
        except QuorumlogError as error:
            for each in sending:
                if each.progress.turn == each.turn:
                    self._failed(each.progress, error, self._target)
            return
        for each, result in zip(sending, copied, strict=True):
            progress = each.progress
            if progress.turn != each.turn:
                continue
            if isinstance(result.error, NotMirror):
                self._stop(progress, str(result.error))
            elif result.error is not None:
                self._failed(progress, result.error, self._target)
            else:
                progress.appended(
                    copy_start=result.start,
                    copy_end=each.what.end_offset,
                    records=each.what.count,
                    size=each.what.size,
                    newest_ms=each.what.newest_ms,
                    now_ms=self._now_ms,
                )

    def _failed(
        self,
        progress: CopyProgress,
        error: QuorumlogError,
        side: MirrorSource | Target | None = None,
    ) -> None:
        """Record the failure of a side; None: it is not known of which."""
        for each in (self._source, self._target):
            if side is None:
                each.leader_failed(progress.place)
            elif side is each:
                each.leader_failed(progress.place, error)
        progress.failed(str(error), self._now_ms)
        self._report_failing(progress)

    def _report_failing(self, progress: CopyProgress) -> None:
        if progress.is_failing and not progress.is_reported:
            progress.is_reported = True
            self._say(f"{progress.topic}-{progress.partition}: mirroring fails: {progress.reason}")

    def _stop(self, progress: CopyProgress, reason: str) -> None:
        progress.stop(reason)
        self._say(f"{progress.topic}-{progress.partition}: mirroring stopped: {reason}")
