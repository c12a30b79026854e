"""The simulated network: addresses, connections and frames in flight.

A link behaves like a TCP connection: each direction is ordered and lossless until the link breaks.
Then a drawn prefix of the frames in flight of each direction still arrives, possibly late and after
the peer opened the next connection. The ends detect the break at different times, or one end does
not. An end that keeps sending without an answer detects it after `SILENCE_MS`, like a kernel's
retransmission time-out. `Barriers` separate machines: frames wait in order, and a connection that
waits for `SILENCE_MS` breaks.

This module is independent of calls, streams and bytes: a frame is any object with `describe()`.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from ..errors import AddressInUse, ConnectionFailed, OutcomeUnknown
from .entropy import SimEntropy
from .events import EventLog
from .fault_options import ActiveFaults
from .loop import NS_PER_MS, SimLoop
from .process import Machine, Process

Direction: TypeAlias = tuple[str, str]  # (sender, receiver)


@dataclass(slots=True)
class Barriers:
    """All barriers and clogs of a network; several barriers may block one direction.

    A barrier blocks a direction: frames wait in order, as a kernel retransmits them, until it is
    removed or the connection breaks. A clog delays every frame. Both apply to machines by name,
    independent of their processes.
    """

    # called when the last barrier of a direction is removed
    on_open: Callable[[Direction], None] = lambda direction: None
    _closed: dict[Direction, int] = field(default_factory=dict)  # number of barriers
    _clogs_ms: dict[Direction, int] = field(default_factory=dict)

    def is_closed(self, speaker: str, hearer: str) -> bool:
        """Return True if no frame passes in this direction."""
        return (speaker, hearer) in self._closed

    def cuts(self, one: str, other: str) -> bool:
        """Return True if at least one direction between the two is blocked."""
        return self.is_closed(one, other) or self.is_closed(other, one)

    @property
    def is_open(self) -> bool:
        """True if no barrier and no clog exists."""
        return not self._closed and not self._clogs_ms

    def clog_ms(self, speaker: str, hearer: str) -> int:
        """Return the delay of a direction."""
        return self._clogs_ms.get((speaker, hearer), 0)

    def close(self, directions: Iterable[Direction]) -> None:
        """Add a barrier in each direction."""
        for direction in directions:
            self._closed[direction] = self._closed.get(direction, 0) + 1

    def open(self, directions: Iterable[Direction]) -> None:
        """Remove one barrier in each direction."""
        for direction in directions:
            left = self._closed.pop(direction) - 1
            if left:
                self._closed[direction] = left
            else:
                self.on_open(direction)

    def clog(self, directions: Iterable[Direction], by_ms: int) -> None:
        """Delay the directions by that much; 0 removes the delay."""
        for direction in directions:
            if by_ms:
                self._clogs_ms[direction] = by_ms
            else:
                self._clogs_ms.pop(direction, None)

    def open_all(self) -> None:
        """Remove every barrier and every clog."""
        self._clogs_ms.clear()
        closed, self._closed = list(self._closed), {}
        for direction in closed:
            self.on_open(direction)


def between(some: Iterable[str], others: Iterable[str]) -> list[Direction]:
    """Return the directions from each of the first to each of the second machines."""
    hearers = list(others)
    return [(speaker, hearer) for speaker in some for hearer in hearers if speaker != hearer]


def apart(some: Iterable[str], others: Iterable[str]) -> list[Direction]:
    """Return the directions between two groups, both ways."""
    left, right = list(some), list(others)
    return between(left, right) + between(right, left)


NS_PER_US: Final = 1_000
FIRST_FREE_PORT: Final = 40_000
CONNECT_TIMEOUT_MS: Final = 500  # bound of one attempt, as in the real network
SILENCE_MS: Final = 15_000  # a send into a dead connection fails after this, at the latest
RESET_AFTER_BOOT_MS: Final = 3_000  # a rebooted machine answers old connections with a reset
LOCAL_HOSTS: Final = ("localhost", "0.0.0.0", "[::]", "[::1]", "")


class LinkFrame(Protocol):
    """A unit of data on a link."""

    def describe(self) -> str:
        """Return its kind and a digest of its content, for the event log."""


@dataclass(slots=True, eq=False)
class LinkEnd:
    """One side of a link, in one process."""

    link: "SimLink"
    process: Process
    on_frame: Callable[[Any], None] = lambda frame: None
    on_broken: Callable[[str], None] = lambda reason: None
    is_closed: bool = False  # it has detected that the link is broken
    in_flight: "dict[int, _InFlight]" = field(default_factory=dict)  # towards this end, in order
    last_arrival_ns: int = 0  # of the frames sent towards this end so far
    silence_timer: bool = False  # it has sent into a broken link, and a timer will notify it
    waits_since_ns: int = -1  # frames towards this end wait at a barrier since then; -1: none waits
    # reasons for the link's end, held back behind waiting frames
    held_reasons: list[str] = field(default_factory=list)

    def send(self, frame: LinkFrame) -> None:
        """Send a frame to the other end; it is lost if the link is broken."""
        self.link.send(self, frame)

    def shut(self, reason: str) -> None:
        """Close the link from this side: frames in flight arrive, then the other end is
        notified."""
        self.link.shut(self, reason)

    def lose_in_flight(self) -> None:
        """Drop all frames in flight towards this end."""
        for flying in self.in_flight.values():
            flying.timer.cancel()
        self.in_flight.clear()

    @property
    def other(self) -> "LinkEnd":
        """The opposite end."""
        first, second = self.link.ends
        return second if self is first else first

    @property
    def is_cut_off(self) -> bool:
        """Return True if a barrier holds back the frames of the other end."""
        barriers = self.link.fabric.barriers
        return barriers.is_closed(self.other.process.machine.name, self.process.machine.name)


@dataclass(slots=True, eq=False)
class _InFlight:
    frame: LinkFrame
    timer: asyncio.TimerHandle
    arrival_ns: int


class SimLink:
    """A connection between two processes."""

    def __init__(
        self, fabric: "Fabric", number: int, client: Process, server: Process, entropy: SimEntropy
    ) -> None:
        self.number = number
        self.fabric = fabric
        self.ends = (LinkEnd(self, client), LinkEnd(self, server))
        self.broken = False
        self.down_machine: Machine | None = None  # its power cut broke the link silently
        self._entropy = entropy
        self._sequence = 0
        faults = fabric.faults.options
        breaks = entropy.chance(faults.link_break)
        self._frames_left = entropy.spread(*faults.link_break_frames) if breaks else -1

    def joins(self, one: str, other: str) -> bool:
        """Return True if the link connects these two machines."""
        names = [end.process.machine.name for end in self.ends]
        return names in ([one, other], [other, one])

    def send(self, sender: LinkEnd, frame: LinkFrame) -> None:
        """Put a frame in flight; break the link at its drawn last frame."""
        if sender.is_closed or not sender.process.alive:
            return
        if self.fabric.on_sent is not None:
            self.fabric.on_sent(sender, frame)
        if self.broken:
            self._send_unanswered(sender)
            return
        arrival_ns = self._arrival_ns(sender.other, self.fabric.delay_ns(sender, frame))
        self._put_in_flight(sender.other, frame, arrival_ns)
        self._frames_left -= 1
        if self._frames_left == 0 and self.fabric.faults.options.link_break > 0:
            self.break_now()

    def shut(self, sender: LinkEnd, reason: str) -> None:
        """Close the link from one side, in order; the other end is notified last."""
        if sender.is_closed:
            return
        sender.is_closed = True
        sender.lose_in_flight()
        if not self.broken:
            self.broken = True
            self._notify(sender.other, self._arrival_ns(sender.other), reason)
        self.fabric.forget(self)

    def break_now(self) -> None:
        """Break the link: the frames that still arrive, and the time each end is notified, are
        drawn."""
        self.broken = True
        faults = self.fabric.faults.options
        unnotified = self._entropy.below(2) if self._entropy.chance(faults.end_never_learns) else -1
        for side, end in enumerate(self.ends):
            self._lose_suffix(end)
            if self._entropy.chance(faults.late_suffix):
                self._delay(end, self._entropy.spread(*faults.late_suffix_ms) * NS_PER_MS)
            if side != unnotified:
                self._notify(end, self._notification_ns(end), "the connection broke", is_local=True)
        self.fabric.links_broken += 1
        self.fabric.events.record(None, "link-broken", f"{self.number}")

    def on_end_dead(self, dead: LinkEnd, *, silent: bool) -> None:
        """Handle the death of one end's process: reset the other end, or (silent) notify none."""
        dead.is_closed = True
        was_broken, self.broken = self.broken, True
        is_cut_off = dead.other.is_cut_off
        if silent:
            self.down_machine = dead.process.machine
        if was_broken or dead.other.is_closed:
            return
        self._lose_suffix(dead.other)
        if not silent and not is_cut_off:
            self._notify(
                dead.other, self._notification_ns(dead.other), "the peer's process is gone"
            )

    def on_boot(self) -> None:
        """Handle a boot of the silent end's machine: it answers retransmissions with a reset."""
        self.down_machine = None
        for end in self.ends:
            if end.silence_timer:
                delay = self._entropy.spread(1, RESET_AFTER_BOOT_MS) * NS_PER_MS
                self._notify(end, self.fabric.loop.now_ns + delay, "the peer rebooted")

    # --- inside ---

    def _send_unanswered(self, sender: LinkEnd) -> None:
        if sender.silence_timer:
            return
        sender.silence_timer = True
        delay = SILENCE_MS * NS_PER_MS
        is_refused = not sender.other.process.alive and self.down_machine is None
        if is_refused and not sender.is_cut_off and not sender.other.is_cut_off:
            # a running kernel without the process
            delay = self.fabric.latency_ns(self._entropy) * 2
        self._notify(sender, self.fabric.loop.now_ns + delay, "no answer", is_local=True)

    def _arrival_ns(self, receiver: LinkEnd, delay_ns: int = 0) -> int:
        """Return the arrival time of a frame sent now, never before that of an earlier one."""
        arrival_ns = self.fabric.loop.now_ns + self.fabric.latency_ns(self._entropy) + delay_ns
        arrival_ns += self.fabric.clog_ns(receiver)
        receiver.last_arrival_ns = max(receiver.last_arrival_ns, arrival_ns)
        return receiver.last_arrival_ns

    def _notification_ns(self, receiver: LinkEnd) -> int:
        """Return the time at which an end is notified of a break: after its last frame, so that
        late frames are also processed."""
        return self._arrival_ns(receiver) + self.fabric.latency_ns(self._entropy)

    def _put_in_flight(self, receiver: LinkEnd, frame: LinkFrame, arrival_ns: int) -> None:
        self._sequence += 1
        number = self._sequence
        timer = self.fabric.loop.call_at_ns(
            arrival_ns, receiver.process, self._arrive, receiver, number
        )
        receiver.in_flight[number] = _InFlight(frame, timer, arrival_ns)

    def _arrive(self, receiver: LinkEnd, number: int) -> None:
        if receiver.is_cut_off:
            self._hold(receiver)
            return
        flying = receiver.in_flight.pop(number)
        if not receiver.is_closed:
            detail = f"{self.number} {flying.frame.describe()}"
            self.fabric.events.record(receiver.process, "arrive", detail)
            receiver.on_frame(flying.frame)

    def _notify(self, end: LinkEnd, at_ns: int, reason: str, *, is_local: bool = False) -> None:
        """Notify an end that the link is closed: by its own kernel, or by a segment from the other
        side."""
        self.fabric.loop.call_at_ns(at_ns, end.process, self._on_closed, end, reason, is_local)

    def _on_closed(self, end: LinkEnd, reason: str, is_local: bool) -> None:
        if end.is_closed:
            return
        if not is_local and end.is_cut_off:
            end.held_reasons.append(reason)
            return
        end.is_closed = True
        self.fabric.events.record(end.process, "learn-broken", f"{self.number} {reason}")
        if end.other.is_closed:
            self.fabric.forget(self)
        end.on_broken(reason)

    # --- barriers ---

    def _hold(self, receiver: LinkEnd) -> None:
        """Hold frames at a barrier; after `SILENCE_MS` the sender's kernel gives up."""
        if receiver.waits_since_ns >= 0:
            return
        since_ns = receiver.waits_since_ns = self.fabric.loop.now_ns
        at_ns = since_ns + SILENCE_MS * NS_PER_MS
        self.fabric.loop.call_at_ns(at_ns, None, self._give_up, receiver, since_ns)

    def _give_up(self, receiver: LinkEnd, since_ns: int) -> None:
        if receiver.waits_since_ns == since_ns and not self.broken:
            self.break_now()

    def on_barrier_removed(self, receiver: LinkEnd) -> None:
        """Deliver the frames that waited at a barrier, in order, now that it is open."""
        now_ns = self.fabric.loop.now_ns
        if receiver.waits_since_ns >= 0:
            receiver.waits_since_ns = -1
            for number, flying in receiver.in_flight.items():
                if flying.arrival_ns <= now_ns:
                    flying.timer.cancel()
                    flying.timer = self.fabric.loop.call_at_ns(
                        now_ns, receiver.process, self._arrive, receiver, number
                    )
        held_reasons, receiver.held_reasons = receiver.held_reasons, []
        for reason in held_reasons:
            self._notify(receiver, now_ns, reason)

    def _lose_suffix(self, receiver: LinkEnd) -> None:
        numbers = list(receiver.in_flight)
        for number in numbers[self._entropy.below(len(numbers) + 1) :]:
            receiver.in_flight.pop(number).timer.cancel()

    def _delay(self, receiver: LinkEnd, by_ns: int) -> None:
        """Delay the remaining frames towards an end, in the same order."""
        left, receiver.in_flight = receiver.in_flight, {}
        for flying in left.values():
            flying.timer.cancel()
            arrival_ns = flying.arrival_ns + by_ns
            receiver.last_arrival_ns = max(receiver.last_arrival_ns, arrival_ns)
            self._put_in_flight(receiver, flying.frame, arrival_ns)


@dataclass(slots=True, eq=False)
class BoundAddress:
    """A bound address."""

    process: Process
    kind: str  # "calls" or "bytes"
    accept: Callable[[LinkEnd], None]


class Fabric:
    """All addresses and links of a world."""

    def __init__(
        self, loop: SimLoop, entropy: SimEntropy, faults: ActiveFaults, events: EventLog
    ) -> None:
        self.loop = loop
        self.faults = faults
        self._entropy = entropy
        self.events = events
        self._doors: dict[str, BoundAddress] = {}
        self._machines: dict[str, Machine] = {}  # the last machine that listened on an address
        self._links: dict[SimLink, None] = {}
        self.barriers = Barriers(on_open=self._opened)
        self._links_made = 0
        self._ports_given = 0
        self.links_broken = 0  # by faults, not by process deaths
        self.failed_handlers: list[Exception] = []  # unexpected errors of handlers
        self.on_sent: Callable[[LinkEnd, Any], None] | None = None  # an observer of the scenario
        # the further delay of a frame, which later frames of its direction wait for
        self.delay_ns: Callable[[LinkEnd, Any], int] = lambda sender, frame: 0

    # --- addresses ---

    def listen(self, address: str, door: BoundAddress) -> str:
        """Bind an address; port 0 picks a free port. Return the address; raises AddressInUse."""
        host, _, port = address.rpartition(":")
        if port == "0":
            address = f"{host}:{FIRST_FREE_PORT + self._ports_given}"
            self._ports_given += 1
        key = _key(address)
        if key in self._doors:
            raise AddressInUse(f"another process listens on {address}")
        self._doors[key] = door
        self._machines[key] = door.process.machine
        self.events.record(door.process, "listen", address)
        return address

    def unlisten(self, address: str, door: BoundAddress) -> None:
        """Release an address; a second call does nothing."""
        if self._doors.get(_key(address)) is door:
            del self._doors[_key(address)]
            self.events.record(door.process, "unlisten", address)

    def byte_addresses(self, host: str) -> list[str]:
        """Return the addresses on which a host accepts byte connections, as a scan finds them."""
        return [
            address
            for address, door in sorted(self._doors.items())
            if door.kind == "bytes" and door.process.name == host
        ]

    def caller_name(self, process: Process) -> str:
        """Return a "host:port" for a connecting process."""
        return f"{process.name}:{FIRST_FREE_PORT + 10_000 + self._links_made}"

    # --- connecting ---

    async def connect(self, process: Process, address: str, kind: str, timeout_ms: int) -> LinkEnd:
        """Connect; raises ConnectionFailed when refused, OutcomeUnknown without an answer in
        time."""
        self.events.record(process, "connect", address)
        entropy = self._entropy.stream(f"link/{self._links_made}")
        self._links_made += 1
        answer: asyncio.Future[LinkEnd] = self.loop.create_future()
        arrival_ns = self.loop.now_ns + self.latency_ns(entropy)
        number = self._links_made
        self.loop.call_at_ns(
            arrival_ns,
            None,
            self._on_connect_request,
            process,
            _key(address),
            kind,
            number,
            entropy,
            answer,
        )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError:
            raise OutcomeUnknown(f"{address} does not answer") from None

    async def refuses(self, process: Process, address: str, timeout_ms: int) -> bool:
        """Return True if a connection is refused in time, False if it is accepted or times out."""
        try:
            end = await self.connect(process, address, "", timeout_ms)
        except ConnectionFailed:
            return True
        except OutcomeUnknown:
            return False
        end.shut("only asked")
        return False

    def stream(self, purpose: str) -> SimEntropy:
        """Return a stream of the network's entropy."""
        return self._entropy.stream(purpose)

    def _on_connect_request(
        self,
        process: Process,
        key: str,
        kind: str,
        number: int,
        entropy: SimEntropy,
        answer: "asyncio.Future[LinkEnd]",
    ) -> None:
        """Process a connection request at the address."""
        if not process.alive or answer.done():
            return
        door, machine = self._doors.get(key), self._machines.get(key)
        if machine is not None and self.barriers.cuts(process.machine.name, machine.name):
            return
        back_ns = self.loop.now_ns + self.latency_ns(entropy)
        if door is not None and kind in ("", door.kind):
            link = SimLink(self, number, process, door.process, entropy)
            self._links[link] = None
            client, server = link.ends
            client.last_arrival_ns = back_ns
            self.loop.call_at_ns(self.loop.now_ns, door.process, self._accept, door, server)
            self.loop.call_at_ns(back_ns, process, self._connected, answer, client)
        elif machine is None or machine.powered:
            self.loop.call_at_ns(back_ns, process, self._refused, answer, key)

    def _accept(self, door: BoundAddress, end: LinkEnd) -> None:
        if not end.is_closed:
            self.events.record(door.process, "accept", f"{end.link.number}")
            door.accept(end)

    def _connected(self, answer: "asyncio.Future[LinkEnd]", end: LinkEnd) -> None:
        if answer.done():  # the caller gave up
            end.shut("the caller has gone")
        else:
            self.events.record(end.process, "connected", f"{end.link.number}")
            answer.set_result(end)

    def _refused(self, answer: "asyncio.Future[LinkEnd]", key: str) -> None:
        if not answer.done():
            answer.set_exception(ConnectionFailed(f"{key} refuses connections"))

    # --- processes and machines ---

    def on_death(self, process: Process, *, silent: bool | None) -> None:
        """Handle a process's death: release its addresses; reset its links or let them fall silent
        (None: drawn)."""
        for key in [key for key, door in self._doors.items() if door.process is process]:
            del self._doors[key]
        for link in list(self._links):
            for end in link.ends:
                if end.process is process and not end.is_closed:
                    quiet = self._is_quiet(silent)
                    link.on_end_dead(end, silent=quiet)
                    if link.ends[0].is_closed and link.ends[1].is_closed:
                        self.forget(link)

    def _is_quiet(self, silent: bool | None) -> bool:
        if silent is None:
            return self._entropy.chance(self.faults.options.silent_death)
        return silent

    def on_boot(self, machine: Machine) -> None:
        """Handle the boot of a machine: connections to its old processes can be reset."""
        for link in list(self._links):
            if link.down_machine is machine:
                link.on_boot()

    def break_between(self, one: str, other: str) -> int:
        """Break every connection between two machines; return their number."""
        found = [link for link in self._links if not link.broken and link.joins(one, other)]
        for link in found:
            link.break_now()
        return len(found)

    def _opened(self, direction: Direction) -> None:
        """Handle the removal of a barrier: deliver the frames that waited."""
        for link in list(self._links):
            if link.joins(*direction):
                for end in link.ends:
                    if end.process.machine.name == direction[1]:
                        link.on_barrier_removed(end)

    def clog_ns(self, receiver: LinkEnd) -> int:
        """Return the delay that a clog adds to frames towards an end."""
        speaker, hearer = receiver.other.process.machine.name, receiver.process.machine.name
        return self.barriers.clog_ms(speaker, hearer) * NS_PER_MS

    def forget(self, link: SimLink) -> None:
        """Remove a link that both ends have closed."""
        self._links.pop(link, None)

    def latency_ns(self, entropy: SimEntropy) -> int:
        """Draw a one-way latency."""
        faults = self.faults.options
        latency_ns = entropy.spread(*faults.latency_us) * NS_PER_US
        if entropy.chance(faults.network_stall):
            latency_ns += entropy.spread(*faults.network_stall_ms) * NS_PER_MS
        return latency_ns


def _key(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{'127.0.0.1' if host in LOCAL_HOSTS else host}:{port}"
