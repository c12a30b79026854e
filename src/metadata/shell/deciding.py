"""Decides one command at a time on the newest image and appends what was decided.

Owns the newest image of a leadership, uncommitted changes included. A short decision is made and
appended in one step of the loop, so that commands never interleave; waiting for commits is done by
as many as like to. A long one is appended in many steps, as one metadata transaction; commands that
come meanwhile wait their turn, first come, first decided, and nobody sees a part of it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ...errors import Lost, NotController, Overloaded, QuorumlogError, Stopping
from ...ids import NO_NODE, NodeId, Offset
from ...proto import metadata_records_pb2 as pb
from ...raftlog.shell import Proposal, RaftNode
from ..commands import Command, Reply
from ..controller import decide
from ..decision import AnyDecision, ControllerConfig, Decision, LongDecision
from ..image import EMPTY_IMAGE, MetadataImage
from ..replaying import replay_batch
from .publisher import Foreseen

RECORDS_AT_ONCE: Final = 100
"""Records that are appended and replayed in one step of the loop, a few milliseconds: a decision
with more is a long one."""
COMMANDS_WAITING_MAX: Final = 10_000
"""Commands that may wait for a long decision to end."""
ROOM_RETRY_MS: Final = 20

_LOG = logging.getLogger("quorumlog.metadata")

Decide: TypeAlias = Callable[[MetadataImage, Command, ControllerConfig], AnyDecision]
_Records: TypeAlias = tuple[pb.MetadataRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A committed decision."""

    reply: Reply
    offset: Offset  # of the last record behind the reply; -1: nothing was ever appended
    brokers: tuple[NodeId, ...]  # who must have applied it before it is usable


@dataclass(frozen=True, slots=True)
class _Decided:
    outcome: Outcome | QuorumlogError  # an error: it was refused
    proposal: Proposal | None  # the newest one, on whose commit the outcome hangs


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A transaction that a leader before has left."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A command or a long decision that waits to be worked on, and who waits for it."""

    work: Command | LongDecision | _Unfinished
    done: "asyncio.Future[_Decided] | None" = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for it, or it is our own."""
        return self.done is None or not self.done.done()

    def succeed(self, decided: _Decided) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(decided)

    def fail(self, error: Exception) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)


class Deciding:
    """The newest image of a leadership and the commands that change it; run() must run for long
    decisions."""

    def __init__(
        self,
        *,
        config: ControllerConfig,
        leader_id: Callable[[], NodeId | None],
        decide: Decide = decide,
    ) -> None:
        """`leader_id` is who leads the quorum as far as is known, for those who are sent on."""
        self._config = config
        self._decide_on = decide
        self._leader_id = leader_id
        self._node: RaftNode | None = None  # None: not leading
        self._leadership = 0  # counts them: what one has begun the next does not go on with
        self._image: MetadataImage = EMPTY_IMAGE
        self._last: Proposal | None = None  # newest proposal of this leadership
        self._transactions: dict[tuple[int, int], Foreseen] = {}  # by offset and epoch of the begin
        self._jobs: deque[_Job] = deque()
        self._is_busy = False  # a long decision is under way
        self._wake = asyncio.Event()
        self._closed = False

    # --- leadership ----------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether commands are decided here."""
        return self._node is not None

    @property
    def image(self) -> MetadataImage:
        """The newest image without a part of a long decision; while not leading, the last one."""
        return self._image

    def begin(self, node: RaftNode, image: MetadataImage, *, open_transaction: str | None) -> None:
        """Decide over the node's log from this image on; everything before is committed.

        What a leader before has begun and not ended is aborted first.
        """
        self.end(image)
        self._transactions.clear()
        self._node = node
        if open_transaction is not None:
            reason = f"{open_transaction}: the controller that began it leads no more"
            self._add(_Job(_Unfinished(reason)))

    def end(self, image: MetadataImage) -> None:
        """Another leads, or nobody: fail what waits and what is under way."""
        self._node, self._image, self._last = None, image, None
        self._leadership += 1
        while self._jobs:
            self._jobs.popleft().fail(self.not_active())

    def foresee(self, offset: int, epoch: int) -> Foreseen | None:
        """Return the transaction that was begun here by the record at an offset, written in an
        epoch, None: another has begun it. It is asked for once."""
        return self._transactions.pop((offset, epoch), None)

    def committed(self, image: MetadataImage) -> None:
        """This much is committed: hold one copy less of an equal image."""
        if self._node is not None and image.offset == self._image.offset:
            self._image = image

    def check_active(self) -> None:
        """Raise NotController unless commands are decided here."""
        if self._node is None:
            raise self.not_active()

    def not_active(self) -> NotController:
        """The error of a node that does not lead."""
        leader = self._leader_id()
        return NotController(
            "this node is not the active controller",
            leader_id=NO_NODE if leader is None else leader,
        )

    # --- commands ------------------------------------------------------------------------------

    async def submit(self, command: Command) -> Outcome:
        """Decide, append and wait for the commit.

        Raises what `decide` raises, once that is committed on which it was decided; NotController,
        Overloaded, Stopping: nothing of it counts; Lost: the leadership or the node ended with the
        outcome unknown.
        """
        self.check_active()
        if self._is_busy or self._jobs:
            decided = await self._queue(command)
        else:
            result = self._decide(command)
            decided = await self._queue(result) if isinstance(result, LongDecision) else result
        await self._committed(decided)
        if isinstance(decided.outcome, QuorumlogError):
            raise decided.outcome
        return decided.outcome

    async def _committed(self, decided: _Decided) -> None:
        """Return once that is committed on which an outcome hangs."""
        if decided.proposal is None:
            return
        try:
            await decided.proposal.wait_committed()
        except Lost:
            if isinstance(decided.outcome, QuorumlogError):  # and so nothing of it was appended
                raise self.not_active() from None
            raise

    async def _queue(self, work: Command | LongDecision) -> _Decided:
        if len(self._jobs) >= COMMANDS_WAITING_MAX:
            raise Overloaded("too many commands wait for a long decision: wait and repeat")
        done: asyncio.Future[_Decided] = asyncio.get_running_loop().create_future()
        self._add(_Job(work, done))
        return await done

    def _add(self, job: "_Job") -> None:
        self._jobs.append(job)
        self._wake.set()

    def _decide(self, command: Command) -> _Decided | LongDecision:
        """Decide on the newest image; append unless that is long. One step of the loop."""
        try:
            decision = self._decide_on(self._image, command, self._config)
        except QuorumlogError as refusal:
            return _Decided(refusal, self._last)
        if isinstance(decision, LongDecision):
            return decision
        if len(decision.records) > RECORDS_AT_ONCE:
            return _as_long(type(command).__name__, decision)
        return self._append_whole(decision)

    def _append_whole(self, decision: Decision) -> _Decided:
        if decision.records:
            self._image = self._append(self._image, decision.records)
        # An answer that changes nothing may still hang on what is not committed yet.
        return _Decided(
            Outcome(reply=decision.reply, offset=self._image.offset, brokers=decision.brokers),
            self._last,
        )

    def _append(self, image: MetadataImage, records: _Records) -> MetadataImage:
        """Append the records as one proposal; return the image after them.

        They are replayed first: what does not fit must not reach the log, where it would end every
        node that reads it, for good.
        """
        node = self._node
        if node is None:
            raise self.not_active()
        base_offset, epoch = node.next_offset, node.epoch
        image = replay_batch(image, records, base_offset=base_offset, epoch=epoch)
        values = [record.SerializeToString(deterministic=True) for record in records]
        proposal = node.propose_nowait(values)
        assert (proposal.base_offset, proposal.epoch) == (base_offset, epoch), "offsets drifted"
        self._last = proposal
        return image

    # --- long decisions ------------------------------------------------------------------------

    async def run(self) -> None:
        """Work off long decisions and what waits behind them, until close()."""
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            while self._jobs and not self._closed:
                job = self._jobs.popleft()
                if not job.is_wanted:
                    continue
                self._is_busy = True
                try:
                    await self._work_on(job)
                finally:
                    self._is_busy = False
                await asyncio.sleep(0)
        while self._jobs:
            self._jobs.popleft().fail(Stopping("the node is stopping"))

    def close(self) -> None:
        """End run(), a long decision in it half made: nothing of that counts."""
        self._closed = True
        self._wake.set()

    async def _work_on(self, job: _Job) -> None:
        try:
            work = job.work
            if isinstance(work, _Unfinished):
                return await self._abort(self._image, work.reason, self._leadership)
            result = work if isinstance(work, LongDecision) else self._decide(work)
            decided = await self._carry_out(result) if isinstance(result, LongDecision) else result
        except Exception as error:  # whoever asked is told, also of an error of the program
            job.fail(error)
        else:
            job.succeed(decided)

    async def _carry_out(self, decision: LongDecision) -> _Decided:
        steps = _Steps(decision.slices, leadership=self._leadership, check=self._check_same)
        first, second = await steps.read(), await steps.read()
        if second:
            after = await self._append_transaction(decision.name, first, second, steps)
        else:
            after = self._append(self._image, first) if first else self._image
        self._image = after
        reply, brokers = decision.finish(after)
        return _Decided(Outcome(reply=reply, offset=after.offset, brokers=brokers), self._last)

    async def _append_transaction(
        self, name: str, first: _Records, second: _Records, steps: "_Steps"
    ) -> MetadataImage:
        """Append begin, the two steps that were read, the rest, and end; return the image after
        them.

        The last step is the append of the end, so that an error means that nothing counts.
        """
        leadership, before = self._leadership, self._image
        begin = pb.MetadataRecord(begin_transaction=pb.BeginTransactionRecord(name=name))
        end = pb.MetadataRecord(end_transaction=pb.EndTransactionRecord())
        image = await self._append_when_room(before, (begin, *first), leadership)
        assert self._last is not None, "nothing was appended"
        foreseen = Foreseen()
        self._transactions[self._last.base_offset, self._last.epoch] = foreseen
        records = second
        try:
            while records:
                await asyncio.sleep(0)
                self._check_same(leadership)
                image = await self._append_when_room(image, records, leadership)
                records = await steps.read()
            image = await self._append_when_room(image, (end,), leadership)
            foreseen.image = image
        except Exception as error:
            if self._leadership == leadership and not self._closed:
                await self._abort(image, f"{name}: {error}", leadership)
            raise
        _LOG.info(
            "controller.transaction name=%r offsets=%d-%d", name, before.offset + 1, image.offset
        )
        return image

    async def _append_when_room(
        self, image: MetadataImage, records: _Records, leadership: int
    ) -> MetadataImage:
        """Append one step; wait first where too much is uncommitted."""
        while True:
            try:
                return self._append(image, records)
            except Overloaded:
                await asyncio.sleep(ROOM_RETRY_MS / 1000)
                self._check_same(leadership)

    async def _abort(self, image: MetadataImage, reason: str, leadership: int) -> None:
        """Append that nothing counts of what was begun; `image` is the one after all of it."""
        record = pb.MetadataRecord(abort_transaction=pb.AbortTransactionRecord(reason=reason))
        after = await self._append_when_room(image, (record,), leadership)
        self._image = replace(self._image, offset=after.offset, epoch=after.epoch)
        _LOG.warning("controller.transaction_aborted reason=%r", reason)

    def _check_same(self, leadership: int) -> None:
        """Raise unless the leadership goes on in which the step before was made."""
        if self._closed:
            raise Stopping("the node is stopping")
        if self._leadership != leadership:
            raise self.not_active()


class _Steps:
    """The records of a long decision, a step of the loop at a time."""

    def __init__(
        self, slices: Iterator[_Records], *, leadership: int, check: Callable[[int], None]
    ) -> None:
        self._slices = slices
        self._leadership = leadership
        self._check = check
        self._left: _Records = ()

    async def read(self) -> _Records:
        """Return the next records, none: that were all, after others had their turn; raises when
        the leadership is over."""
        while True:
            await asyncio.sleep(0)
            self._check(self._leadership)
            if not self._left:
                following = next(self._slices, None)
                if following is None:
                    return ()
                self._left = following
            step, self._left = self._left[:RECORDS_AT_ONCE], self._left[RECORDS_AT_ONCE:]
            if step:
                return step


def _as_long(name: str, decision: Decision) -> LongDecision:
    """The same decision, to be appended in steps."""
    said = (decision.reply, decision.brokers)
    return LongDecision(name=name, slices=iter((decision.records,)), finish=lambda _: said)
