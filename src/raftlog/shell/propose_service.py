"""The `Raft.Propose` service: a stream of proposals to the leader, acknowledged when committed.

It serves processes that use only the log; the metadata has its own calls. The values of one request
are one proposal and atomic. A caller may put many requests into one message and gets the responses
in one message, because a message costs more than a proposal.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, TypeAlias

from ...errors import InvalidRequest, QuorumlogError
from ...proto import raft_pb2 as pb
from ...runtime import CallContext, Handler, Runtime, Stream
from ...runtime.error_detail import encode_error
from ...runtime.node_identity import CONTROLLER_ROLE, check_role
from ...services import RAFT_PROPOSE
from .node import RaftNode
from .proposal_queue import Proposal

UNANSWERED_MAX: Final = 10_000
"""Limit on unanswered requests of one stream; at the limit no more messages are read."""
ANSWERS_A_MESSAGE_MAX: Final = 128

ProposalStream: TypeAlias = Stream[pb.ProposeResponse, pb.ProposeRequest]
_Asked: TypeAlias = tuple[int, Proposal | QuorumlogError]  # id of the request, its outcome


class ProposalService:
    """Serves `Raft.Propose` on one node."""

    def __init__(self, runtime: Runtime, node: RaftNode) -> None:
        self._runtime = runtime
        self._node = node

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers for Network.serve."""
        return {RAFT_PROPOSE.path: Handler(RAFT_PROPOSE, self._propose)}

    async def _propose(self, stream: ProposalStream, context: CallContext) -> None:
        """Process requests until the caller ends the stream, then wait for the last responses."""
        check_role(context.sender, CONTROLLER_ROLE)
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
                f"proposals: {len(request.more)} requests in a message; the limit is"
                f" {UNANSWERED_MAX}"
            )
        answers.gathers = True
        for another in request.more:
            outcome: Proposal | QuorumlogError
            if another.more:
                outcome = InvalidRequest(
                    "proposals: `more` inside `more`; list all requests in one `more`"
                )
            else:
                outcome = self._outcome(another)
            answers.add((another.id, outcome))

    def _outcome(self, request: pb.ProposeRequest) -> Proposal | QuorumlogError:
        if not request.values:
            return InvalidRequest("proposal: no values; send at least one")
        try:
            return self._node.propose_nowait(list(request.values))
        except QuorumlogError as error:
            return error


class _Answers:
    """The pending responses of one stream, sent in the order of the requests."""

    def __init__(self, stream: ProposalStream) -> None:
        self.gathers = False  # the caller accepts several responses in one message
        self._stream = stream
        self._asked: deque[_Asked] = deque()
        self._moved = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_finished = False

    def add(self, asked: _Asked) -> None:
        """Add a request with its outcome."""
        self._asked.append(asked)
        self._moved.set()

    async def room(self) -> None:
        """Wait until one more message may be read."""
        while len(self._asked) >= UNANSWERED_MAX:
            self._has_room.clear()
            await self._has_room.wait()

    def finish(self) -> None:
        """Let run() end after the last response."""
        self._is_finished = True
        self._moved.set()

    async def run(self) -> None:
        """Send the responses in order."""
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
        """Yield the following responses that fit in the same message."""
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
