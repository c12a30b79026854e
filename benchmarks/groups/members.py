"""Members of groups, of the classic protocol and of KIP-848, with the behaviour of clients.

They read no records: a member applies its assignment as soon as it receives it, and revokes
partitions at once. Classic members rebalance eagerly, by ranges that the leader computes.
"""

import asyncio
import contextlib
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from benchmarks.groups.wire import (
    CONSUMER_HEARTBEAT,
    FENCED_MEMBER_EPOCH,
    HEARTBEAT,
    ILLEGAL_GENERATION,
    JOIN,
    LEAVE,
    MEMBER_ID_REQUIRED,
    NOT_READY,
    REBALANCE_IN_PROGRESS,
    REBALANCE_MS,
    SYNC,
    UNKNOWN_MEMBER,
    Caller,
    assigned,
    assignment,
    consumer_fields,
    heartbeat_fields,
    join_fields,
    leave_fields,
    sync_fields,
)
from benchmarks.raft.processes import Refused

CLASSIC_HEARTBEAT_S: Final = 3.0
"""The default interval of Java's and librdkafka's consumers; the broker sets that of KIP-848."""

NOT_READY_S: Final = 0.05
SETTLE_S: Final = 180.0


@dataclass(slots=True)
class Group:
    """The state of a group and of all of its members."""

    name: str
    topic: str
    partitions: int  # of the topic
    members: dict[int, "Member"] = field(default_factory=dict)  # by identity
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def is_settled(self, count: int) -> bool:
        """Return True if so many members have joined, have their share, and every partition has one
        owner."""
        members = self.members.values()
        if len(members) != count or self.partitions // count > min(
            (len(each.owned) for each in members), default=0
        ):
            return False
        owned = [number for each in members for number in each.owned]
        return len(owned) == self.partitions == len(set(owned))

    def is_even(self) -> bool:
        """Return True if all members have the same generation."""
        return len({each.generation for each in self.members.values()}) == 1

    async def settled(self, count: int, *, is_even: bool = False) -> None:
        """Wait until so many members have joined and (if requested) all have one generation. Raise
        Refused after the time limit."""
        try:
            async with asyncio.timeout(SETTLE_S):
                while not self.is_settled(count) or (is_even and not self.is_even()):
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            states = sorted({(each.generation, len(each.owned)) for each in self.members.values()})
            raise Refused(
                f"group {self.name} has {len(self.members)} of {count} members and does not settle"
                f" within {SETTLE_S:.0f} s: generations and sizes {states[:5]}"
            ) from None


class Member(Protocol):
    """A member with its own connection."""

    @property
    def member_id(self) -> str:
        """Return the id in the group; empty: none yet."""

    @property
    def generation(self) -> int:
        """Return the generation of the group, or the member epoch; -1: none yet."""

    @property
    def owned(self) -> Sequence[int]:
        """Return its partitions."""

    async def join(self) -> None:
        """Join, and apply the first assignment. Raise OSError, Refused."""

    async def beat(self) -> float:
        """Send a heartbeat and apply the response; return the seconds until the next one."""

    async def leave(self) -> None:
        """Leave the group."""


class ClassicMember:
    """A member of the classic protocol."""

    def __init__(self, group: Group, caller: Caller) -> None:
        self._group = group
        self._caller = caller
        self.member_id = ""
        self.generation = -1
        self.owned: Sequence[int] = ()

    async def join(self) -> None:
        """Join until all members have joined."""
        self._group.members[id(self)] = self
        while True:
            self.generation, self.owned = -1, ()
            answer = await self._caller.ask(
                JOIN, **join_fields(self._group.name, self._group.topic, self.member_id)
            )
            code = int(answer.error_code)
            if code == 0 and await self._sync(answer):
                self._group.changed.set()
                return
            if code == MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            else:
                await self._again("join", code)

    async def _sync(self, joined: Any) -> bool:
        """Return True if it has an assignment; otherwise it must join again."""
        self.member_id = joined.member_id
        parts = {}
        if joined.leader == joined.member_id:
            parts = self._shared_out([each.member_id for each in joined.members])
        fields = sync_fields(self._group.name, joined.generation_id, self.member_id, parts)
        answer = await self._caller.ask(SYNC, **fields)
        if int(answer.error_code):
            await self._again("sync", int(answer.error_code))
            return False
        self.generation, self.owned = joined.generation_id, assigned(answer.assignment)
        return True

    def _shared_out(self, members: Sequence[str]) -> dict[str, bytes]:
        topic, total = self._group.topic, self._group.partitions
        ends = [total * at // len(members) for at in range(len(members) + 1)]
        return {
            name: assignment(topic, range(ends[at], ends[at + 1]))
            for at, name in enumerate(members)
        }

    async def beat(self) -> float:
        """Send a heartbeat; join again if the group rebalances."""
        fields = heartbeat_fields(self._group.name, self.generation, self.member_id)
        code = int((await self._caller.ask(HEARTBEAT, **fields)).error_code)
        if code:
            await self._again("heartbeat", code)
            await self.join()
        return CLASSIC_HEARTBEAT_S

    async def leave(self) -> None:
        answer = await self._caller.ask(LEAVE, **leave_fields(self._group.name, self.member_id))
        self._group.members.pop(id(self), None)
        self._group.changed.set()
        check_left(answer.error_code)
        self.member_id, self.generation, self.owned = "", -1, ()

    async def _again(self, what: str, code: int) -> None:
        """Return if an error requires a join. Raise Refused for other errors."""
        if code in NOT_READY:
            await asyncio.sleep(NOT_READY_S)
        elif code == UNKNOWN_MEMBER:
            self.member_id = ""
        elif code not in (0, REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
            raise Refused(f"a {what} in group {self._group.name} is refused: error {code}")


class ConsumerMember:
    """A member of KIP-848."""

    def __init__(self, group: Group, caller: Caller) -> None:
        self._group = group
        self._caller = caller
        self.member_id = str(uuid.uuid4())
        self.generation = -1
        self.owned: Sequence[int] = ()
        self._epoch = 0
        self._unconfirmed: Sequence[Any] | None = (
            None  # reported in the next heartbeat; None: no change
        )

    async def join(self) -> None:
        """Send the first heartbeat; the assignment may arrive later."""
        self._group.members[id(self)] = self
        self._epoch = 0
        self.owned, self.generation = (), -1
        await self._heartbeat(
            rebalance_timeout=REBALANCE_MS,
            subscribed_topic_names=(self._group.topic,),
            topic_partitions=(),
        )

    async def beat(self) -> float:
        """Send a heartbeat, and confirm a new assignment at once."""
        unconfirmed, self._unconfirmed = self._unconfirmed, None
        changed = {} if unconfirmed is None else {"topic_partitions": unconfirmed}
        interval_s = await self._heartbeat(**changed)
        return 0.0 if self._has_news else interval_s

    async def leave(self) -> None:
        fields = consumer_fields(self._group.name, self.member_id, -1)
        answer = await self._caller.ask(CONSUMER_HEARTBEAT, **fields)
        self._group.members.pop(id(self), None)
        self._group.changed.set()
        check_left(answer.error_code)
        self.generation, self.owned, self._unconfirmed = -1, (), None

    @property
    def _has_news(self) -> bool:
        """Return True if a new assignment must be confirmed."""
        return self._unconfirmed is not None

    async def _heartbeat(self, **changed: Any) -> float:
        fields = consumer_fields(self._group.name, self.member_id, self._epoch, **changed)
        answer = await self._caller.ask(CONSUMER_HEARTBEAT, **fields)
        code = int(answer.error_code)
        if code in NOT_READY:
            await asyncio.sleep(NOT_READY_S)
            return await self._heartbeat(**changed)
        if code in (UNKNOWN_MEMBER, FENCED_MEMBER_EPOCH):
            await self.join()
            return 0.0
        if code:
            raise Refused(
                f"a heartbeat in group {self._group.name} is refused: {answer.error_message}"
            )
        self._epoch = self.generation = int(answer.member_epoch)
        if answer.assignment is not None:
            given = answer.assignment.topic_partitions
            self.owned = tuple(number for each in given for number in each.partitions)
            self._unconfirmed = [
                {"topic_id": each.topic_id, "partitions": tuple(each.partitions)} for each in given
            ]
        self._group.changed.set()
        interval: float = answer.heartbeat_interval.total_seconds()
        return interval


Make: TypeAlias = Callable[[Group, Caller], Member]
PROTOCOLS: Final[dict[str, Make]] = {"classic": ClassicMember, "KIP-848": ConsumerMember}


def check_left(code: Any) -> None:
    """Raise Refused if a leave failed."""
    if int(code):
        raise Refused(f"a member may not leave: error {int(code)}")


class Crowd:
    """Members that join, send heartbeats and leave, until the block ends.

    A member that fails ends the others, and the block.
    """

    def __init__(self, group: Group, make: Make, port: int) -> None:
        self._group = group
        self._make = make
        self._port = port  # of the group's coordinator
        self._tasks: dict[Member, asyncio.Task[None]] = {}
        self._leaving: dict[Member, asyncio.Event] = {}
        self._callers: list[Caller] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> "Crowd":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.rest()
        for caller in self._callers:
            caller.close()
        if not self._failed.cancel():
            self._failed.exception()  # so that its error is retrieved

    async def come(self, count: int) -> list[Member]:
        """Connect new members and start their joins concurrently; return them without waiting."""
        callers = [await Caller.open(self._port) for _ in range(count)]
        self._callers += callers
        members = [self._make(self._group, caller) for caller in callers]
        for member in members:
            self._leaving[member] = asyncio.Event()
            self._tasks[member] = asyncio.ensure_future(self._live(member))
        return members

    async def go(self, member: Member) -> None:
        """Let a member leave after its pending response."""
        self._leaving[member].set()
        await self._tasks.pop(member)

    async def rest(self) -> None:
        """Stop all heartbeats without leaving."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def settled(self, count: int, *, is_even: bool = False) -> None:
        """Wait until so many members share all partitions and, if requested, have one generation.
        Raise the error of a failed member."""
        waiting = asyncio.ensure_future(self._group.settled(count, is_even=is_even))
        done, _ = await asyncio.wait({waiting, self._failed}, return_when=asyncio.FIRST_COMPLETED)
        if waiting not in done:
            waiting.cancel()
        for each in done:
            each.result()

    async def _live(self, member: Member) -> None:
        leaving, share = self._leaving[member], random.random()
        try:
            await member.join()
            while not leaving.is_set():
                pause_s = await member.beat()
                if pause_s:  # the first pause is random, so that members are not synchronous
                    pause_s, share = pause_s * share, 1.0
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await leaving.wait()
            await member.leave()
        except (OSError, Refused) as error:
            if not self._failed.done():
                self._failed.set_exception(error)
