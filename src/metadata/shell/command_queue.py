"""Queue of commands: decides one at a time on the newest image and appends its records.

Owns the newest image of a leadership, including uncommitted changes. A short decision is made and
appended in one step of the event loop, so that commands never interleave; any number of callers
wait for commits concurrently. A long decision is appended in many steps as one metadata
transaction; later commands are queued in order, and no reader gets a part of it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ...errors import NotController, OutcomeUnknown, Overloaded, QuorumlogError, Stopping
from ...ids import NO_NODE, NodeId, Offset
from ...proto import metadata_records_pb2 as pb
from ...raftlog.shell import Proposal, RaftNode
from ..commands import Command, Reply
from ..config import ControllerConfig
from ..controller import check_authorized, decide
from ..decision import AnyDecision, Decision, LongDecision
from ..image import EMPTY_IMAGE, MetadataImage
from ..invariants import changed_partitions, check_change
from ..replay import replay_batch
from .state_machine import Foreseen

COMMANDS_WAITING_MAX: Final = 10_000
"""The maximum number of queued commands."""
OVERLOAD_RETRY_MS: Final = 20
"""Delay before an append is retried while too much is uncommitted."""

_LOG = logging.getLogger("quorumlog.metadata")

Decide: TypeAlias = Callable[[MetadataImage, Command, ControllerConfig], AnyDecision]
_Records: TypeAlias = tuple[pb.MetadataRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A committed decision."""

    reply: Reply
    offset: Offset  # of the last record that the reply depends on; -1: none was ever appended
    brokers: tuple[NodeId, ...]  # that must apply it before it is usable


@dataclass(frozen=True, slots=True)
class _Decided:
    outcome: Outcome | QuorumlogError  # an error: the command was rejected
    proposal: Proposal | None  # the newest one, whose commit the outcome depends on


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A transaction without an end, from an earlier leader."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A queued command or long decision, and the future of its caller."""

    work: Command | LongDecision | _Unfinished
    done: "asyncio.Future[_Decided] | None" = None
    authorized_offset: int | None = None  # of a client's command, see CommandQueue.submit

    @property
    def is_wanted(self) -> bool:
        """True if the caller still waits, or there is none."""
        return self.done is None or not self.done.done()

    def succeed(self, decided: _Decided) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(decided)

    def fail(self, error: Exception) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)


class CommandQueue:
    """The newest image of a leadership and the commands that change it; run() executes long
    decisions."""

    def __init__(
        self,
        *,
        config: ControllerConfig,
        leader_id: Callable[[], NodeId | None],
        decide: Decide = decide,
    ) -> None:
        """`leader_id` returns the known leader of the quorum, for NotController errors."""
        self._config = config
        self._decide_on = decide
        self._leader_id = leader_id
        self._node: RaftNode | None = None  # None: not leading
        self._leadership = 0  # number of leaderships; work of an earlier one is abandoned
        self._image: MetadataImage = EMPTY_IMAGE
        self._last: Proposal | None = None  # newest proposal of this leadership
        self._transactions: dict[
            tuple[int, int], Foreseen
        ] = {}  # by offset and epoch of the begin record
        self._jobs: deque[_Job] = deque()
        self._is_busy = False  # a long decision is in progress
        self._wake = asyncio.Event()
        self._closed = False

    # --- leadership ----------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """True while this node is the active controller."""
        return self._node is not None

    @property
    def image(self) -> MetadataImage:
        """The newest image, without incomplete transactions; while not leading, the last one."""
        return self._image

    def begin(self, node: RaftNode, image: MetadataImage, *, open_transaction: str | None) -> None:
        """Start a leadership with this image; everything before is committed.

        An open transaction of an earlier leader is aborted first.
        """
        self.end(image)
        self._transactions.clear()
        self._node = node
        if open_transaction is not None:
            # sometimes: a controller aborts the transaction of its predecessor
            reason = f"{open_transaction}: its controller lost the leadership"
            self._add(_Job(_Unfinished(reason)))

    def end(self, image: MetadataImage) -> None:
        """End the leadership; fail queued commands and those in progress."""
        self._node, self._image, self._last = None, image, None
        self._leadership += 1
        while self._jobs:
            self._jobs.popleft().fail(self.not_active())

    def foresee(self, offset: int, epoch: int) -> Foreseen | None:
        """Return and forget the transaction of this node whose begin record has this offset and
        epoch; None if it is another node's."""
        return self._transactions.pop((offset, epoch), None)

    def committed(self, image: MetadataImage) -> None:
        """Share the committed image if it equals the newest one, to free the copy."""
        if self._node is not None and image.offset == self._image.offset:
            self._image = image

    def check_active(self) -> None:
        """Raise NotController unless this node is the active controller."""
        if self._node is None:
            raise self.not_active()

    def not_active(self) -> NotController:
        """Return the error of a node that is not the active controller."""
        leader = self._leader_id()
        return NotController(
            "this node is not the active controller",
            leader_id=NO_NODE if leader is None else leader,
        )

    # --- commands ------------------------------------------------------------------------------

    async def submit(self, command: Command, *, authorized_offset: int | None = None) -> Outcome:
        """Decide, append and wait for the commit. `authorized_offset` is that of the metadata on
        which a broker authorized the client of a relayed command; see `check_authorized`.

        Raises the errors of `decide` after the commit of the image that they depend on;
        AuthorizationOutdated;
        NotController, Overloaded and Stopping if no record was appended; OutcomeUnknown if the
        outcome is unknown because the leadership or the node ended.
        """
        self.check_active()
        if self._is_busy or self._jobs:
            decided = await self._queue(command, authorized_offset)
        else:
            result = self._decide(command, authorized_offset)
            decided = await self._queue(result) if isinstance(result, LongDecision) else result
        await self._committed(decided)
        if isinstance(decided.outcome, QuorumlogError):
            raise decided.outcome
        return decided.outcome

    async def _committed(self, decided: _Decided) -> None:
        """Wait for the commit of the proposal that an outcome depends on."""
        if decided.proposal is None:
            return
        try:
            await decided.proposal.wait_committed()
        except OutcomeUnknown:
            if isinstance(decided.outcome, QuorumlogError):  # no record of it was appended
                # sometimes: a refusal depends on records that are not committed
                raise self.not_active() from None
            raise

    async def _queue(
        self, work: Command | LongDecision, authorized_offset: int | None = None
    ) -> _Decided:
        if len(self._jobs) >= COMMANDS_WAITING_MAX:
            raise Overloaded(
                f"{COMMANDS_WAITING_MAX} commands are queued behind a long decision; retry later"
            )
        done: asyncio.Future[_Decided] = asyncio.get_running_loop().create_future()
        self._add(_Job(work, done, authorized_offset))
        return await done

    def _add(self, job: "_Job") -> None:
        self._jobs.append(job)
        self._wake.set()

    def _decide(self, command: Command, authorized_offset: int | None) -> _Decided | LongDecision:
        """Decide on the newest image, and append unless the decision is long; one step of the event
        loop."""
        try:
            if authorized_offset is not None:
                check_authorized(self._image, command, authorized_offset)
            decision = self._decide_on(self._image, command, self._config)
        except QuorumlogError as refusal:
            return _Decided(refusal, self._last)
        if isinstance(decision, LongDecision):
            return decision
        if len(decision.records) > self._config.records_at_once:
            return _as_long(type(command).__name__, decision)
        return self._append_whole(decision)

    def _append_whole(self, decision: Decision) -> _Decided:
        if decision.records:
            self._image = self._append(self._image, decision.records)
        # A reply without changes may still depend on uncommitted records.
        return _Decided(
            Outcome(reply=decision.reply, offset=self._image.offset, brokers=decision.brokers),
            self._last,
        )

    def _append(self, image: MetadataImage, records: _Records) -> MetadataImage:
        """Append the records as one proposal; return the image after them.

        They are replayed and checked first: an invalid record in the log would stop every node that
        reads it, permanently.
        """
        node = self._node
        if node is None:
            raise self.not_active()
        position = node.next_position
        base_offset, epoch = position.offset, position.epoch
        after = replay_batch(image, records, base_offset=base_offset, epoch=epoch)
        check_change(image, after, changed_partitions(records))
        values = [record.SerializeToString(deterministic=True) for record in records]
        proposal = node.propose_nowait(values)
        assert (proposal.base_offset, proposal.epoch) == (base_offset, epoch), "offsets drifted"
        self._last = proposal
        return after

    # --- long decisions ------------------------------------------------------------------------

    async def run(self) -> None:
        """Execute long decisions and the commands queued behind them, until close()."""
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
        """Stop run(). An incomplete long decision has no effect."""
        self._closed = True
        self._wake.set()

    async def _work_on(self, job: _Job) -> None:
        try:
            work = job.work
            if isinstance(work, _Unfinished):
                return await self._abort(self._image, work.reason, self._leadership)
            if isinstance(work, LongDecision):
                result: _Decided | LongDecision = work
            else:
                result = self._decide(work, job.authorized_offset)
            decided = await self._execute(result) if isinstance(result, LongDecision) else result
        except Exception as error:  # also a programming error goes to the caller
            job.fail(error)
        else:
            job.succeed(decided)

    async def _execute(self, decision: LongDecision) -> _Decided:
        steps = _Steps(
            decision.slices,
            size=self._config.records_at_once,
            leadership=self._leadership,
            check=self._check_same,
        )
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
        """Append the begin record, all steps (the first two are read already) and the end record;
        return the image after them.

        The end record comes last, so that after an error the transaction has no effect.
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
                # sometimes: a long decision fails before its end
                await self._abort(image, f"{name}: {error}", leadership)
            raise
        _LOG.info(
            "controller.transaction name=%r offsets=%d-%d", name, before.offset + 1, image.offset
        )
        return image

    async def _append_when_room(
        self, image: MetadataImage, records: _Records, leadership: int
    ) -> MetadataImage:
        """Append one step; wait while too much is uncommitted."""
        while True:
            try:
                return self._append(image, records)
            except Overloaded:
                await asyncio.sleep(OVERLOAD_RETRY_MS / 1000)
                self._check_same(leadership)

    async def _abort(self, image: MetadataImage, reason: str, leadership: int) -> None:
        """Append the abort of a transaction; `image` is the one after its records so far."""
        record = pb.MetadataRecord(abort_transaction=pb.AbortTransactionRecord(reason=reason))
        after = await self._append_when_room(image, (record,), leadership)
        self._image = replace(self._image, offset=after.offset, epoch=after.epoch)
        _LOG.warning("controller.transaction_aborted reason=%r", reason)

    def _check_same(self, leadership: int) -> None:
        """Raise an error unless the leadership is the one of the previous step."""
        if self._closed:
            raise Stopping("the node is stopping")
        if self._leadership != leadership:
            raise self.not_active()


class _Steps:
    """The records of a long decision, one step of the event loop at a time."""

    def __init__(
        self,
        slices: Iterator[_Records],
        *,
        size: int,
        leadership: int,
        check: Callable[[int], None],
    ) -> None:
        self._slices = slices
        self._size = size
        self._leadership = leadership
        self._check = check
        self._left: _Records = ()

    async def read(self) -> _Records:
        """Yield to the event loop and return the next records, () at the end; raise an error if the
        leadership is over."""
        while True:
            await asyncio.sleep(0)
            self._check(self._leadership)
            if not self._left:
                following = next(self._slices, None)
                if following is None:
                    return ()
                self._left = following
            step, self._left = self._left[: self._size], self._left[self._size :]
            if step:
                return step


def _as_long(name: str, decision: Decision) -> LongDecision:
    """Return the decision as a long one, to append it in steps."""
    result = (decision.reply, decision.brokers)
    return LongDecision(name=name, slices=iter((decision.records,)), finish=lambda _: result)
