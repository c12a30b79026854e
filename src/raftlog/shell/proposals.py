"""Proposals from elsewhere: a stream of requests to the leader, answered as they are committed.

For processes whose only service is the log: the values of one request are one proposal, so they
stand together in the log or not at all. The metadata has its own calls. A caller with many requests
at a time sends them in one message, and is answered so: a message costs more than a proposal.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, TypeAlias

from ...errors import InvalidRequest, QuorumlogError
from ...proto import raft_pb2 as pb
from ...runtime import CallContext, Handler, Runtime, Stream
from ...runtime.error_detail import encode_error
from ...services import RAFT_PROPOSE
from .gathering import Proposal
from .node import RaftNode

UNANSWERED_MAX: Final = 10_000
"""Requests of one stream that were not answered yet: beyond it no more messages are read."""
ANSWERS_A_MESSAGE_MAX: Final = 128

ProposalStream: TypeAlias = Stream[pb.ProposeResponse, pb.ProposeRequest]
_Asked: TypeAlias = tuple[int, Proposal | QuorumlogError]  # id of the request, what became of it


class ProposalService:
    """Serves `Raft.Propose` over one node."""

    def __init__(self, runtime: Runtime, node: RaftNode) -> None:
        self._runtime = runtime
        self._node = node

    def handlers(self) -> dict[str, Handler]:
        """The table for Network.serve."""
        return {RAFT_PROPOSE.path: Handler(RAFT_PROPOSE, self._propose)}

    async def _propose(self, stream: ProposalStream, context: CallContext) -> None:
        """Take requests until the caller has no more, then wait for the last answers."""
        answers = _Answers(stream)
        async with self._runtime.tasks.scope("raft.proposals") as scope:
            scope.spawn(answers.run(), name="answers")
            while (request := await stream.receive()) is not None:
                await answers.room()
                answers.add((request.id, self._outcome(request)))
                if request.more:
                    self._take_more(request, answers)
            answers.finish()

    def _take_more(self, request: pb.ProposeRequest, answers: "_Answers") -> None:
        if len(request.more) > UNANSWERED_MAX:
            raise InvalidRequest(
                f"{len(request.more)} requests in one message: send at most {UNANSWERED_MAX}"
            )
        answers.gathers = True
        for another in request.more:
            outcome: Proposal | QuorumlogError
            if another.more:
                outcome = InvalidRequest("more is set within more; list all requests in one")
            else:
                outcome = self._outcome(another)
            answers.add((another.id, outcome))

    def _outcome(self, request: pb.ProposeRequest) -> Proposal | QuorumlogError:
        if not request.values:
            return InvalidRequest("values is empty; give at least one")
        try:
            return self._node.propose_nowait(list(request.values))
        except QuorumlogError as error:
            return error


class _Answers:
    """What one stream waits for, answered in the order of the requests: that of the log."""

    def __init__(self, stream: ProposalStream) -> None:
        self.gathers = False  # whether the caller takes several answers in one message
        self._stream = stream
        self._asked: deque[_Asked] = deque()
        self._moved = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_finished = False

    def add(self, asked: _Asked) -> None:
        """One more request was taken."""
        self._asked.append(asked)
        self._moved.set()

    async def room(self) -> None:
        """Return once there is room for one more message."""
        while len(self._asked) >= UNANSWERED_MAX:
            self._has_room.clear()
            await self._has_room.wait()

    def finish(self) -> None:
        """No more requests: run() ends with the last answer."""
        self._is_finished = True
        self._moved.set()

    async def run(self) -> None:
        """Answer."""
        while True:
            if not self._asked:
                if self._is_finished:
                    return
                self._moved.clear()
                await self._moved.wait()
                continue
            outcome = self._asked[0][1]
            if isinstance(outcome, Proposal) and not outcome.is_done:
                await outcome.done_future()
            answer = _response(*self._asked.popleft())
            answer.more.extend([_response(*asked) for asked in self._done_as_well()])
            self._has_room.set()
            await self._stream.send(answer)

    def _done_as_well(self) -> Iterable[_Asked]:
        """Take what goes into the same message."""
        asked = self._asked
        left = ANSWERS_A_MESSAGE_MAX - 1 if self.gathers else 0
        while asked and left:
            outcome = asked[0][1]
            if isinstance(outcome, Proposal) and not outcome.is_done:
                return
            left -= 1
            yield asked.popleft()


def _response(request_id: int, outcome: Proposal | QuorumlogError) -> pb.ProposeResponse:
    error = outcome.error if isinstance(outcome, Proposal) else outcome
    if error is not None:
        return pb.ProposeResponse(id=request_id, error=encode_error(error))
    assert isinstance(outcome, Proposal), "no error and no proposal"
    return pb.ProposeResponse(
        id=request_id, offsets=range(outcome.base_offset, outcome.next_offset)
    )
