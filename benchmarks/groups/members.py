"""Members of groups, of the classic protocol and of KIP-848, that do what clients' members do.

They read nothing: a member has what it was given as soon as it hears of it, and gives up at once
what it must. Classic members rebalance eagerly, by ranges that the leader makes.
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
"""What Java's and librdkafka's consumers do by default; members of KIP-848 are told."""

NOT_READY_S: Final = 0.05
SETTLE_S: Final = 180.0


@dataclass(slots=True)
class Group:
    """What is known of a group and of all of its members."""

    name: str
    topic: str
    partitions: int  # of the topic
    members: dict[int, "Member"] = field(default_factory=dict)  # by identity
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def is_settled(self, count: int) -> bool:
        """Whether so many members are in, have their share, and every partition is one's."""
        members = self.members.values()
        if len(members) != count or self.partitions // count > min(
            (len(each.owned) for each in members), default=0
        ):
            return False
        owned = [number for each in members for number in each.owned]
        return len(owned) == self.partitions == len(set(owned))

    def is_even(self) -> bool:
        """Whether all of its members know of the same generation."""
        return len({each.generation for each in self.members.values()}) == 1

    async def settled(self, count: int, *, is_even: bool = False) -> None:
        """Return when so many are in, and (if asked for) all know of one generation; raises Refused
        when that takes too long."""
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
    """A member with a connection of its own."""

    @property
    def member_id(self) -> str:
        """As the group knows it; empty: not yet."""

    @property
    def generation(self) -> int:
        """Of the group, or its own epoch; -1: it has nothing yet."""

    @property
    def owned(self) -> Sequence[int]:
        """Its partitions."""

    async def join(self) -> None:
        """Be in, and have what it is given first. Raises OSError, Refused."""

    async def beat(self) -> float:
        """Say that it lives and do what comes of it; returns the seconds until the next time."""

    async def leave(self) -> None:
        """Go."""


class ClassicMember:
    """A member of the classic protocol."""

    def __init__(self, group: Group, caller: Caller) -> None:
        self._group = group
        self._caller = caller
        self.member_id = ""
        self.generation = -1
        self.owned: Sequence[int] = ()

    async def join(self) -> None:
        """Join until everybody has."""
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
        """Whether it has its part; else it is to join again."""
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
        """Join again where it hears that somebody came or went."""
        fields = heartbeat_fields(self._group.name, self.generation, self.member_id)
        code = int((await self._caller.ask(HEARTBEAT, **fields)).error_code)
        if code:
            await self._again("heartbeat", code)
            await self.join()
        return CLASSIC_HEARTBEAT_S

    async def leave(self) -> None:
        """Go."""
        answer = await self._caller.ask(LEAVE, **leave_fields(self._group.name, self.member_id))
        self._group.members.pop(id(self), None)
        self._group.changed.set()
        check_left(answer.error_code)
        self.member_id, self.generation, self.owned = "", -1, ()

    async def _again(self, what: str, code: int) -> None:
        """Return where joining (again) is the answer to an error; raises Refused."""
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
        self._told: Sequence[Any] | None = None  # what it says next that it has; None: no news

    async def join(self) -> None:
        """Be known to the group; what it is given may come later."""
        self._group.members[id(self)] = self
        self._epoch = 0
        self.owned, self.generation = (), -1
        await self._heartbeat(
            rebalance_timeout=REBALANCE_MS,
            subscribed_topic_names=(self._group.topic,),
            topic_partitions=(),
        )

    async def beat(self) -> float:
        """Take what it is given, and confirm that at once."""
        told, self._told = self._told, None
        changed = {} if told is None else {"topic_partitions": told}
        interval_s = await self._heartbeat(**changed)
        return 0.0 if self._has_news else interval_s

    async def leave(self) -> None:
        """Go."""
        fields = consumer_fields(self._group.name, self.member_id, -1)
        answer = await self._caller.ask(CONSUMER_HEARTBEAT, **fields)
        self._group.members.pop(id(self), None)
        self._group.changed.set()
        check_left(answer.error_code)
        self.generation, self.owned, self._told = -1, (), None

    @property
    def _has_news(self) -> bool:
        """Whether there is something to confirm."""
        return self._told is not None

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
            self._told = [
                {"topic_id": each.topic_id, "partitions": tuple(each.partitions)} for each in given
            ]
        self._group.changed.set()
        interval: float = answer.heartbeat_interval.total_seconds()
        return interval


Make: TypeAlias = Callable[[Group, Caller], Member]
PROTOCOLS: Final[dict[str, Make]] = {"classic": ClassicMember, "KIP-848": ConsumerMember}


def check_left(code: Any) -> None:
    """Raise Refused where a member may not go."""
    if int(code):
        raise Refused(f"a member may not leave: error {int(code)}")


class Crowd:
    """Members that live together: they join, beat and leave, until the block ends.

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
            self._failed.exception()  # looked at, here at the latest

    async def come(self, count: int) -> list[Member]:
        """Connect new members and have them join, all at once; returns them while they do."""
        callers = [await Caller.open(self._port) for _ in range(count)]
        self._callers += callers
        members = [self._make(self._group, caller) for caller in callers]
        for member in members:
            self._leaving[member] = asyncio.Event()
            self._tasks[member] = asyncio.ensure_future(self._live(member))
        return members

    async def go(self, member: Member) -> None:
        """Have one leave, as soon as it has the answer that it waits for."""
        self._leaving[member].set()
        await self._tasks.pop(member)

    async def rest(self) -> None:
        """Have all of them say nothing more, and stay."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def settled(self, count: int, *, is_even: bool = False) -> None:
        """Return when so many members share all partitions and, if asked for, know of one
        generation; raises what a member failed by."""
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
                if pause_s:  # the first one is drawn, so that members do not beat together
                    pause_s, share = pause_s * share, 1.0
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await leaving.wait()
            await member.leave()
        except (OSError, Refused) as error:
            if not self._failed.done():
                self._failed.set_exception(error)
