"""A member of the classic protocol: it joins, syncs, sends heartbeats, and assigns partitions as
leader.

An eager member revokes all partitions before it joins again, a cooperative one keeps those that
stay.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quorumlog.broker.groups.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from quorumlog.errors import QuorumlogError
from quorumlog.testing.checkers import Place

from . import calls
from .member_reader import MemberContext, MemberFenced, MemberReader
from .plan import MemberKind

PROTOCOLS: Final = {MemberKind.EAGER: "range", MemberKind.COOPERATIVE: "cooperative-sticky"}
LEAVE_TRIES: Final = 3
OLD_GENERATION: Final = 0.3  # fraction of late commits that follow a generation


class ClassicMember:
    """One process of a member."""

    def __init__(self, setting: MemberContext) -> None:
        self._setting = setting
        self._reading = MemberReader.of(setting)
        self._life = self._reading.life
        self._keeps = setting.plan.kind is MemberKind.COOPERATIVE
        self._member_id = ""
        self._generation = -1
        self._is_in = False  # joined and synced, and not asked to rejoin
        self._beat_ns = 0  # time of the next heartbeat
        self._commit_ns = 0
        # as leader it left out partitions that their owners must revoke first
        self._left_out = False
        # A returning static member may lead without the record of partitions its predecessor left
        # out: it rejoins until it has assigned all itself.
        self._came_again = False

    async def run(self) -> None:
        """Run until a request to leave, or until it is fenced."""
        await self._reading.look()
        try:
            while not self._setting.stop.is_set():
                if self._is_in:
                    await self._turn()
                else:
                    await self._rejoin()
            await self._leave()
        except MemberFenced:
            self._setting.group_history.counts["ended"] += 1
        finally:
            self._life.ends()
            self._reading.close()

    # --- joining -------------------------------------------------------------------------------

    async def _rejoin(self) -> None:
        """Join and sync once; after an error the next attempt starts from the state then."""
        reading, life, group = self._reading, self._life, self._setting.group
        if self._generation >= 0:
            await reading.commit(self._generation)
        if not self._keeps:
            reading.revoke_all()
        if life.instance_id and not self._member_id:
            self._setting.group_history.replaces_static_member(life.group, life.instance_id, life)
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
            # others may have owned it: the group does not wait for a static member
            reading.revoke_all()
        self._member_id = joined.member_id
        life.set_epoch(self._generation, self._member_id)
        life.answered(asked_ns, is_settled=True, is_stored=False)
        await self._sync(joined)

    async def _sync(self, joined: Any) -> None:
        reading, life = self._reading, self._life
        given: dict[str, bytes] = {}
        self._left_out = self._came_again
        if joined.leader == self._member_id and not getattr(joined, "skip_assignment", False):
            given, self._came_again = self._share_out(joined), False
            self._setting.group_history.counts["generations"] += 1
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

    async def _assigned(self, assignment: ConsumerAssignment) -> None:
        """Take the assigned partitions, revoke the others."""
        reading, life = self._reading, self._life
        said = assignment.user_data
        if said and int(said) != self._generation:
            self._setting.group_history.found.append(
                f"StaleAssignment: {life.name} synced generation {self._generation} of "
                f"{life.group}, and got the assignment of {int(said)}"
            )
        target = {(topic, index) for topic, some in assignment.partitions.items() for index in some}
        given = [place for place in life.claims if place not in target]
        if given:
            await reading.finish_work()
            await reading.commit(self._generation, given)
        reading.revoke(given)
        reading.assign(place for place in target if place not in life.claims)
        self._is_in = not given  # revoked partitions are assigned by another rebalance
        self._beat_ns = reading.now_ns()
        if self._generation > 1 and reading.is_late() and self._passes(OLD_GENERATION):
            await reading.commit_late(self._member_id, self._generation - 1)

    def _passes(self, often: float) -> bool:
        return self._reading.entropy.uniform(0, 1) < often

    def _protocols(self) -> list[tuple[str, bytes]]:
        """Return the member's subscription for the protocol of its kind."""
        owned: dict[str, tuple[int, ...]] = {}
        for topic, index in self._life.claims:
            owned[topic] = (*owned.get(topic, ()), index)
        data = encode_subscription(
            ConsumerSubscription(
                version=2 if self._keeps else 0,
                topics=self._setting.group.topics,
                owned=owned,
                generation=self._generation,
            )
        )
        return [(PROTOCOLS[self._setting.plan.kind], data)]

    def _share_out(self, joined: Any) -> dict[str, bytes]:
        """Return the assignments by this leader; they contain the generation's number."""
        subscriptions = {one.member_id: decode_subscription(one.metadata) for one in joined.members}
        shares = share_out(subscriptions, self._setting.places, keeps=self._keeps)
        self._left_out = sum(map(len, shares.values())) < len(self._setting.places)
        given = {}
        for member_id, places in shares.items():
            by_topic: dict[str, tuple[int, ...]] = {}
            for topic, index in places:
                by_topic[topic] = (*by_topic.get(topic, ()), index)
            given[member_id] = encode_assignment(
                ConsumerAssignment(
                    version=1, partitions=by_topic, user_data=str(self._generation).encode()
                )
            )
        return given

    # --- main loop
    # ---------------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Send a heartbeat if due, read, process, sometimes commit."""
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
        loads = self._setting.group_history.loads
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
            # A member that had to revoke may have returned without the partition: assign again.
            self._is_in = not code and not (self._left_out and self._passes(0.2))
        else:
            await self._refused(code, asked_ns)

    async def _refused(self, code: int, asked_ns: int) -> None:
        """Continue after a rejected request."""
        reading = self._reading
        reading.note(code)
        if code == calls.FENCED_INSTANCE:
            reading.revoke_all()
            if reading.is_late():
                await reading.commit_late(self._member_id, max(0, self._generation))
            raise MemberFenced
        if code in (calls.UNKNOWN_MEMBER, calls.ILLEGAL_GENERATION):
            reading.revoke_all()
            old, generation = self._member_id, self._generation
            self._is_in, self._generation = False, -1
            if code == calls.UNKNOWN_MEMBER:
                self._life.evicted(asked_ns)
                self._member_id = ""
                if old and generation >= 0 and reading.is_late():
                    await reading.commit_late(old, generation)
        elif code == calls.REBALANCING:
            self._is_in = False
        await reading.pause()

    async def _leave(self) -> None:
        """Commit, revoke all partitions, leave; a static member stays in the group for a while."""
        reading, life = self._reading, self._life
        if self._generation >= 0:
            await reading.commit(self._generation)
        reading.revoke_all()
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
    subscriptions: Mapping[str, ConsumerSubscription], places: Sequence[Place], *, keeps: bool
) -> dict[str, list[Place]]:
    """Assign partitions evenly; with `keeps` no partition moves before its owner revoked it."""
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


def _owners(subscriptions: Mapping[str, ConsumerSubscription]) -> dict[Place, str]:
    """Return the owner of each partition by the subscriptions; if two claim it, the one of the
    later generation."""
    owners: dict[Place, tuple[int, str]] = {}
    for member, subscription in sorted(subscriptions.items()):
        for topic, some in subscription.owned.items():
            for index in some:
                known = owners.get((topic, index))
                if known is None or known[0] < subscription.generation:
                    owners[topic, index] = (subscription.generation, member)
    return {place: member for place, (_, member) in owners.items()}
