"""Virtual time and the machines of a run: a heap of events."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from quorumlog.ids import NodeId
from quorumlog.metadata.image import PartitionImage
from quorumlog.simulation.entropy import SimEntropy

from ...shrink.script import MakeRandom, plain_random
from .broker import WAITS_MAX, ModelBroker, Place
from .controller import ModelController
from .invariants import PartitionInvariants
from .options import ReplicationOptions, draw
from .waits import ProduceWaits

if TYPE_CHECKING:
    from .isr import IsrUpdates
    from .lifecycle import BrokerLifecycle
    from .traffic import Traffic

LINES_KEPT: Final = 60


def entropy_of(seed: int) -> SimEntropy:
    """Return the stream of a run."""
    return SimEntropy(f"partitions/{seed}")


class PartitionWorld:
    """The state of a run; the creator of the run sets its parts."""

    lifecycle: "BrokerLifecycle"
    traffic: "Traffic"
    isr: "IsrUpdates"

    def __init__(
        self,
        seed: int,
        *,
        options: ReplicationOptions | None,
        trace: Callable[[str], None] | None,
        checks: PartitionInvariants | None = None,
        make_random: MakeRandom = plain_random,
    ) -> None:
        entropy = entropy_of(seed)
        self.options = options or draw(entropy.stream("options"))
        self.random = make_random("events", entropy.stream("events").below(1 << 62))
        self.checks = checks or PartitionInvariants()
        self.controller = ModelController(self.checks.decided)
        self.now_us = 0
        self.events = 0
        self.is_faulty = True
        self.last: deque[str] = deque(maxlen=LINES_KEPT)
        self.brokers = {
            NodeId(n): ModelBroker(
                NodeId(n),
                lag_time_max_ms=self.options.lag_time_max_ms,
                waits_max=self.options.waits_max or WAITS_MAX,
                rack=f"rack-{n % self.options.racks}" if self.options.racks else "",
            )
            for n in range(1, self.options.brokers + 1)
        }
        self.waits = ProduceWaits()
        self.checks.watch(self.brokers, self.controller, is_fsync=self.options.fsync)
        self._trace = trace
        self._digest = hashlib.blake2b(digest_size=16)
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def hash(self) -> str:
        """Return the digest of all events, 32 hex digits."""
        return self._digest.hexdigest()

    def at(self, delay_us: float, what: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call."""
        self._sequence += 1
        heappush(self._queue, (self.now_us + int(delay_us), self._sequence, what, arguments))

    def run(self, *, until_us: int, events: int | None = None) -> None:
        """Run until a time, or until that many events."""
        while self._queue and self._queue[0][0] <= until_us:
            if events is not None and self.events >= events:
                return
            self.now_us, _, what, arguments = heappop(self._queue)
            self.events += 1
            self.before_event(what, arguments)
            what(*arguments)
        self.now_us = max(self.now_us, until_us) if events is None else self.now_us

    def resume(self, broker: ModelBroker) -> None:
        """End the pause of a process: its delayed calls follow at once."""
        broker.paused_until_us = 0
        for number, (due_us, sequence, what, arguments) in enumerate(self._queue):
            if due_us > self.now_us and what == self._delayed and arguments[0] is broker:
                self._queue[number] = self.now_us, sequence, what, arguments
        heapify(self._queue)

    def before_event(self, what: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Note that an event follows: `what(*arguments)`."""

    def note(self, what: str, *numbers: int) -> None:
        """Record an event, for the hash and the report."""
        line = f"{self.now_us / 1e6:10.6f} {what} {' '.join(map(str, numbers))}"
        self._digest.update(line.encode())
        self.last.append(line)
        if self._trace is not None:
            self._trace(line)

    def is_mirror(self, number: int) -> bool:
        """Return True if a topic is a mirror."""
        return self.options.has_mirror and number == 0

    @property
    def now_ms(self) -> int:
        """Virtual time in milliseconds."""
        return self.now_us // 1000

    def partitions(self) -> Iterable[tuple[Place, PartitionImage]]:
        """Yield every partition in the controller's metadata, in order."""
        for topic in self.controller.image.sorted_topics():
            for index, state in topic.sorted_partitions():
                yield (topic.id, index), state

    def latency_us(self) -> int:
        """Draw the latency of a message."""
        return self.random.randint(*self.options.latency_us)

    def is_lost(self) -> bool:
        """Draw whether a message is lost."""
        return self.is_faulty and self.random.random() < self.options.loss

    def when_awake(
        self, broker: ModelBroker, life: int, what: Callable[..., None], *arguments: Any
    ) -> None:
        """Call for a process: later if it is paused, never if it has ended."""
        if not broker.is_alive or broker.life != life:
            return
        if broker.paused_until_us > self.now_us:
            left_us = broker.paused_until_us - self.now_us
            self.at(left_us, self._delayed, broker, life, what, *arguments)
            return
        what(*arguments)

    def _delayed(
        self, broker: ModelBroker, life: int, what: Callable[..., None], *arguments: Any
    ) -> None:
        self.when_awake(broker, life, what, *arguments)
