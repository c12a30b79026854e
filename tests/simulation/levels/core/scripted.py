"""A harness that records its events, or replays those of a plan.

In a replay the heap is empty: the scheduled events wait by key until the plan executes them. An
event that the plan lacks is late, a message that it lacks is lost. Consensus allows both.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from quorumlog.raftlog.messages import Message
from quorumlog.simulation.entropy import SimEntropy

from ...shrink.plan import PlannedEvent
from ...shrink.script import EventScript, PendingEvents
from .harness import Handler, Harness
from .member import CoreMember
from .options import CoreOptions
from .trace import Tracer

TIMER = "tick"


class ScriptedHarness(Harness):
    """A harness with a script."""

    def __init__(
        self,
        options: CoreOptions,
        members: list[CoreMember],
        entropy: SimEntropy,
        script: EventScript,
        *,
        tracer: Tracer | None = None,
    ) -> None:
        super().__init__(options, members, entropy, tracer=tracer, make_random=script.random)
        self._script = script
        # (member, its life or -1 for a message, the call)
        self._pending = PendingEvents[tuple[CoreMember | None, int, Callable[[], None]]]()

    def at(self, due_us: int, handler: Handler, member: CoreMember, argument: Any = None) -> None:
        """Schedule an event of a member."""
        if not self._script.is_replaying:
            super().at(due_us, handler, member, argument)
        elif (key := key_of(handler, member, argument)).partition(" ")[0] != TIMER:
            call = partial(handler, member, argument)
            self._pending.add(key, due_us, self.now_us, (member, member.life, call))

    def later(self, due_us: int, action: Callable[[], None]) -> None:
        """Schedule an event of the simulation."""
        if self._script.is_replaying:
            key = key_of(None, None, action)
            self._pending.add(key, due_us, self.now_us, (None, 0, action))
        else:
            super().later(due_us, action)

    def deliver_at(self, due_us: int, member: CoreMember, message: Message, number: int) -> None:
        """Schedule the arrival of a message."""
        if self._script.is_replaying:
            argument = (message, number)
            call = partial(self._deliver, member, argument)
            key = key_of(self._deliver, member, argument)
            self._pending.add(key, due_us, self.now_us, (member, -1, call))
        else:
            super().deliver_at(due_us, member, message, number)

    def before_event(
        self, handler: Handler | None, member: CoreMember | None, argument: Any
    ) -> None:
        """Record an event, unless it is a timer that was replaced by an earlier one."""
        if not self._script.is_recording:
            return
        key = key_of(handler, member, argument)
        if member is not None and key.startswith(TIMER) and member.timer_us != argument:
            self._script.end()
        else:
            self._script.begin(PlannedEvent(at_us=self.now_us, key=key))

    def run(self, *, until_us: int, events: int | None = None) -> None:
        """Run until a time, or until that many events are recorded; with a number of them the
        script ends. Raises ScriptEnded if the run does not continue after it."""
        if not self._script.is_replaying:
            super().run(until_us=until_us, events=events)
            if events is not None and self._script.is_recording:
                self._script.finish()
            return
        for event in self._script.due(until_us):
            self.now_us = self.oracle.now_us = max(self.now_us, event.at_us)
            call = self._take(event)
            if call is not None:
                self._script.begin(event)
                call()
        self._script.finish()
        self._continue()

    def _take(self, event: PlannedEvent) -> Callable[[], None] | None:
        """Return the call of a planned event, None if it is not pending."""
        verb, _, name = event.key.partition(" ")
        if verb == TIMER:  # a timer may fire early: the core compares its deadlines
            member = self.members[int(name.removeprefix("n")) - 1]
            if member.raft is None:
                return None
            return partial(self._tick, member, member.timer_us)
        found = self._pending.take(event.key, event.at_us, is_valid=_is_valid)
        return None if found is None else found.call[2]

    def _continue(self) -> None:
        """Schedule the pending events without the messages, and all timers."""
        for _, waiting in self._pending.drain():
            member, life, call = waiting.call
            if life < 0 or not _is_valid(waiting.call):
                continue
            due_us = max(waiting.due_us, self.now_us + 1)
            if member is None:
                super().later(due_us, call)
            else:
                super().at(due_us, _call_late, member, call)
        for member in self.members:
            member.paused_until_us = 0
            deadline_ms = None if member.raft is None else member.raft.next_deadline_ms()
            if deadline_ms is not None:
                member.timer_us = None
                self._set_timer(member, member.due_us(deadline_ms))


def key_of(handler: Handler | None, member: CoreMember | None, argument: Any) -> str:
    """Return the key of an event, such as "deliver n1>n2 VoteRequest"."""
    if handler is None or member is None:  # a call of the simulation
        return " ".join([_name(argument), *(_word(each) for each in argument.args)]).rstrip()
    verb = _name(handler)
    match verb:
        case "deliver":
            message = argument[0]
            sender = message.sender.node_id
            return f"{verb} n{sender}>{member.name} {type(message).__name__}"
        case "unreachable":
            return f"{verb} {member.name}>n{argument.node_id}"
        case _:
            return f"{verb} {member.name}"


def _name(call: Any) -> str:
    function = call.func if isinstance(call, partial) else call
    return str(function.__name__).strip("_")


def _word(argument: object) -> str:
    if isinstance(argument, CoreMember):
        return argument.name
    return _name(argument) if callable(argument) else ""


def _is_valid(call: tuple[CoreMember | None, int, Callable[[], None]]) -> bool:
    member, life, _ = call
    if member is None:
        return True
    return member.raft is not None if life < 0 else member.life == life


def _call_late(member: CoreMember, call: Callable[[], None]) -> None:
    call()
