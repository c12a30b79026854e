"""A member of the classic protocol: joins, syncs, beats, and shares the partitions out when it
leads. Eager ones give everything back before they join again, cooperative ones keep what stays."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quorumlog.broker.groups.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from quorumlog.errors import QuorumlogError
from quorumlog.testing.checkers import Place

from . import calls
from .member_reader import Ended, Reading, Setting
from .plan import Kind

PROTOCOLS: Final = {Kind.EAGER: "range", Kind.COOPERATIVE: "cooperative-sticky"}
LEAVE_TRIES: Final = 3
OLD_GENERATION: Final = 0.3  # how often of those who commit late a generation passes without it


class ClassicMember:
    """One life of a member."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._reading = Reading.of(setting)
        self._life = self._reading.life
        self._keeps = setting.plan.kind is Kind.COOPERATIVE
        self._member_id = ""
        self._generation = -1
        self._is_in = False  # joined and synced, and not asked to join again
        self._beat_ns = 0  # when the next heartbeat is due
        self._commit_ns = 0
        self._left_out = False  # it leads, and some partitions wait for who shall give them back
        # A static one that comes again may lead, and nobody remembers what the leader before it has
        # left out: it joins until it has shared out itself.
        self._came_again = False

    async def run(self) -> None:
        """Live until told to leave, or shut out for good."""
        await self._reading.look()
        try:
            while not self._setting.stop.is_set():
                if self._is_in:
                    await self._turn()
                else:
                    await self._rejoin()
            await self._leave()
        except Ended:
            self._setting.chronicle.counts["ended"] += 1
        finally:
            self._life.ends()
            self._reading.close()

    # --- joining -------------------------------------------------------------------------------

    async def _rejoin(self) -> None:
        """Join and sync once; on any error the next try begins from what is known then."""
        reading, life, group = self._reading, self._life, self._setting.group
        if self._generation >= 0:
            await reading.commit(self._generation)
        if not self._keeps:
            reading.gives_all()
        if life.instance_id and not self._member_id:
            self._setting.chronicle.comes_again(life.group, life.instance_id, life)
            self._came_again = self._keeps
        asked_ns = reading.now_ns()
        try:
            joined = await reading.calls.join(
                self._member_id,
                life.instance_id,
                session_ms=group.session_ms,
                rebalance_ms=group.rebalance_ms,
                protocols=self._protocols(),
            )
        except QuorumlogError as error:
            reading.note(error)
            await reading.pause()
            return
        code = int(joined.error_code)
        if code == calls.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return
        if code:
            await self._refused(code, asked_ns)
            return
        before, self._generation = self._generation, int(joined.generation_id)
        if life.instance_id and 0 <= before < self._generation - 1:
            reading.gives_all()  # others may have had it meanwhile: a static one is not waited for
        self._member_id = joined.member_id
        life.told(self._generation, self._member_id)
        life.answered(asked_ns, is_settled=True, is_stored=False)
        await self._sync(joined)

    async def _sync(self, joined: Any) -> None:
        reading, life = self._reading, self._life
        given: dict[str, bytes] = {}
        self._left_out = self._came_again
        if joined.leader == self._member_id and not getattr(joined, "skip_assignment", False):
            given, self._came_again = self._share_out(joined), False
            self._setting.chronicle.counts["generations"] += 1
        asked_ns = reading.now_ns()
        try:
            synced = await reading.calls.sync(
                self._member_id,
                life.instance_id,
                self._generation,
                given,
                protocol=joined.protocol_name or "",
                rebalance_ms=self._setting.group.rebalance_ms,
            )
        except QuorumlogError as error:
            reading.note(error)
            await reading.pause()
            return
        code = int(synced.error_code)
        if code:
            await self._refused(code, asked_ns)
            return
        life.answered(asked_ns, is_settled=True)
        await self._assigned(decode_assignment(synced.assignment))

    async def _assigned(self, assignment: Assignment) -> None:
        """Take what is the member's, give the rest back."""
        reading, life = self._reading, self._life
        said = assignment.user_data
        if said and int(said) != self._generation:
            self._setting.chronicle.found.append(
                f"StaleAssignment: {life.name} synced generation {self._generation} of "
                f"{life.group}, and got what the leader of {int(said)} gave"
            )
        target = {(topic, index) for topic, some in assignment.partitions.items() for index in some}
        given = [place for place in life.claims if place not in target]
        if given:
            await reading.finish_work()
            await reading.commit(self._generation, given)
        reading.gives(given)
        reading.takes(place for place in target if place not in life.claims)
        self._is_in = not given  # who gave something back has it shared out by joining again
        self._beat_ns = reading.now_ns()
        if self._generation > 1 and reading.is_late() and self._passes(OLD_GENERATION):
            await reading.commit_late(self._member_id, self._generation - 1)

    def _passes(self, often: float) -> bool:
        return self._reading.entropy.uniform(0, 1) < often

    def _protocols(self) -> list[tuple[str, bytes]]:
        """What the member offers: its subscription, for the strategy of its kind."""
        owned: dict[str, tuple[int, ...]] = {}
        for topic, index in self._life.claims:
            owned[topic] = (*owned.get(topic, ()), index)
        data = encode_subscription(
            Subscription(
                version=2 if self._keeps else 0,
                topics=self._setting.group.topics,
                owned=owned,
                generation=self._generation,
            )
        )
        return [(PROTOCOLS[self._setting.plan.kind], data)]

    def _share_out(self, joined: Any) -> dict[str, bytes]:
        """What the leader of a generation gives everybody; its number goes along."""
        subscriptions = {one.member_id: decode_subscription(one.metadata) for one in joined.members}
        shares = share_out(subscriptions, self._setting.places, keeps=self._keeps)
        self._left_out = sum(map(len, shares.values())) < len(self._setting.places)
        given = {}
        for member_id, places in shares.items():
            by_topic: dict[str, tuple[int, ...]] = {}
            for topic, index in places:
                by_topic[topic] = (*by_topic.get(topic, ()), index)
            given[member_id] = encode_assignment(
                Assignment(version=1, partitions=by_topic, user_data=str(self._generation).encode())
            )
        return given

    # --- life ----------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Beat when it is due, read, work, commit now and then."""
        reading = self._reading
        if reading.now_ns() >= self._beat_ns:
            await self._beat()
            if not self._is_in:
                return
        await reading.locate(self._generation)
        await reading.work()
        if reading.now_ns() >= self._commit_ns:
            pause_ms = reading.entropy.uniform(*self._setting.behaviour.commit_ms)
            asked_ns = reading.now_ns()
            self._commit_ns = asked_ns + int(pause_ms * 1e6)
            code = await reading.commit(self._generation)
            if code in (calls.UNKNOWN_MEMBER, calls.ILLEGAL_GENERATION, calls.FENCED_INSTANCE):
                await self._refused(code, asked_ns)

    async def _beat(self) -> None:
        reading, life = self._reading, self._life
        asked_ns = reading.now_ns()
        self._beat_ns = asked_ns + self._setting.group.beat_ms * 1_000_000
        loads = self._setting.chronicle.loads
        before = loads()
        try:
            code = await reading.calls.heartbeat(
                self._member_id, life.instance_id, self._generation
            )
        except QuorumlogError as error:
            reading.note(error)
            return
        if code in (calls.NONE, calls.REBALANCING):
            if code or (before is not None and before == loads()):
                life.answered(asked_ns, is_settled=not code)
            # Who was to give something back may have come again without it: share out once more.
            self._is_in = not code and not (self._left_out and self._passes(0.2))
        else:
            await self._refused(code, asked_ns)

    async def _refused(self, code: int, asked_ns: int) -> None:
        """Go on after what a request was refused with that was sent then."""
        reading = self._reading
        reading.note(code)
        if code == calls.FENCED_INSTANCE:
            reading.gives_all()
            if reading.is_late():
                await reading.commit_late(self._member_id, max(0, self._generation))
            raise Ended
        if code in (calls.UNKNOWN_MEMBER, calls.ILLEGAL_GENERATION):
            reading.gives_all()
            old, generation = self._member_id, self._generation
            self._is_in, self._generation = False, -1
            if code == calls.UNKNOWN_MEMBER:
                self._life.shut_out(asked_ns)
                self._member_id = ""
                if old and generation >= 0 and reading.is_late():
                    await reading.commit_late(old, generation)
        elif code == calls.REBALANCING:
            self._is_in = False
        await reading.pause()

    async def _leave(self) -> None:
        """Commit, give everything back, go; a static one stays a member for a while."""
        reading, life = self._reading, self._life
        if self._generation >= 0:
            await reading.commit(self._generation)
        reading.gives_all()
        if not self._member_id or life.instance_id:
            return
        for _ in range(LEAVE_TRIES):
            try:
                code = await reading.calls.leave(self._member_id, "")
            except QuorumlogError as error:
                reading.note(error)
                await asyncio.sleep(0.1)
                continue
            if not code and self._generation >= 0 and reading.is_late():
                await reading.commit_late(self._member_id, self._generation)
            if code not in calls.PASSING:
                return


def share_out(
    subscriptions: Mapping[str, Subscription], places: Sequence[Place], *, keeps: bool
) -> dict[str, list[Place]]:
    """Share partitions out evenly; with `keeps` nobody gets what another one has not given back."""
    members = sorted(subscriptions)
    wanted = [
        place
        for place in sorted(places)
        if any(place[0] in one.topics for one in subscriptions.values())
    ]
    shares: dict[str, list[Place]] = {member: [] for member in members}
    if not keeps:
        for number, place in enumerate(wanted):
            shares[members[number % len(members)]].append(place)
        return shares
    owners = _owners(subscriptions)
    most = -(-len(wanted) // len(members))
    free = []
    for place in wanted:
        owner = owners.get(place)
        if owner is not None and len(shares[owner]) < most:
            shares[owner].append(place)
        else:
            free.append(place)
    for place in free:
        least = min(members, key=lambda member: (len(shares[member]), member))
        if owners.get(place) in (None, least):
            shares[least].append(place)
        elif owners[place] is not None and len(shares[owners[place]]) <= len(shares[least]):
            shares[owners[place]].append(place)
    return shares


def _owners(subscriptions: Mapping[str, Subscription]) -> dict[Place, str]:
    """Who says to own what; where two do, the one of the later generation."""
    owners: dict[Place, tuple[int, str]] = {}
    for member, subscription in sorted(subscriptions.items()):
        for topic, some in subscription.owned.items():
            for index in some:
                known = owners.get((topic, index))
                if known is None or known[0] < subscription.generation:
                    owners[topic, index] = (subscription.generation, member)
    return {place: member for place, (_, member) in owners.items()}
