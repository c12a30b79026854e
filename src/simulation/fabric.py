"""The wires of a simulated world: addresses, connections, and what becomes of what is in flight.

A `Link` is like a TCP connection: each direction is ordered and loss-free until it breaks. When it
breaks, a drawn prefix of each direction's frames in flight still arrives (late, by a draw, perhaps
after the peer has opened a successor), and the two ends learn of it at different times, or one
never. An end that keeps sending into silence learns of it after `SILENCE_MS`, as a kernel would
tell it. Machines can be kept apart by `Barriers`: what was sent waits, in order, and a connection
that waits for so long is given up.

Knows nothing of calls, streams or bytes: frames are opaque objects that can describe themselves.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ..errors import AddressInUse, Lost, NotSent
from .barriers import Barriers, Direction
from .entropy import SimEntropy
from .events import EventLog
from .faults import Weather
from .loop import NS_PER_MS, SimLoop
from .process import Machine, Process

NS_PER_US: Final = 1_000
FIRST_FREE_PORT: Final = 40_000
CONNECT_TIMEOUT_MS: Final = 500  # what one attempt may take, as the real network has it
SILENCE_MS: Final = 15_000  # sending into a dead connection fails after this, at the latest
RESET_AFTER_BOOT_MS: Final = 3_000  # a rebooted machine answers old connections with a reset
LOCAL_HOSTS: Final = ("localhost", "0.0.0.0", "[::]", "[::1]", "")


class Frame(Protocol):
    """What travels over a link."""

    def describe(self) -> str:
        """Its kind and a digest of its content, for the event log."""


@dataclass(slots=True, eq=False)
class End:
    """One side of a link, in one process."""

    link: "Link"
    process: Process
    on_frame: Callable[[Any], None] = lambda frame: None
    on_broken: Callable[[str], None] = lambda reason: None
    knows: bool = False  # it has learned that the link is broken
    in_flight: "dict[int, _InFlight]" = field(default_factory=dict)  # towards it, in order
    last_arrival_ns: int = 0  # of what was sent towards it so far
    silence_timer: bool = False  # it has sent into a broken link and will learn of it
    waits_since_ns: int = -1  # what is in flight towards it stands before a barrier; -1: not so
    news: list[str] = field(default_factory=list)  # of the link's end, behind what waits

    def send(self, frame: Frame) -> None:
        """Send a frame to the other end; lost when the link is broken."""
        self.link.send(self, frame)

    def shut(self, reason: str) -> None:
        """End the link from this side: what was sent arrives, then the other end learns."""
        self.link.shut(self, reason)

    @property
    def other(self) -> "End":
        """The opposite end."""
        first, second = self.link.ends
        return second if self is first else first

    @property
    def is_cut_off(self) -> bool:
        """Whether a barrier keeps back what the other end sends."""
        barriers = self.link.fabric.barriers
        return barriers.is_closed(self.other.process.machine.name, self.process.machine.name)


@dataclass(slots=True, eq=False)
class _InFlight:
    frame: Frame
    timer: asyncio.TimerHandle
    arrival_ns: int


class Link:
    """A connection between two processes."""

    def __init__(
        self, fabric: "Fabric", number: int, client: Process, server: Process, entropy: SimEntropy
    ) -> None:
        self.number = number
        self.fabric = fabric
        self.ends = (End(self, client), End(self, server))
        self.broken = False
        self.down_machine: Machine | None = None  # whose power cut broke it, silently
        self._entropy = entropy
        self._sequence = 0
        faults = fabric.weather.faults
        breaks = entropy.chance(faults.link_break)
        self._frames_left = entropy.spread(*faults.link_break_frames) if breaks else -1

    def joins(self, one: str, other: str) -> bool:
        """Whether it is between two machines."""
        names = [end.process.machine.name for end in self.ends]
        return names in ([one, other], [other, one])

    def send(self, sender: End, frame: Frame) -> None:
        """Put a frame in flight, or break the link at it."""
        if sender.knows or not sender.process.alive:
            return
        if self.fabric.on_sent is not None:
            self.fabric.on_sent(sender, frame)
        if self.broken:
            self._sent_into_silence(sender)
            return
        self._put_in_flight(sender.other, frame, self._arrival_ns(sender.other))
        self._frames_left -= 1
        if self._frames_left == 0 and self.fabric.weather.faults.link_break > 0:
            self.break_now()

    def shut(self, sender: End, reason: str) -> None:
        """End the link from one side, in order; the other end learns of it last of all."""
        if sender.knows:
            return
        sender.knows = True
        for flying in sender.in_flight.values():
            flying.timer.cancel()
        sender.in_flight.clear()
        if not self.broken:
            self.broken = True
            self._tell(sender.other, self._arrival_ns(sender.other), reason)
        self.fabric.forget(self)

    def break_now(self) -> None:
        """Break it as the faults have it; which end learns when, and what still arrives, is
        drawn."""
        self.broken = True
        faults = self.fabric.weather.faults
        ignorant = self._entropy.below(2) if self._entropy.chance(faults.end_never_learns) else -1
        for side, end in enumerate(self.ends):
            self._lose_suffix(end)
            if self._entropy.chance(faults.late_suffix):
                self._delay(end, self._entropy.spread(*faults.late_suffix_ms) * NS_PER_MS)
            if side != ignorant:
                self._tell(end, self._last_word_ns(end), "the connection broke", is_local=True)
        self.fabric.links_broken += 1
        self.fabric.record(None, "link-broken", f"{self.number}")

    def end_died(self, dead: End, *, silent: bool) -> None:
        """One end's process is gone: the other gets a reset, or (silent) nothing at all."""
        dead.knows = True
        was_broken, self.broken = self.broken, True
        is_cut_off = dead.other.is_cut_off
        if silent:
            self.down_machine = dead.process.machine
        if was_broken or dead.other.knows:
            return
        self._lose_suffix(dead.other)
        if not silent and not is_cut_off:
            self._tell(dead.other, self._last_word_ns(dead.other), "the peer's process is gone")

    def machine_is_back(self) -> None:
        """The silent end's machine has booted: it answers what is sent again with a reset."""
        self.down_machine = None
        for end in self.ends:
            if end.silence_timer:
                delay = self._entropy.spread(1, RESET_AFTER_BOOT_MS) * NS_PER_MS
                self._tell(end, self.fabric.loop.now_ns + delay, "the peer rebooted")

    # --- inside ---

    def _sent_into_silence(self, sender: End) -> None:
        if sender.silence_timer:
            return
        sender.silence_timer = True
        delay = SILENCE_MS * NS_PER_MS
        is_refused = not sender.other.process.alive and self.down_machine is None
        if is_refused and not sender.is_cut_off and not sender.other.is_cut_off:
            delay = self.fabric.latency_ns(self._entropy) * 2  # a live kernel without the process
        self._tell(sender, self.fabric.loop.now_ns + delay, "nobody answers", is_local=True)

    def _arrival_ns(self, receiver: End) -> int:
        """When something sent now arrives: never before what was sent before it."""
        arrival_ns = self.fabric.loop.now_ns + self.fabric.latency_ns(self._entropy)
        arrival_ns += self.fabric.clog_ns(receiver)
        receiver.last_arrival_ns = max(receiver.last_arrival_ns, arrival_ns)
        return receiver.last_arrival_ns

    def _last_word_ns(self, receiver: End) -> int:
        """When an end learns of a break: a while after the last frame, so that what arrives late is
        also acted on."""
        return self._arrival_ns(receiver) + self.fabric.latency_ns(self._entropy)

    def _put_in_flight(self, receiver: End, frame: Frame, arrival_ns: int) -> None:
        self._sequence += 1
        number = self._sequence
        timer = self.fabric.loop.call_at_ns(
            arrival_ns, receiver.process, self._arrive, receiver, number
        )
        receiver.in_flight[number] = _InFlight(frame, timer, arrival_ns)

    def _arrive(self, receiver: End, number: int) -> None:
        if receiver.is_cut_off:
            self._wait_for_opening(receiver)
            return
        flying = receiver.in_flight.pop(number)
        if not receiver.knows:
            detail = f"{self.number} {flying.frame.describe()}"
            self.fabric.record(receiver.process, "arrive", detail)
            receiver.on_frame(flying.frame)

    def _tell(self, end: End, at_ns: int, reason: str, *, is_local: bool = False) -> None:
        """Let an end learn that the link is over: from its own kernel, or from the other side."""
        self.fabric.loop.call_at_ns(at_ns, end.process, self._learn, end, reason, is_local)

    def _learn(self, end: End, reason: str, is_local: bool) -> None:
        if end.knows:
            return
        if not is_local and end.is_cut_off:
            end.news.append(reason)
            return
        end.knows = True
        self.fabric.record(end.process, "learn-broken", f"{self.number} {reason}")
        if end.other.knows:
            self.fabric.forget(self)
        end.on_broken(reason)

    # --- before a barrier ---

    def _wait_for_opening(self, receiver: End) -> None:
        """What has come stands before a barrier; after a while the sender's kernel gives up."""
        if receiver.waits_since_ns >= 0:
            return
        since_ns = receiver.waits_since_ns = self.fabric.loop.now_ns
        at_ns = since_ns + SILENCE_MS * NS_PER_MS
        self.fabric.loop.call_at_ns(at_ns, None, self._give_up, receiver, since_ns)

    def _give_up(self, receiver: End, since_ns: int) -> None:
        if receiver.waits_since_ns == since_ns and not self.broken:
            self.break_now()

    def opened(self, receiver: End) -> None:
        """The barrier before an end has fallen: what waited arrives now, in order."""
        now_ns = self.fabric.loop.now_ns
        if receiver.waits_since_ns >= 0:
            receiver.waits_since_ns = -1
            for number, flying in receiver.in_flight.items():
                if flying.arrival_ns <= now_ns:
                    flying.timer.cancel()
                    flying.timer = self.fabric.loop.call_at_ns(
                        now_ns, receiver.process, self._arrive, receiver, number
                    )
        news, receiver.news = receiver.news, []
        for reason in news:
            self._tell(receiver, now_ns, reason)

    def _lose_suffix(self, receiver: End) -> None:
        numbers = list(receiver.in_flight)
        for number in numbers[self._entropy.below(len(numbers) + 1) :]:
            receiver.in_flight.pop(number).timer.cancel()

    def _delay(self, receiver: End, by_ns: int) -> None:
        """Let what is left in flight towards an end arrive late, in the same order."""
        left, receiver.in_flight = receiver.in_flight, {}
        for flying in left.values():
            flying.timer.cancel()
            arrival_ns = flying.arrival_ns + by_ns
            receiver.last_arrival_ns = max(receiver.last_arrival_ns, arrival_ns)
            self._put_in_flight(receiver, flying.frame, arrival_ns)


@dataclass(slots=True, eq=False)
class Door:
    """A listening address."""

    process: Process
    kind: str  # "calls" or "bytes"
    accept: Callable[[End], None]


class Fabric:
    """All addresses and links of a world."""

    def __init__(
        self, loop: SimLoop, entropy: SimEntropy, weather: Weather, events: EventLog
    ) -> None:
        self.loop = loop
        self.weather = weather
        self._entropy = entropy
        self._events = events
        self._doors: dict[str, Door] = {}
        self._machines: dict[str, Machine] = {}  # who listened last on an address
        self._links: dict[Link, None] = {}
        self.barriers = Barriers(on_open=self._opened)
        self._links_made = 0
        self._ports_given = 0
        self.links_broken = 0  # by the faults, not by deaths
        self.failed_handlers: list[Exception] = []  # errors of handlers that no caller may expect
        self.on_sent: Callable[[End, Any], None] | None = None  # a scenario's observer

    # --- addresses ---

    def listen(self, address: str, door: Door) -> str:
        """Open a door; port 0 picks a free one. Returns the address; raises AddressInUse."""
        host, _, port = address.rpartition(":")
        if port == "0":
            address = f"{host}:{FIRST_FREE_PORT + self._ports_given}"
            self._ports_given += 1
        key = _key(address)
        if key in self._doors:
            raise AddressInUse(f"another process listens on {address}")
        self._doors[key] = door
        self._machines[key] = door.process.machine
        self.record(door.process, "listen", address)
        return address

    def unlisten(self, address: str, door: Door) -> None:
        """Close a door; a second call does nothing."""
        if self._doors.get(_key(address)) is door:
            del self._doors[_key(address)]
            self.record(door.process, "unlisten", address)

    def caller_name(self, process: Process) -> str:
        """A "host:port" for a connecting process."""
        return f"{process.name}:{FIRST_FREE_PORT + 10_000 + self._links_made}"

    # --- connecting ---

    async def connect(self, process: Process, address: str, kind: str, timeout_ms: int) -> End:
        """Connect; NotSent when refused, Lost when nobody answers in time."""
        self.record(process, "connect", address)
        entropy = self._entropy.stream(f"link/{self._links_made}")
        self._links_made += 1
        answer: asyncio.Future[End] = self.loop.create_future()
        knock_ns = self.loop.now_ns + self.latency_ns(entropy)
        number = self._links_made
        self.loop.call_at_ns(
            knock_ns, None, self._knock, process, _key(address), kind, number, entropy, answer
        )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError:
            raise Lost(f"{address} does not answer") from None

    async def refuses(self, process: Process, address: str, timeout_ms: int) -> bool:
        """Whether a connection is refused within the time; False when it is not or nobody
        answers."""
        try:
            end = await self.connect(process, address, "", timeout_ms)
        except NotSent:
            return True
        except Lost:
            return False
        end.shut("only asked")
        return False

    def stream(self, purpose: str) -> SimEntropy:
        """A stream of the network's entropy."""
        return self._entropy.stream(purpose)

    def _knock(
        self,
        process: Process,
        key: str,
        kind: str,
        number: int,
        entropy: SimEntropy,
        answer: "asyncio.Future[End]",
    ) -> None:
        """The first packet arrives where the address leads."""
        if not process.alive or answer.done():
            return
        door, machine = self._doors.get(key), self._machines.get(key)
        if machine is not None and self.barriers.cuts(process.machine.name, machine.name):
            return
        back_ns = self.loop.now_ns + self.latency_ns(entropy)
        if door is not None and kind in ("", door.kind):
            link = Link(self, number, process, door.process, entropy)
            self._links[link] = None
            client, server = link.ends
            client.last_arrival_ns = back_ns
            self.loop.call_at_ns(self.loop.now_ns, door.process, self._accept, door, server)
            self.loop.call_at_ns(back_ns, process, self._connected, answer, client)
        elif machine is None or machine.powered:
            self.loop.call_at_ns(back_ns, process, self._refused, answer, key)

    def _accept(self, door: Door, end: End) -> None:
        if not end.knows:
            self.record(door.process, "accept", f"{end.link.number}")
            door.accept(end)

    def _connected(self, answer: "asyncio.Future[End]", end: End) -> None:
        if answer.done():  # the caller has gone meanwhile
            end.shut("the caller has gone")
        else:
            self.record(end.process, "connected", f"{end.link.number}")
            answer.set_result(end)

    def _refused(self, answer: "asyncio.Future[End]", key: str) -> None:
        if not answer.done():
            answer.set_exception(NotSent(f"{key} refuses connections"))

    # --- life and death ---

    def on_death(self, process: Process, *, silent: bool | None) -> None:
        """A process is dead: its doors close, its links are reset or fall silent (None: drawn)."""
        for key in [key for key, door in self._doors.items() if door.process is process]:
            del self._doors[key]
        for link in list(self._links):
            for end in link.ends:
                if end.process is process and not end.knows:
                    quiet = self._is_quiet(silent)
                    link.end_died(end, silent=quiet)
                    if link.ends[0].knows and link.ends[1].knows:
                        self.forget(link)

    def _is_quiet(self, silent: bool | None) -> bool:
        if silent is None:
            return self._entropy.chance(self.weather.faults.silent_death)
        return silent

    def on_power(self, machine: Machine) -> None:
        """A machine has booted: old connections to it can now be reset."""
        for link in list(self._links):
            if link.down_machine is machine:
                link.machine_is_back()

    def break_between(self, one: str, other: str) -> int:
        """Break every connection between two machines now; return how many there were."""
        found = [link for link in self._links if not link.broken and link.joins(one, other)]
        for link in found:
            link.break_now()
        return len(found)

    def _opened(self, direction: Direction) -> None:
        """A barrier has fallen: what waited before it goes on."""
        for link in list(self._links):
            if link.joins(*direction):
                for end in link.ends:
                    if end.process.machine.name == direction[1]:
                        link.opened(end)

    def clog_ns(self, receiver: End) -> int:
        """How much later everything comes to an end, for a clog before it."""
        speaker, hearer = receiver.other.process.machine.name, receiver.process.machine.name
        return self.barriers.clog_ms(speaker, hearer) * NS_PER_MS

    def forget(self, link: Link) -> None:
        """Both ends know that a link is over."""
        self._links.pop(link, None)

    def latency_ns(self, entropy: SimEntropy) -> int:
        """Draw one way's time."""
        faults = self.weather.faults
        latency_ns = entropy.spread(*faults.latency_us) * NS_PER_US
        if entropy.chance(faults.network_stall):
            latency_ns += entropy.spread(*faults.network_stall_ms) * NS_PER_MS
        return latency_ns

    def record(self, process: Process | None, what: str, detail: str) -> None:
        """Add an event of a process or of the network itself."""
        self._events.record(self.loop.now_ns, repr(process) if process else "-", what, detail)


def _key(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{'127.0.0.1' if host in LOCAL_HOSTS else host}:{port}"
