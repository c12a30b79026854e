"""A KIP-848 group with its clock, its cluster and its callers, driven step by step.

Every step checks the invariants of the group, and that the log replays to its state.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from immutables import Map

from quorumlog.broker.coordinator.decision import Answered, Failed, Ticket
from quorumlog.broker.groups.classic_group import ClassicGroupMachine
from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.consumer import ConsumerGroupMachine, upgrade
from quorumlog.broker.groups.consumer.state import GroupState
from quorumlog.broker.groups.consumer_protocol import (
    ConsumerSubscription,
    decode_assignment,
    encode_subscription,
)
from quorumlog.broker.groups.records import (
    ClassicGroup,
    ClassicGroupForgotten,
    GroupDecision,
    GroupRecord,
    Partitions,
)
from quorumlog.broker.groups.requests import (
    ClassicHeartbeat,
    CommitOffsets,
    ConsumerBeat,
    ConsumerHeartbeat,
    FetchOffsets,
    JoinGroup,
    LeaveGroup,
    Leaver,
    SyncGroup,
)
from quorumlog.errors import QuorumlogError
from quorumlog.ids import Epoch, NodeId, Offset, TopicId
from quorumlog.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage

E = TypeVar("E", bound=QuorumlogError)

START_MS = 1_000_000
SESSION_MS = 45_000
REBALANCE_MS = 60_000
CLASSIC_SESSION_MS = 10_000
SMALL = 20
"""A group up to this size is described before and after each heartbeat."""
PARTITION = PartitionImage(
    replicas=(NodeId(1),),
    isr=(NodeId(1),),
    leader=NodeId(1),
    leader_epoch=Epoch(0),
    partition_epoch=0,
)


def topic_id(name: str, life: int = 0) -> TopicId:
    """Return the id of one incarnation of a topic."""
    return TopicId(f"{name}.{life}".encode().ljust(16, b"-"))


def cluster(topics: Mapping[str, int], *, lives: Mapping[str, int] | None = None) -> MetadataImage:
    """Return an image with topics of so many partitions."""
    images = [
        TopicImage(
            id=topic_id(name, (lives or {}).get(name, 0)),
            name=name,
            partitions=Map({index: PARTITION for index in range(count)}),
            configs=Map(),
        )
        for name, count in topics.items()
    ]
    return replace(
        EMPTY_IMAGE,
        offset=Offset(len(topics)),
        topics_by_id=Map({each.id: each for each in images}),
        topics_by_name=Map({each.name: each.id for each in images}),
    )


def of(**topics: set[int]) -> Partitions:
    """Return partitions of topics in their first incarnation."""
    return {topic_id(name): frozenset(indices) for name, indices in topics.items() if indices}


def subscription(
    *topics: str, version: int = 3, owned: Mapping[str, tuple[int, ...]] | None = None
) -> bytes:
    """Return the subscription of a classic consumer."""
    return encode_subscription(
        ConsumerSubscription(version=version, topics=topics, owned=owned or {})
    )


class Play:
    """One group, `g`."""

    def __init__(self, topics: Mapping[str, int] | None = None, **config: Any) -> None:
        self.config = GroupConfig(**config)
        self.image = cluster({"t": 4} if topics is None else topics)
        self.now_ms = START_MS
        self.machine = ConsumerGroupMachine("g", self.config, self.draw)
        self.log: list[GroupRecord] = []
        self.read = GroupState("g")  # the replica that replays the log
        self.last: tuple[GroupRecord, ...] = ()  # records of the last step
        self._drawn = 0
        self._ticket = 0

    def draw(self) -> str:
        self._drawn += 1
        return f"drawn-{self._drawn}"

    def ticket(self) -> Ticket:
        self._ticket += 1
        return Ticket(self._ticket)

    # --- steps ------------------------------------------------------------------------------------

    def took(self, decision: GroupDecision) -> Any:
        """Apply the records of a decision. Return the outcome or raise the error of the last
        ticket."""
        self.last = decision.records
        self.log += decision.records
        for record in decision.records:
            if not isinstance(record, ClassicGroup | ClassicGroupForgotten):
                self.read.replay(record)
        if self.machine.downgraded is None:
            assert self.read == self.machine.state
        self.machine.check_invariants()
        for reply in decision.replies:
            if reply.ticket == self._ticket:
                return reply.outcome if isinstance(reply, Answered) else reply.error
        return None

    def ask(self, member_id: str, member_epoch: int, **said: Any) -> Any:
        """Send a heartbeat with these fields."""
        said = {"client_id": "c", "client_host": "h"} | said
        request = ConsumerHeartbeat(
            group="g", member_id=member_id, member_epoch=member_epoch, **said
        )
        renewed = self.machine.renew_session(request, self.image, self.now_ms)
        due_ms = self.machine.deadline_ms()
        is_small = self.machine.member_count <= SMALL
        described = self.machine.describe(self.image, self.now_ms) if is_small else None
        decision = self.machine.heartbeat(self.ticket(), request, self.image, self.now_ms)
        answer = self.took(decision)
        if renewed is not None:  # the heartbeat has no further effect
            assert answer == renewed
            assert not decision.records
            assert self.machine.deadline_ms() == due_ms
            assert not is_small or self.machine.describe(self.image, self.now_ms) == described
        return answer

    def join(self, member_id: str, *topics: str, **said: Any) -> ConsumerBeat:
        """Let a member join, by default for topic `t`."""
        said = {
            "topics": frozenset(topics or ("t",)),
            "rebalance_timeout_ms": REBALANCE_MS,
            "owned": {},
        } | said
        return self.beaten(self.ask(member_id, 0, **said))

    def beat(self, member_id: str, **said: Any) -> ConsumerBeat:
        """Send a heartbeat of a member with its own epoch."""
        return self.beaten(self.ask(member_id, self.epoch(member_id), **said))

    def beaten(self, answer: Any) -> ConsumerBeat:
        assert isinstance(answer, ConsumerBeat), answer
        return answer

    def refused(self, answer: Any, error: type[E]) -> E:
        """Check that the response is this refusal."""
        assert isinstance(answer, error), answer
        return answer

    def wait(self, ms: int) -> None:
        """Let time pass and run what is due."""
        until_ms = self.now_ms + ms
        while (due_ms := self.machine.deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.took(self.machine.expire(self.now_ms, self.image))
        self.now_ms = until_ms

    def settle(self, *members: str) -> None:
        """Send heartbeats of members that revoke at once, until nothing changes."""
        for _ in range(10):
            quiet = True
            for member_id in members:
                self.beat(member_id, owned=self.owned(member_id))
                quiet = quiet and not self.last
            if quiet:
                return
        raise AssertionError(f"not settled: {self.state_name}")

    # --- the classic protocol
    # -----------------------------------------------------------------------

    def classic_join(self, member_id: str = "", **said: Any) -> Any:
        """Send a classic JoinGroup with these fields."""
        request = self.classic_request(member_id, **said)
        return self.took(self.machine.join(self.ticket(), request, self.image, self.now_ms))

    def classic_request(self, member_id: str = "", **said: Any) -> JoinGroup:
        protocols = said.pop("protocols", (("range", subscription("t")),))
        whole: dict[str, Any] = {
            "client_id": "c",
            "client_host": "h",
            "session_timeout_ms": CLASSIC_SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "takes_member_id_first": False,
        } | said
        return JoinGroup(group="g", member_id=member_id, protocols=protocols, **whole)

    def sync(self, member_id: str, generation: int, **said: Any) -> Any:
        request = SyncGroup(group="g", member_id=member_id, generation=generation, **said)
        return self.took(self.machine.sync(self.ticket(), request, self.image, self.now_ms))

    def synced(self, member_id: str) -> dict[str, tuple[int, ...]]:
        """Return the assignment of a classic member."""
        answer = self.sync(member_id, self.epoch(member_id))
        return dict(decode_assignment(answer.assignment).partitions)

    def classic_beat(self, member_id: str, generation: int | None = None) -> Any:
        epoch = self.epoch(member_id) if generation is None else generation
        request = ClassicHeartbeat(group="g", member_id=member_id, generation=epoch)
        decision = self.machine.classic_heartbeat(self.ticket(), request, self.image, self.now_ms)
        return self.took(decision)

    def classic_leave(self, *leavers: Leaver) -> Any:
        request = LeaveGroup(group="g", leavers=leavers)
        return self.took(self.machine.leave(self.ticket(), request, self.image, self.now_ms))

    def upgraded(self, classic: ClassicGroupMachine, member_id: str, **said: Any) -> Any:
        """Send a KIP-848 heartbeat to a classic group, by default the group of this play."""
        request = ConsumerHeartbeat(
            group="g",
            member_id=member_id,
            member_epoch=0,
            client_id="c",
            client_host="h",
            rebalance_timeout_ms=REBALANCE_MS,
            topics=frozenset({"t"}),
            **said,
        )
        machine, decision = upgrade(
            classic,
            self.ticket(),
            request,
            self.image,
            config=self.config,
            draw=self.draw,
            now_ms=self.now_ms,
        )
        self.decision = decision
        if machine is not None:
            self.machine = machine
        return self.took(decision)

    # --- observation ------------------------------------------------------------------------------

    def epoch(self, member_id: str) -> int:
        return self.machine.state.current_of(member_id).epoch

    def owned(self, member_id: str) -> Partitions:
        """Return the partitions that a member was assigned."""
        return self.machine.state.current_of(member_id).assigned

    @property
    def state_name(self) -> str:
        return self.machine.describe(self.image).state

    def commit_error(
        self, member_id: str, epoch: int, *, instance_id: str | None = None
    ) -> QuorumlogError | None:
        request = CommitOffsets(
            group="g", member_id=member_id, instance_id=instance_id, generation=epoch, offsets=()
        )
        try:
            self.machine.check_commit(request)
        except QuorumlogError as error:
            return error
        return None

    def fetch_error(self, member_id: str, epoch: int) -> QuorumlogError | None:
        try:
            self.machine.check_fetch(
                FetchOffsets(group="g", member_id=member_id, member_epoch=epoch)
            )
        except QuorumlogError as error:
            return error
        return None


def failed(decision: GroupDecision) -> list[QuorumlogError]:
    """Return the refusals of a decision."""
    return [reply.error for reply in decision.replies if isinstance(reply, Failed)]
