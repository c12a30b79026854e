"""The drawn steps of a run: members of both protocols, commits, transactions, deletions, metadata
changes, and the time between them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from quorumlog.broker.groups.consumer_protocol import (
    ConsumerAssignment,
    ConsumerSubscription,
    encode_assignment,
    encode_subscription,
)
from quorumlog.broker.groups.records import OffsetToCommit, Partitions
from quorumlog.broker.groups.requests import (
    ClassicHeartbeat,
    CommitOffsets,
    CommitTransactionalOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    JoinGroup,
    LeaveGroup,
    Leaver,
    PlainCommit,
    PlainOffsets,
    SyncGroup,
    WriteGroupMarker,
)
from quorumlog.ids import ProducerIdentity, TopicId
from quorumlog.metadata.group_configs import ASSIGNOR, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from quorumlog.metadata.image import TopicImage
from quorumlog.records.control import TransactionMarker
from quorumlog.simulation.entropy import SimEntropy

from .classic import COMPLETING, PREPARING, STABLE, ClassicModel, ModelMember
from .consumer import AWAY, ConsumerModel, ConsumerModelMember
from .options import MEMBERS_A_GROUP, TOPICS, image_of
from .world import CoordinatorWorld

CLASSIC_GROUPS: Final = ("a0", "a1")
CONSUMER_GROUPS: Final = ("k0", "k1")
CHANGING: Final = "x0"
"""A group with members of one protocol or the other, each time after it has become empty."""
MIXED: Final = "y0"
"""A group with members of both protocols."""
INSTANCES: Final = ("s1", "s2")
OFFERS: Final = (("range",), ("range", "sticky"), ("sticky", "range"), ("sticky", "range", "x"))
PATTERNS: Final = ("t|u", ".*", "w.*", "__.*")
PRODUCERS: Final = 4
WRONG: Final = 0.12
"""The fraction of requests with a wrong id, generation or field."""


class DrawnSteps:
    """Draws and makes the steps."""

    def __init__(self, world: CoordinatorWorld, entropy: SimEntropy) -> None:
        self._world = world
        self._entropy = entropy
        self._topics = {name: (count, 0) for name, count in world.options.partitions.items()}
        self._lives = dict.fromkeys(TOPICS, 0)
        self._configs: dict[str, dict[str, str]] = {}
        self._epochs = dict.fromkeys(range(PRODUCERS), 0)
        self._deleted: list[TopicImage] = []  # topics; their offsets are to be deleted
        self._offset = 0
        weights: list[tuple[Callable[[], None], int]] = [
            (self._classic, 60),
            (self._consumer, 50),
            (self._mixed, 60),
            (self._commit, 20),
            (self._fetch, 6),
            (self._describe, 3),
            (self._delete, 3),
            (self._change_topics, 3),
            (self._change_configs, 1),
            (self._move, 2),
            (self._stall, 1),
        ]
        if world.options.is_transactional:
            weights += [(self._commit_in_transaction, 25), (self._end_transaction, 15)]
        self._steps = [step for step, weight in weights for _ in range(weight)]

    def step(self) -> None:
        """Make one step, and let time pass."""
        if self._deleted and self._entropy.chance(0.2):
            self._delete_offsets()
        self._pick(self._steps)()
        entropy, world = self._entropy, self._world
        if entropy.chance(0.4):
            if entropy.chance(0.15):  # to a deadline, or just before it
                wait_ms = max(0, world.next_ms() - world.now_ms - entropy.below(2))
            else:
                wait_ms = entropy.spread(1, 10 * world.options.mean_wait_ms)
            world.pass_time(min(wait_ms, 70_000))

    def end(self) -> None:
        """End all transactions, and let everything expire."""
        world = self._world
        for number in self._epochs:
            self._epochs[number] += 1
            producer = ProducerIdentity(number, self._epochs[number])
            world.ask(WriteGroupMarker(TransactionMarker(producer, 9, True, 2)))
        world.pass_time(400_000)
        world.pass_time(2 * 60_000)

    # --- classic members --------------------------------------------------------------------------

    def _classic(self) -> None:
        group = self._pick((*CLASSIC_GROUPS, CHANGING))
        model = self._world.groups.get(group)
        if not isinstance(model, ConsumerModel) or not model.members:
            self._act_as_classic(group)

    def _act_as_classic(self, group: str) -> None:
        entropy, model = self._entropy, self._world.groups.get(group)
        is_small = isinstance(model, ClassicModel) and len(model.members) < MEMBERS_A_GROUP
        if (
            not isinstance(model, ClassicModel)
            or not model.members
            or entropy.chance(0.2 if is_small else 0.1)
        ):
            self._join_as_new(group, model)
            return
        member = self._pick(list(model.members.values()))
        if model.state == COMPLETING and entropy.chance(0.5):
            member = next((one for one in model.members.values() if one.is_unsynced), member)
        if entropy.chance(0.06):
            self._leave(group, model, member)
        elif entropy.chance(WRONG):
            self._act_wrongly(group, model, member)
        elif member.is_waiting:
            if entropy.chance(0.2):
                self._act_wrongly(group, model, member)
        else:
            self._go_on(group, model, member)

    def _go_on(self, group: str, model: ClassicModel, member: ModelMember) -> None:
        """Send the next request of a member."""
        entropy = self._entropy
        if model.state == PREPARING and entropy.chance(0.8):
            self._rejoin(group, member)
        elif model.state == COMPLETING:
            self._sync(group, model, member, member.member_id, model.generation)
        elif model.state == STABLE and entropy.chance(0.2):
            if entropy.below(2):
                self._rejoin(group, member)
            else:
                self._sync(group, model, member, member.member_id, model.generation)
        else:
            self._beat(group, member, member.member_id, model.generation)

    def _join_as_new(self, group: str, model: Any) -> None:
        entropy = self._entropy
        issued = list(model.issued) if isinstance(model, ClassicModel) else []
        if issued and entropy.chance(0.7):
            self._join(group, self._pick(issued), None)
        elif entropy.chance(0.35):
            self._join(group, "", self._pick(INSTANCES))
        else:
            self._join(group, "", None)

    def _rejoin(self, group: str, member: ModelMember) -> None:
        if self._entropy.chance(0.6):
            self._join(group, member.member_id, member.instance_id, member)
        elif member.instance_id is not None and self._entropy.chance(0.5):
            self._join(group, "", member.instance_id, member)
        else:
            self._join(group, member.member_id, member.instance_id)

    def _join(
        self, group: str, member_id: str, instance_id: str | None, like: ModelMember | None = None
    ) -> None:
        """Join; `like`: with the protocols of a member."""
        entropy = self._entropy
        content = self._subscription()
        protocols = tuple((name, content) for name in self._pick(OFFERS))
        if like is not None:
            protocols = tuple(like.protocols.items())
        elif entropy.chance(0.05):
            protocols = (*protocols, (protocols[0][0], b"other"))
        elif entropy.chance(0.03):
            protocols = tuple((name, b"malformed") for name, _ in protocols)
        elif entropy.chance(0.03):
            protocols = ()
        kinds = ("consumer",) * 20 + ("connect", "")
        self._world.ask(
            JoinGroup(
                group=group,
                client=self._pick(("alice", "bob", "")),
                member_id=member_id,
                instance_id=instance_id,
                client_id=self._pick(("c1", "c2")),
                client_host="h",
                session_timeout_ms=self._pick((1_000, 6_000, 6_000, 30_000, 30_001, 999)[:6])
                if entropy.chance(0.3)
                else 6_000,
                rebalance_timeout_ms=self._pick((2_000, 8_000, 20_000, -1, 0)),
                protocol_type=self._pick(kinds),
                protocols=protocols,
                takes_member_id_first=entropy.chance(0.5),
                can_skip_assignment=entropy.chance(0.5),
                describes=_hides_u if group == MIXED and entropy.chance(0.05) else None,
            )
        )

    def _subscription(self) -> bytes:
        topics = self._some(TOPICS[:3])
        owned = {"t": (0,)} if self._entropy.chance(0.3) else {}
        return encode_subscription(
            ConsumerSubscription(
                version=self._entropy.below(4), topics=tuple(topics), owned=owned, generation=1
            )
        )

    def _sync(
        self, group: str, model: ClassicModel, member: ModelMember, member_id: str, generation: int
    ) -> None:
        entropy = self._entropy
        shares = {}
        if member_id == model.leader or entropy.chance(0.1):
            shares = self._shares(list(model.members))
        says = entropy.chance(0.5)
        self._world.ask(
            SyncGroup(
                group=group,
                client="alice",
                member_id=member_id,
                instance_id=member.instance_id,
                generation=generation,
                protocol_type=model.protocol_type if says else None,
                protocol=(model.protocol if entropy.chance(0.95) else "y") if says else None,
                assignments=shares,
            )
        )

    def _shares(self, members: list[str]) -> dict[str, bytes]:
        """Return an assignment by a leader: mostly of each partition to one member."""
        entropy = self._entropy
        topics: list[tuple[str, int]] = [(name, count) for name, (count, _) in self._topics.items()]
        if entropy.chance(0.1):
            topics.append(("gone", 1))
        given: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in members}
        for topic, count in topics:
            for index in range(count):
                for _ in range(2 if entropy.chance(0.05) else 1):
                    own = given[self._pick(members)]
                    own[topic] = (*own.get(topic, ()), index)
        note = str(entropy.below(1_000)).encode()
        return {
            name: encode_assignment(ConsumerAssignment(version=1, partitions=own, user_data=note))
            if entropy.chance(0.97)
            else self._pick((b"", b"malformed"))
            for name, own in given.items()
        }

    def _beat(self, group: str, member: ModelMember, member_id: str, generation: int) -> None:
        self._world.ask(
            ClassicHeartbeat(
                group=group,
                member_id=member_id,
                instance_id=member.instance_id,
                generation=generation,
            )
        )

    def _leave(self, group: str, model: ClassicModel, member: ModelMember) -> None:
        leavers = [self._leaver(member)]
        if self._entropy.chance(0.3):
            leavers.append(self._leaver(self._pick(list(model.members.values()))))
        if model.issued and self._entropy.chance(0.5):
            leavers.append(Leaver(member_id=self._pick(list(model.issued))))
        if self._entropy.chance(0.2):
            leavers.append(Leaver(member_id=self._pick(("none", ""))))
        if self._entropy.chance(0.1):
            leavers = leavers[1:]
        self._world.ask(LeaveGroup(group=group, leavers=tuple(leavers)))

    def _leaver(self, member: ModelMember) -> Leaver:
        is_named = member.instance_id is not None and self._entropy.chance(0.5)
        return Leaver(
            member_id="" if is_named else member.member_id,
            instance_id=member.instance_id if self._entropy.chance(0.9) else "s1",
        )

    def _act_wrongly(self, group: str, model: ClassicModel, member: ModelMember) -> None:
        """Send a request with a wrong id or generation, or repeat a waiting one."""
        entropy = self._entropy
        member_id = self._pick((member.member_id, member.member_id, "none", ""))
        generation = model.generation + self._pick((-1, 0, 0, 1))
        if entropy.chance(0.3):
            instance_id = self._pick((None, *INSTANCES))
            self._join(group, member_id, instance_id, member)
        elif entropy.chance(0.5):
            self._sync(group, model, member, member_id, generation)
        else:
            self._beat(group, member, member_id, generation)

    # --- members of KIP-848 -----------------------------------------------------------------------

    def _consumer(self) -> None:
        group = self._pick((*CONSUMER_GROUPS, CHANGING))
        model = self._world.groups.get(group)
        if not isinstance(model, ClassicModel) or not model.members:
            self._act_as_consumer(group)

    def _act_as_consumer(self, group: str) -> None:
        entropy, model = self._entropy, self._world.groups.get(group)
        is_small = not isinstance(model, ConsumerModel) or len(model.members) < MEMBERS_A_GROUP
        if (
            not isinstance(model, ConsumerModel)
            or not model.members
            or (is_small and entropy.chance(0.12))
        ):
            self._heartbeat(group, self._pick(("", f"m{entropy.below(20)}")), 0, None)
            return
        member = self._pick(list(model.members.values()))
        if member.epoch == AWAY or entropy.chance(0.03):
            self._heartbeat(group, self._pick((member.member_id, "m1", "")), 0, member)
        elif entropy.chance(0.07):
            epochs = (-1, -1, AWAY) if member.instance_id else (-1, -1, -1, AWAY)
            self._heartbeat(group, member.member_id, self._pick(epochs), member)
        elif entropy.chance(WRONG):
            epoch = self._pick(
                (member.previous_epoch, member.previous_epoch, member.epoch + 1, -3, member.epoch)
            )
            member_id = self._pick((member.member_id, member.member_id, "none", ""))
            self._heartbeat(group, member_id, epoch, member)
        else:
            self._heartbeat(group, member.member_id, member.epoch, member)

    # --- both protocols ---------------------------------------------------------------------------

    def _mixed(self) -> None:
        """Send a request of either protocol to the group with members of both."""
        entropy, group = self._entropy, MIXED
        model = self._world.groups.get(group)
        if entropy.chance(0.4 if isinstance(model, ConsumerModel) else 0.15):
            self._act_as_consumer(group)
        elif isinstance(model, ConsumerModel) and model.members:
            self._act_beside_consumers(group, model)
        else:
            self._act_as_classic(group)

    def _act_beside_consumers(self, group: str, model: ConsumerModel) -> None:
        """Send a request of a classic member of a group of KIP-848."""
        entropy = self._entropy
        members = [each for each in model.members.values() if each.classic is not None]
        if not members or (len(model.members) < MEMBERS_A_GROUP and entropy.chance(0.15)):
            instance_id = self._pick(INSTANCES) if entropy.chance(0.35) else None
            self._join(group, self._pick(("", "", "own")), instance_id)
            return
        member = self._pick(members)
        member_id, epoch = member.member_id, member.epoch
        if entropy.chance(WRONG):
            member_id, epoch = self._pick((member_id, "none")), epoch + self._pick((-1, 1))
        if entropy.chance(0.08):
            leaver = Leaver(member_id=member_id, instance_id=member.instance_id)
            if member.instance_id is not None and entropy.below(2):
                leaver = Leaver(member_id="", instance_id=member.instance_id)
            second = Leaver(member_id=self._pick(list(model.members)))
            leavers = (leaver, second) if entropy.chance(0.3) else (leaver,)
            self._world.ask(LeaveGroup(group=group, leavers=leavers))
        elif entropy.chance(0.4):
            self._rejoin_beside(group, member, member_id)
        elif entropy.chance(0.5):
            self._world.ask(
                SyncGroup(
                    group=group,
                    member_id=member_id,
                    instance_id=member.instance_id,
                    generation=epoch,
                    protocol_type="consumer" if entropy.below(2) else None,
                    protocol=self._pick((None, None, None, "sticky")),
                    describes=_hides_u if entropy.chance(0.1) else None,
                )
            )
        else:
            self._world.ask(
                ClassicHeartbeat(
                    group=group,
                    member_id=member_id,
                    instance_id=member.instance_id,
                    generation=epoch,
                )
            )

    def _rejoin_beside(self, group: str, member: ConsumerModelMember, member_id: str) -> None:
        """Join again, mostly with true claims."""
        entropy, world = self._entropy, self._world
        assert member.classic is not None, "no classic member"
        held = member.assigned | (member.revoking if entropy.chance(0.3) else frozenset())
        owned: dict[str, tuple[int, ...]] = {}
        for topic_id, index in sorted(held):
            topic = world.image.topic_of_id(topic_id)
            if topic is not None:
                owned[topic.name] = (*owned.get(topic.name, ()), index)
        if entropy.chance(0.1):
            owned = {"t": (0, 1), "gone": (1,)}
        topics = sorted(member.topics) if entropy.chance(0.7) else self._some(TOPICS[:3])
        content = encode_subscription(
            ConsumerSubscription(
                version=3,
                topics=tuple(topics),
                owned={} if entropy.chance(0.2) else owned,
                generation=member.epoch,
                rack=self._pick((None, None, "r1")),
            )
        )
        is_back = member.instance_id is not None and entropy.chance(0.3)
        self._world.ask(
            JoinGroup(
                group=group,
                client="alice",
                member_id="" if is_back else member_id,
                instance_id=member.instance_id,
                client_id="c1",
                client_host="h",
                session_timeout_ms=6_000,
                rebalance_timeout_ms=self._pick((2_000, 8_000, -1)),
                protocol_type="consumer",
                protocols=tuple((name, content) for name, _ in member.classic.protocols),
                takes_member_id_first=True,
                describes=_hides_u if entropy.chance(0.1) else None,
            )
        )

    def _heartbeat(
        self, group: str, member_id: str, epoch: int, member: ConsumerModelMember | None
    ) -> None:
        entropy = self._entropy
        is_join = epoch == 0 and entropy.chance(0.97)
        says = is_join or entropy.chance(0.06)
        topics = frozenset(self._some(TOPICS[:3])) if says else None
        pattern = None
        if entropy.chance(0.3 if is_join else 0.02):
            pattern = self._pick((*PATTERNS, *PATTERNS, "", "["))
        instance_id = None if member is None else member.instance_id
        if member is None and entropy.chance(0.35):
            instance_id = self._pick(INSTANCES)
        if entropy.chance(0.04):
            instance_id = self._pick((None, *INSTANCES, ""))
        elif member is not None and epoch not in (0, AWAY) and entropy.chance(0.6):
            instance_id = None
        hides = entropy.chance(0.2)
        rack = self._pick(("r1", "r2", "")) if entropy.chance(0.05) else None
        self._world.ask(
            ConsumerHeartbeat(
                group=group,
                client=self._pick(("alice", "bob", "")),
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                rack=rack,
                client_id="c1" if entropy.chance(0.97) else "c2",
                client_host="h" if entropy.chance(0.98) else "i",
                rebalance_timeout_ms=self._pick((2_000, 8_000))
                if is_join or entropy.chance(0.1)
                else -1,
                topics=topics,
                pattern=pattern,
                assignor=self._pick(("uniform", "range", "range", "none"))
                if entropy.chance(0.06)
                else None,
                owned=self._owned(member, is_join=is_join),
                describes=_hides_u if hides else None,
            )
        )

    def _owned(self, member: ConsumerModelMember | None, *, is_join: bool) -> Partitions | None:
        """Return the partitions that a request reports: mostly the assigned ones."""
        entropy = self._entropy
        if is_join:
            return {} if entropy.chance(0.97) else {TopicId(b"t.0".ljust(16, b"-")): frozenset({0})}
        if member is None or entropy.chance(0.4):
            return None
        held = member.assigned | (member.revoking if entropy.chance(0.4) else frozenset())
        if entropy.chance(0.1):
            held = held | member.target
        found: dict[TopicId, frozenset[int]] = {}
        for topic, index in sorted(held):
            found[topic] = found.get(topic, frozenset()) | {index}
        return found

    # --- offsets ----------------------------------------------------------------------------------

    def _commit(self) -> None:
        group, member_id, instance_id, generation = self._committer()
        if self._entropy.chance(0.5):
            topics = tuple(filter(None, map(self._plain_offsets, self._some(TOPICS[:3]))))
            if topics:
                commit = PlainCommit(group, member_id, instance_id, generation, topics)
                if self._world.commit_at_once(commit, is_stored=self._entropy.chance(0.9)):
                    return
        retention_ms, offsets = -1, self._offsets()
        if self._entropy.chance(0.2):  # versions with a retention time have no other field
            retention_ms = self._entropy.spread(1, 100_000)
            offsets = tuple(replace(one, leader_epoch=-1, topic_id=None) for one in offsets)
        self._world.ask(
            CommitOffsets(
                group=group,
                member_id=member_id,
                instance_id=instance_id,
                generation=generation,
                retention_ms=retention_ms,
                offsets=offsets,
            )
        )

    def _plain_offsets(self, topic: str) -> PlainOffsets | None:
        indices = tuple(self._some(range(7 if self._entropy.chance(0.1) else 2)))
        offsets = tuple(self._next() for _ in indices)
        return PlainOffsets(topic, indices, offsets, (-1,) * len(indices)) if indices else None

    def _committer(self) -> tuple[str, str, str | None, int]:
        """Return a group, and mostly the ids of a member."""
        entropy = self._entropy
        group = self._pick((*CLASSIC_GROUPS, *CONSUMER_GROUPS, CHANGING, MIXED, "o1", "o2"))
        model = self._world.groups.get(group)
        if model is None or not model.members or entropy.chance(0.05):
            generation = self._pick((-1, -1, -1, -1, -1, 0))
            return group, self._pick(("",) * 9 + ("none",)), None, generation
        member: Any = self._pick(list(model.members.values()))
        epoch = model.generation if isinstance(model, ClassicModel) else member.epoch
        if entropy.chance(0.15):
            epoch += self._pick((-1, 1))
        instance_id = member.instance_id if entropy.chance(0.5) else None
        if entropy.chance(0.05):
            instance_id = self._pick(INSTANCES)
        member_id = member.member_id if entropy.chance(0.93) else self._pick(("none", ""))
        return group, member_id, instance_id, epoch

    def _offsets(self) -> tuple[OffsetToCommit, ...]:
        entropy = self._entropy
        found = []
        for _ in range(entropy.below(4)):
            name = self._pick(TOPICS[:3])
            topic_id = None
            if entropy.chance(0.2):
                topic = self._world.image.topic(name)
                topic_id = TopicId(b"old".ljust(16, b"-")) if topic is None else topic.id
                if entropy.chance(0.2):
                    topic_id = TopicId(b"old".ljust(16, b"-"))
            found.append(
                OffsetToCommit(
                    topic=name,
                    partition=entropy.below(3),
                    offset=self._next(),
                    leader_epoch=entropy.below(3) - 1,
                    note=self._pick(("", "", "note", "too long", "too long!")),
                    topic_id=topic_id,
                )
            )
        return tuple(found)

    def _next(self) -> int:
        self._offset += 1
        return self._offset

    def _fetch(self) -> None:
        entropy = self._entropy
        group, member_id, _, epoch = self._committer()
        is_member = entropy.chance(0.4)
        places = [(self._pick(TOPICS[:3]), entropy.below(3)) for _ in range(entropy.below(3))]
        self._world.ask(
            FetchOffsets(
                group=group,
                partitions=tuple(places) if entropy.chance(0.5) else None,
                member_id=member_id if is_member else "",
                member_epoch=epoch if is_member else -1,
                require_stable=entropy.chance(0.5),
            )
        )

    def _describe(self) -> None:
        group = self._pick((*CLASSIC_GROUPS, *CONSUMER_GROUPS, CHANGING, MIXED, "o1"))
        self._world.ask(DescribeGroup(group=group))

    def _delete(self) -> None:
        group = self._pick((*CLASSIC_GROUPS, *CONSUMER_GROUPS, CHANGING, MIXED, "o1", "o2"))
        if self._entropy.chance(0.5):
            self._world.ask(DeleteGroup(group=group))
            return
        places = [(self._pick(TOPICS[:3]), self._entropy.below(3)) for _ in range(2)]
        self._world.ask(DeleteOffsets(group=group, partitions=tuple(places)))

    # --- transactions -----------------------------------------------------------------------------

    def _commit_in_transaction(self) -> None:
        entropy, world = self._entropy, self._world
        number = entropy.below(PRODUCERS)
        epoch = max(0, self._epochs[number] - (1 if entropy.chance(0.1) else 0))
        producer = ProducerIdentity(number, epoch)
        name = self._pick(("x", "x", "x", "y"))
        if entropy.chance(0.7):
            world.verify(producer, name)
        if entropy.chance(0.3):
            return  # the answer comes later
        begun = world.guards.get((producer, name))
        group, member_id, instance_id, generation = self._committer()
        is_old = entropy.chance(0.4)  # of an older producer, without a member
        world.ask(
            CommitTransactionalOffsets(
                group=group,
                member_id="" if is_old else member_id,
                instance_id=None if is_old else instance_id,
                generation=-1 if is_old else generation,
                offsets=self._offsets(),
                transactional_id=name,
                producer=producer,
                guard=None if begun is None or entropy.chance(0.05) else begun[0],
            )
        )

    def _end_transaction(self) -> None:
        entropy = self._entropy
        number, version = entropy.below(PRODUCERS), self._pick((0, 2, 2))
        self._epochs[number] += self._pick((0, 1, 1)) if version else 0
        epoch = max(0, self._epochs[number] - (1 if entropy.chance(0.1) else 0))
        marker = TransactionMarker(
            ProducerIdentity(number, epoch),
            0 if entropy.chance(0.05) else 1,
            entropy.chance(0.7),
            version,
        )
        self._world.ask(WriteGroupMarker(marker))
        if entropy.chance(0.2):
            self._world.ask(WriteGroupMarker(marker))

    # --- metadata and coordinators ----------------------------------------------------------------

    def _change_topics(self) -> None:
        entropy, world = self._entropy, self._world
        name = self._pick(TOPICS[:3])
        deleted: list[TopicImage] = []
        topic = world.image.topic(name)
        if topic is not None and entropy.chance(0.5):
            deleted.append(topic)
            del self._topics[name]
            self._lives[name] += 1
        if not deleted or entropy.chance(0.4):
            least = 1 if name not in self._topics else self._topics[name][0]
            self._topics[name] = (least + entropy.below(4), self._lives[name])
        self._change(deleted)

    def _change_configs(self) -> None:
        group = self._pick(CONSUMER_GROUPS)
        configs = {
            SESSION_TIMEOUT: self._pick(("6000", "9000", "")),
            HEARTBEAT_INTERVAL: self._pick(("300", "")),
            ASSIGNOR: self._pick(("range", "uniform", "")),
        }
        self._configs[group] = {name: value for name, value in configs.items() if value}
        self._change([])

    def _change(self, deleted: list[TopicImage]) -> None:
        """Change the metadata. The request to delete offsets follows, mostly at once; sometimes the
        coordinator changes first, and there is none."""
        world, entropy = self._world, self._entropy
        world.change(image_of(self._topics, self._configs, world.image.offset + 1))
        self._deleted += deleted
        if entropy.chance(0.1):
            self._deleted.clear()
            world.move()
        elif entropy.chance(0.6):
            self._delete_offsets()

    def _delete_offsets(self) -> None:
        self._world.delete_offsets_of(self._deleted)
        self._deleted.clear()

    def _move(self) -> None:
        self._world.move()

    def _stall(self) -> None:
        self._world.stall(self._entropy.spread(100, 20_000))

    # --- draws ------------------------------------------------------------------------------------

    def _pick(self, items: Any) -> Any:
        return items[self._entropy.below(len(items))]

    def _some(self, items: Any) -> list[Any]:
        return [each for each in items if self._entropy.chance(0.6)]


def _hides_u(name: str) -> bool:
    return name != "u"
