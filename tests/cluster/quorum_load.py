"""Load on a quorum: clients that allocate blocks of producer ids, checked as a counter.

Each block is allocated by one committed record: no block is allocated twice, and a block requested
after the response with another one is a later one.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType

from quorumlog.errors import NotController, QuorumlogError
from quorumlog.ids import NO_NODE
from quorumlog.proto import controller_pb2
from quorumlog.runtime import Channel, Runtime, real
from quorumlog.services import CONTROLLER_RELAY

CALL_MS = 3_000
PAUSE_S = 0.01
WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Taken:
    """One block: the times of request and response, and its first id."""

    asked: float
    answered: float
    start: int


class QuorumLoad:
    """Clients in a separate thread, from enter to exit."""

    def __init__(self, cluster_id: str, addresses: Sequence[str], *, clients: int = 4) -> None:
        self.addresses = list(addresses)  # of controllers; may grow during the run
        self.taken: list[Taken] = []
        self._cluster_id = cluster_id
        self._clients = clients
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="quorum load", daemon=True)

    def __enter__(self) -> "QuorumLoad":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the clients do not end"
        if self._failure is not None and error is None:
            raise self._failure

    def wait_for(self, count: int) -> None:
        """Wait until so many more blocks were allocated: the quorum serves."""
        wanted = len(self.taken) + count
        end = time.monotonic() + WAIT_S
        while len(self.taken) < wanted:
            assert self._failure is None, self._failure
            assert time.monotonic() < end, f"{wanted - len(self.taken)} blocks of {count} are left"
            time.sleep(PAUSE_S)

    def check(self) -> None:
        """Check the allocated blocks against a counter."""
        starts = [each.start for each in self.taken]
        assert len(set(starts)) == len(starts), "a block was allocated twice"
        newest = -1
        events = [(each.answered, 0, each.start) for each in self.taken]
        asked = sorted((each.asked, each.start) for each in self.taken)
        events.sort()
        done = iter(events)
        ending = next(done, None)
        for when, start in asked:
            while ending is not None and ending[0] < when:
                newest = max(newest, ending[2])
                ending = next(done, None)
            assert start > newest, f"block {start} was requested after the response with {newest}"

    def longest_gap_s(self) -> float:
        """Return the longest time without a response."""
        answers = sorted(each.answered for each in self.taken)
        return max((b - a for a, b in pairwise(answers)), default=0.0)

    def _run(self) -> None:
        try:
            real.run(self._main, name="load")
        except BaseException as error:
            self._failure = error

    async def _main(self, runtime: Runtime) -> None:
        async with runtime.tasks.scope("load") as scope:
            for number in range(self._clients):
                scope.spawn(self._take(runtime, number), name=f"client-{number}")

    async def _take(self, runtime: Runtime, number: int) -> None:
        channels: dict[str, Channel] = {}
        turn = number
        while not self._stop.is_set():
            address = self.addresses[turn % len(self.addresses)]
            channel = channels.setdefault(address, runtime.network.channel(address))
            request = controller_pb2.RelayRequest(cluster_id=self._cluster_id, broker_id=NO_NODE)
            request.allocate_producer_ids.broker_epoch = -1
            asked = time.monotonic()
            try:
                answer = await channel.call(CONTROLLER_RELAY, request, timeout_ms=CALL_MS)
            except NotController:
                turn += 1
                await asyncio.sleep(PAUSE_S / 2)
            except QuorumlogError as error:
                if not error.retriable:
                    raise
                turn += 1
                await asyncio.sleep(PAUSE_S)
            else:
                start = answer.allocate_producer_ids.producer_id_start
                self.taken.append(Taken(asked, time.monotonic(), start))
