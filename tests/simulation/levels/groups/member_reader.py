"""The consumption of members without a client: positions, processing, commits."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from quorumlog.errors import QuorumlogError
from quorumlog.records.compression import Codec
from quorumlog.runtime import Entropy, Runtime
from quorumlog.testing.checkers import History, Place

from ..kafka.client import METADATA, KafkaClient
from ..transactions.calls import Member
from ..transactions.producer import Observations
from . import calls
from .calls import GroupCalls
from .history import GroupHistory, MemberIncarnation
from .plan import GroupPlan, MemberBehaviour, MemberPlan
from .transactional_commits import PLAIN, CommitResult, TransactionalCommits

RETRY_S: Final = 0.2
TOPIC_IDS_SINCE: Final = 12  # the version of Metadata requests: it returns topic ids
FAR: Final = 1_000_000_000_000
"""Offsets of commits that must be rejected start here: no log is that long."""
REFUSED: Final = frozenset(
    {
        calls.UNKNOWN_TOPIC_OR_PARTITION,
        calls.ILLEGAL_GENERATION,
        calls.UNKNOWN_MEMBER,
        calls.REBALANCING,
        calls.FENCED_INSTANCE,
        calls.FENCED_EPOCH,
        calls.STALE_EPOCH,
    }
)


class MemberFenced(Exception):
    """The member is fenced: another one has its static name."""


@dataclass(slots=True)
class MemberContext:
    """The parameters of a member."""

    runtime: Runtime
    plan: MemberPlan
    group: GroupPlan
    behaviour: MemberBehaviour
    bootstrap: str  # Kafka listeners
    grpc_bootstrap: str
    group_history: GroupHistory
    history: History  # of the reads
    places: list[Place]  # partitions of the group's topics
    stop: asyncio.Event  # set for a clean leave
    observed: Observations | None = None  # of the transactions; None: there are none

    def life(self) -> MemberIncarnation:
        """Start a process in the history."""
        life = self.group_history.life(
            self.group.name,
            self.plan.name,
            session_ms=self.group.session_ms,
            rebalance_ms=self.group.rebalance_ms,
            instance_id=self.plan.instance_id,
        )
        return life

    def client(self) -> KafkaClient:
        """Return a client for reads."""
        client = KafkaClient(
            self.runtime,
            self.bootstrap.split(","),
            name=self.plan.name,
            timeout_ms=self.behaviour.request_timeout_ms,
            codec=Codec.NONE,
        )
        client.versions[METADATA] = TOPIC_IDS_SINCE
        return client


@dataclass(slots=True)
class MemberReader:
    """Reads the partitions of a member, and commits the processed offsets."""

    setting: MemberContext
    life: MemberIncarnation
    client: KafkaClient
    calls: GroupCalls
    entropy: Entropy
    positions: dict[Place, int] = field(default_factory=dict)  # of the next record to process
    stored: dict[Place, int] = field(default_factory=dict)  # as far as known
    transactions: TransactionalCommits | None = None
    _claims: int = 0

    @classmethod
    def of(cls, setting: MemberContext) -> "MemberReader":
        """Start a member's consumption."""
        client, life = setting.client(), setting.life()
        transactions = None
        if setting.observed is not None:
            transactions = TransactionalCommits(
                setting.runtime,
                client,
                setting.observed,
                name=life.name,
                transactional_id=setting.plan.name,
                group=setting.group.name,
                timeout_ms=setting.behaviour.request_timeout_ms,
            )
        return cls(
            setting=setting,
            life=life,
            client=client,
            calls=GroupCalls(
                setting.runtime,
                client,
                setting.group.name,
                timeout_ms=setting.behaviour.request_timeout_ms,
                is_stable=setting.observed is not None,
            ),
            entropy=setting.runtime.entropy.stream("member"),
            transactions=transactions,
        )

    def now_ns(self) -> int:
        """Return the virtual time."""
        return self.setting.group_history.now_ns()

    def assign(self, places: Iterable[Place]) -> None:
        """Record newly owned partitions."""
        self.life.assign(sorted(places))

    def revoke(self, places: Iterable[Place]) -> None:
        """Record revoked partitions."""
        for place in list(places):
            self.positions.pop(place, None)
            self.stored.pop(place, None)
            self.life.revoke([place])

    def revoke_all(self) -> None:
        """Record that all partitions are revoked."""
        self.revoke(list(self.life.claims))

    def note(self, error: QuorumlogError | int) -> None:
        """Count an error."""
        name = f"kafka {error}" if isinstance(error, int) else type(error).__name__
        self.setting.group_history.errors[name] += 1

    async def look(self) -> None:
        """Refresh the metadata."""
        try:
            await self.client.look(list(self.setting.group.topics))
        except QuorumlogError as error:
            self.note(error)

    async def pause(self) -> None:
        """Wait after an error."""
        await asyncio.sleep(RETRY_S)

    # --- offsets -------------------------------------------------------------------------------

    async def locate(self, epoch: int) -> None:
        """Fetch the committed offsets of new partitions; no retries."""
        places = [place for place in self.life.claims if place not in self.positions]
        if not places:
            return
        group_history, group = self.setting.group_history, self.life.group
        numbers = {
            place: group_history.fetch_offset(group, self.life.name, place) for place in places
        }
        try:
            code, found = await self.calls.fetch(places, member_id=self.life.member_id, epoch=epoch)
        except QuorumlogError as error:
            self.note(error)
            return
        if code:
            self.note(code)
            return
        for place, number in numbers.items():
            offset = found[place].offset
            group_history.offset_fetched(number, group, place, offset, found[place].note)
            if place in self.life.claims:
                self.positions[place] = max(0, offset)
                self.stored[place] = offset

    async def commit(self, epoch: int, places: Iterable[Place] | None = None) -> int:
        """Commit the processed offsets, without retries; return the first error code, 0 for
        success, -1 without a response."""
        chosen = list(self.positions if places is None else places)
        news = {
            place: self.positions[place]
            for place in chosen
            if place in self.positions and self.stored.get(place, -1) < self.positions[place]
        }
        if not news:
            return 0
        codes = await self._commit(epoch, news, is_honest=True)
        for place, code in codes.items():
            if not code and place in self.life.claims:
                self.stored[place] = news[place]
        return next((code for code in codes.values() if code), 0) if codes else -1

    async def commit_late(self, member_id: str, epoch: int) -> None:
        """Send a commit that must be rejected: by a former member, or with a wrong epoch."""
        places = self.setting.places
        place = places[self.entropy.below(len(places))]
        offset = FAR + self.entropy.below(1_000)
        self.setting.group_history.counts["late commits"] += 1
        await self._commit(epoch, {place: offset}, is_honest=False, member_id=member_id)

    def is_late(self) -> bool:
        """Draw whether this member commits late now."""
        return self.entropy.uniform(0, 1) < self.setting.behaviour.late

    async def _commit(
        self, epoch: int, offsets: dict[Place, int], *, is_honest: bool, member_id: str = ""
    ) -> dict[Place, int]:
        group_history, life = self.setting.group_history, self.life
        numbers: dict[Place, int] = {}
        noted: dict[Place, tuple[int, str]] = {}
        for place, offset in offsets.items():
            number, note = group_history.send_commit(
                life.group, life.name, place, offset, is_honest=is_honest
            )
            numbers[place] = number
            noted[place] = (offset, note)
        if self.transactions is not None and self.entropy.uniform(0, 1) >= PLAIN:
            member = Member(member_id or life.member_id, epoch, life.instance_id)
            result = await self.transactions.commit(member, noted, is_honest=is_honest)
            return self._committed(numbers, result, is_honest=is_honest)
        asked_ns = self.now_ns()
        try:
            codes = await self.calls.commit(
                member_id or life.member_id, life.instance_id, epoch, noted
            )
        except QuorumlogError as error:
            self.note(error)
            return {}
        if is_honest and calls.NONE in codes.values():
            life.served(asked_ns)
        for place, code in codes.items():
            if not code:
                group_history.committed(numbers[place])
            else:
                self.note(code)
                if code in REFUSED:
                    group_history.refused(numbers[place])
        return codes

    def _committed(
        self, numbers: dict[Place, int], result: CommitResult, *, is_honest: bool
    ) -> dict[Place, int]:
        """Record the result of a transaction; return the code of each partition, none without a
        known one."""
        group_history = self.setting.group_history
        if is_honest and result.is_accepted:
            self.life.served(result.asked_ns)
        for number in numbers.values():
            if result.is_stored or (result.is_accepted and not is_honest):
                group_history.committed(number)
            elif result.is_stored is not None:
                group_history.refused(number)
        if result.code:
            self.note(result.code)
        return dict.fromkeys(numbers, result.code) if result.is_stored or result.code else {}

    async def finish_work(self) -> None:
        """Wait for pending work on partitions that are being revoked."""
        longest_ms = 2 * self.setting.behaviour.work_ms[1]
        await asyncio.sleep(self.entropy.uniform(0, longest_ms) / 1000)

    # --- processing
    # --------------------------------------------------------------------------------

    async def work(self) -> None:
        """Fetch once from every leader, and process the records."""
        shares: dict[str, dict[Place, int]] = {}
        for place in self.life.claims:
            address = self.client.address_of(place)
            if place in self.positions and address is not None:
                shares.setdefault(address, {})[place] = self.positions[place]
        is_current = sum(map(len, shares.values())) == len(self.life.claims)
        for address, share in shares.items():
            try:
                found = await self.client.fetch(address, share)
            except QuorumlogError as error:
                self.note(error)
                is_current = False
                continue
            for place, part in found.items():
                if part.code:
                    self.note(part.code)
                    is_current = False
                    self._check_fetched(place, part.code)
                elif place in self.life.claims:
                    await self._work_on(place, part.records)
        if not is_current:
            await self.look()
        if not (shares and is_current):
            await asyncio.sleep(RETRY_S / 2)

    def _check_fetched(self, place: Place, code: int) -> None:
        if code == calls.OFFSET_OUT_OF_RANGE:
            self.setting.group_history.found.append(
                f"OffsetOutOfRange: {self.life.name} got a position for {place} at "
                f"{self.positions.get(place)}, which is out of range"
            )

    async def _work_on(self, place: Place, records: list[tuple[int, bytes]]) -> None:
        behaviour, position = self.setting.behaviour, self.positions[place]
        new = [record for record in records if record[0] >= position][: behaviour.records_max]
        if not new:
            return
        claim = self.life.claims[place]
        reader = f"{self.life.name}@{claim.began_ns}"
        self.setting.history.poll(reader, place, new, at=self.now_ns())
        await asyncio.sleep(self.entropy.uniform(*behaviour.work_ms) / 1000)
        end = new[-1][0] + 1
        self.setting.group_history.processed(self.life, place, position, end)
        if self.life.claims.get(place) is claim:
            self.positions[place] = end

    def close(self) -> None:
        """Close every connection."""
        if self.transactions is not None:
            self.transactions.close()
        self.client.close()
        self.calls.close()
