"""Counts of the runs of Produce requests that the brokers begin, by kind.

Each listener's table of APIs gets an observer of `ProduceRequestRun`, which changes nothing.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum

from quorumlog.broker.shell.replica import Replica
from quorumlog.frontends.kafka.api import Answer, BrokerContext, Client, Done, RequestRun
from quorumlog.frontends.kafka.apis.produce import ProduceRequestRun
from quorumlog.frontends.kafka.frames import RequestFrameReader
from quorumlog.frontends.kafka.server import KafkaServer

from ...checkers.violation import Violation
from .client import PRODUCE


class RunMark(StrEnum):
    """The kinds of runs; a run counts with each kind that it has."""

    SEVERAL = "runs"  # of at least two requests
    WAITS = "run_waits"  # with acks=all, and waits for its acknowledgement after its write
    WITHOUT_ANSWERS = "run_acks0"  # with acks=0
    LOGS = "run_logs"  # with batches of at least two logs
    VERSIONS = "run_versions"  # with requests of at least two versions
    ENDED = "run_ended"  # ended by a request that it did not take
    FAILED = "run_failed"  # a write of it failed


@dataclass(slots=True)
class RunMarks:
    """The counts of a level's run."""

    counts: Counter[RunMark] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def observe(self, server: KafkaServer) -> None:
        """Count the runs of a listener's connections from now on."""
        api = server.apis[PRODUCE]

        def observed(broker: BrokerContext, client: Client, count_max: int) -> RequestRun:
            return _ObservedRun(ProduceRequestRun(broker, client, count_max), count_max, self)

        assert api.run is ProduceRequestRun, f"{api.run}"
        server.apis = {**server.apis, PRODUCE: replace(api, run=observed)}

    def facts(self) -> dict[str, int]:
        """Return every count, also those of 0."""
        return {str(mark): self.counts[mark] for mark in RunMark}


@dataclass(slots=True)
class _ObservedRun:
    """A run with an observer."""

    run: ProduceRequestRun
    count_max: int
    marks: RunMarks
    is_ended: bool = False  # by a request that the run did not take

    @property
    def count(self) -> int:
        """See `RequestRun.count`."""
        return self.run.count

    @property
    def size(self) -> int:
        """See `RequestRun.size`."""
        return self.run.size

    def take(self, frames: RequestFrameReader) -> None:
        """See `RequestRun.take`."""
        self.run.take(frames)
        self.is_ended = frames.first_key() >= 0 and self.count < self.count_max

    def end(self) -> Answer | Exception:
        """See `RequestRun.end`."""
        placed = self.run._run
        tails = [tail for tail in placed.tails if tail.count]
        for tail in tails:
            replica = tail.owner
            assert isinstance(replica, Replica), f"{replica} owns a tail"
            if replica.partition.leader is None:
                name = f"{replica.partition.topic}-{replica.partition.index}"
                self.marks.violations.append(Violation("AppendedByFollower", name))
        answer = self.run.end()
        counts = self.marks.counts
        counts[RunMark.ENDED] += self.is_ended
        counts[RunMark.FAILED] += any(tail.error is not None for tail in tails)
        if self.count > 1:
            counts[RunMark.SEVERAL] += 1
            counts[RunMark.WAITS] += placed.acks == -1 and answer is None
            counts[RunMark.WITHOUT_ANSWERS] += placed.acks == 0
            counts[RunMark.LOGS] += len(tails) > 1
            counts[RunMark.VERSIONS] += len({version for _, version, _ in placed.requests()}) > 1
        return answer

    def wait(self, done: Done) -> None:
        """See `RequestRun.wait`."""
        self.run.wait(done)
