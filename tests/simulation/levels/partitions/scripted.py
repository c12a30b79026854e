"""A world of partitions that records its events, or replays those of a plan.

In a replay a scheduled event waits by key until the plan executes it: one that the plan lacks is
late, which the protocol allows.
"""

from collections.abc import Callable
from functools import partial
from heapq import heappush
from typing import Any

from ...shrink.plan import PlannedEvent
from ...shrink.script import EventScript, PendingEvents
from .broker import FetchRequest, ModelBroker
from .options import draw
from .world import PartitionWorld, entropy_of


class ScriptedPartitionWorld(PartitionWorld):
    """A world with a script."""

    def __init__(
        self, seed: int, script: EventScript, *, trace: Callable[[str], None] | None = None
    ) -> None:
        self._script = script
        options = script.options("options", draw(entropy_of(seed).stream("options")))
        super().__init__(seed, options=options, trace=trace, make_random=script.random)
        self._pending = PendingEvents[Callable[[], None]]()

    def at(self, delay_us: float, what: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call."""
        if self._script.is_replaying:
            due_us = self.now_us + int(delay_us)
            self._pending.add(
                key_of(what, arguments), due_us, self.now_us, partial(what, *arguments)
            )
        else:
            super().at(delay_us, what, *arguments)

    def before_event(self, what: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Record an event."""
        if self._script.is_recording:
            key = key_of(what, arguments)
            self._script.begin(PlannedEvent(at_us=self.now_us, key=key))

    def run(self, *, until_us: int, events: int | None = None) -> None:
        """Run until a time, or until that many events; with a number of them the script ends.
        Raises ScriptEnded if the run does not continue after it."""
        if not self._script.is_replaying:
            super().run(until_us=until_us, events=events)
            self._script.end()
            if events is not None and self._script.is_recording:
                self._script.finish()
            return
        for event in self._script.due(until_us):
            self.now_us = max(self.now_us, event.at_us)
            found = self._pending.take(event.key, event.at_us, is_valid=_is_valid)
            if found is not None:
                self.events += 1
                self._script.begin(event)
                found.call()
        if events is None:
            self._script.end()
            self.now_us = max(self.now_us, until_us)
            return
        self._script.finish()
        self._continue()

    def _continue(self) -> None:
        """Schedule the pending events."""
        for _, waiting in self._pending.drain():
            self._sequence += 1
            due_us = max(waiting.due_us, self.now_us)
            heappush(self._queue, (due_us, self._sequence, waiting.call, ()))


def key_of(what: Callable[..., None], arguments: tuple[Any, ...]) -> str:
    """Return the key of an event, such as "serve n1>n2 topic-0-1"."""
    name = what.__name__.strip("_")
    if name in ("when_awake", "delayed"):
        return key_of(arguments[2], (arguments[0], *arguments[3:]))
    words: dict[str, None] = {}
    for argument in arguments:
        words |= dict.fromkeys(_words(argument, is_first=not words))
    return " ".join([name, *words])


def _words(argument: object, *, is_first: bool) -> tuple[str, ...]:
    """Return the words of an argument; of the numbers only a first one is a node."""
    match argument:
        case ModelBroker():
            return (f"n{argument.node_id}",)
        case FetchRequest():
            place = _place(argument.place)
            return (f"n{argument.follower}>n{argument.leader}", place)
        case (bytes(), int()):
            return (_place(argument),)  # type: ignore[arg-type]
        case int() if is_first:
            return (f"n{argument}",)
        case _ if callable(argument):
            return (str(getattr(argument, "__name__", "call")).strip("_"),)
        case _:
            return ()


def _place(place: tuple[bytes, int]) -> str:
    return f"topic-{place[0][0] - 1}-{place[1]}"


def _is_valid(call: Callable[[], None]) -> bool:
    return True
