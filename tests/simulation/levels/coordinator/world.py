"""One coordinator's shard without its shell, its log, and the model that predicts what it does.

Every reply must be the predicted one, and every description and list too. A change of the
coordinator loads the log into a new shard, after which the predictions go on. Besides:

- `Deadline`: the shard asks to be called at each time at which something ends.
- `Repeated`: no stored record repeats the stored one of its key.
- `Unchecked`: a request adds no more bytes than its client was checked for, and each is charged.
- `AtOnce`: the usual heartbeat or commit of a stable member needs no decision.
- The shard's own invariants.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from quorumlog.broker.coordinator.decision import UNDECIDED, Answered, ShardDecision, Ticket
from quorumlog.broker.coordinator.shell.loader import RecordWindow
from quorumlog.broker.groups.formats import decode, encode, encode_plain_commit
from quorumlog.broker.groups.records import (
    ClassicGroupForgotten,
    OffsetCommitted,
    OffsetForgotten,
    OffsetToCommit,
    TargetEpoch,
)
from quorumlog.broker.groups.requests import (
    ClassicHeartbeat,
    CommitOffsets,
    CommitTransactionalOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    GroupRequest,
    JoinGroup,
    LeaveGroup,
    PlainCommit,
    SyncGroup,
    WriteGroupMarker,
)
from quorumlog.broker.groups.shard import GroupShard
from quorumlog.broker.groups.transactional_producers import VerificationGuard
from quorumlog.errors import GroupFull, InvalidProducerEpoch
from quorumlog.ids import ProducerIdentity
from quorumlog.metadata.image import MetadataImage, TopicImage
from quorumlog.records import Record, decode_all
from quorumlog.records.control import TransactionMarker
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.storage.producer_state import ProducerLimits

from ...checkers.violation import Violation
from . import mixed
from .assignment import Shares
from .classic import STABLE, ClassicModel, Refused
from .consumer import ConsumerModel
from .offsets import ModelOffset, OffsetsModel
from .options import CoordinatorOptions
from .replies import Replies, plain

CALLS_MAX: Final = 50
"""Calls of `expire` at one time after which the deadline must be later."""
CLASSIC: Final = (JoinGroup, SyncGroup, ClassicHeartbeat, LeaveGroup)
REPEATABLE: Final = OffsetCommitted | OffsetForgotten | ClassicGroupForgotten
"""Records that may repeat the stored one: a commit of the same offset, and tombstones of what is in
a transaction or was never stored."""
GroupModel = ClassicModel | ConsumerModel
Stored = tuple[Record, ProducerIdentity | None, int] | TransactionMarker
"""A record with its producer and its time, or a marker."""


class CoordinatorWorld:
    """The shard and its surroundings; steps raise Violation."""

    def __init__(
        self, entropy: SimEntropy, options: CoordinatorOptions, record: Callable[[str, str], None]
    ) -> None:
        self.entropy = entropy
        self.options = options
        self.config = options.config
        self.now_ms = options.start_ms
        self.image = options.image()
        self.limits = ProducerLimits(
            expiration_ms=options.producer_expiration_ms, producers_max=options.producers_max
        )
        self.log: list[Stored] = []
        self.stored: dict[bytes, bytes | None] = {}  # values by key, of plain records
        self.groups: dict[str, GroupModel] = {}
        self.offsets = OffsetsModel(self.config, self.limits)
        self.counts: Counter[str] = Counter()
        self.guards: dict[tuple[ProducerIdentity, str], tuple[VerificationGuard, int]] = {}
        self._record = record
        self._drawn = 0
        self._tickets = 0
        self._expected: Replies = {}
        self._charged = 0
        self._seen: dict[str, MetadataImage] = {}  # by group, at its last decided heartbeat
        self._configs: object = None  # of groups, at the last decision
        self.check_ms = 0
        self.shard = self._load()

    # --- the coordinator --------------------------------------------------------------------------

    def _load(self) -> GroupShard:
        shard = GroupShard(self.config, self._draw, self.limits, self._charge)
        for entry in self._window():
            if isinstance(entry, TransactionMarker):
                shard.replay_marker(entry)
                continue
            record, producer, at_ms = entry
            found = decode(record.key, record.value)
            assert found is not None, f"{record} is not read"
            if isinstance(found, TargetEpoch):
                found = replace(found, stored_ms=at_ms)
            shard.replay(found, producer)
        self.shard = shard
        self._seen.clear()
        self._configs = self.image.group_configs
        self.check_ms = self.now_ms + self.config.offsets_check_ms
        self._settle(shard.loaded(self.image, self.now_ms))
        return shard

    def _window(self) -> list[Stored]:
        """Return the log as a load reads it: mostly without replaced records; sometimes these are
        removed from the log too."""
        size = (1, 10, 1_000)[self.entropy.below(3)]
        times = {id(entry[0]): entry[2] for entry in self.log if not _is_marker(entry)}
        found: list[Stored] = []
        for first in range(0, len(self.log), size):
            window = RecordWindow()
            window.add(
                entry if isinstance(entry, TransactionMarker) else (entry[0], entry[1])
                for entry in self.log[first : first + size]
            )
            found += [
                entry
                if isinstance(entry, TransactionMarker)
                else (entry[0], entry[1], times[id(entry[0])])
                for entry in window.take()
            ]
        if self.entropy.chance(0.5):
            self.log = found
        return found

    def _draw(self) -> str:
        self._drawn += 1
        return f"drawn-{self._drawn}"

    def _charge(self, client: str, group: str, growth: int) -> None:
        self._charged += growth

    def move(self) -> None:
        """Another coordinator loads the log."""
        self._note("move")
        self.counts["moves"] += 1
        self._expected.clear()
        self.offsets.loaded(
            self.now_ms,
            (entry if isinstance(entry, TransactionMarker) else entry[1] for entry in self.log),
        )
        for group, model in list(self.groups.items()):
            model.config = self.config_of(group)
            loaded = model.loaded(self.now_ms)
            self.groups[group] = loaded
            is_stored = isinstance(loaded, ConsumerModel) or loaded.stored is not None
            if not is_stored and group not in self.offsets.groups():
                del self.groups[group]
        self._load()
        self.offsets.restore(self._pending_at)
        self._compare_all()

    def _pending_at(self, place: tuple[str, str, int]) -> set[int]:
        return {record.offset for record in self.shard._offsets._pending.at(*place)}

    def config_of(self, group: str) -> Any:
        """Return the settings of a group."""
        return self.config.of_group(self.image.group_configs.get(group, {}))

    # --- requests ---------------------------------------------------------------------------------

    def ask(self, request: GroupRequest[Any] | WriteGroupMarker) -> None:
        """Send a request, and compare the replies."""
        self._tickets += 1
        ticket = Ticket(self._tickets)
        self._note(type(request).__name__, request.key)
        self.counts[type(request).__name__] += 1
        if isinstance(request, WriteGroupMarker):
            decision: Any = self.shard.handle(ticket, request, self.image, self.now_ms)
            self._configure()
            self._expect_marker(ticket, request.marker, decision)
            self._settle(decision)
            return
        is_heartbeat = isinstance(request, ClassicHeartbeat | ConsumerHeartbeat)
        if is_heartbeat and self.entropy.below(2) and self._renew(ticket, request):
            return
        checked: list[int] = []
        is_tight = self.entropy.chance(0.03)
        if isinstance(request, JoinGroup | SyncGroup | ConsumerHeartbeat):
            request.check_growth = partial(_check_growth, checked, is_tight)
        before_protocol = self._protocol(request.group)
        before, charged = self.shard.members.total, self._charged
        new_id = f"drawn-{self._drawn + 1}"
        is_known = request.group in self.groups
        decision = self.shard.handle(ticket, request, self.image, self.now_ms)
        growth = self.shard.members.total - before
        is_changed = before_protocol != self._protocol(request.group)
        if growth > sum(checked) and not is_changed:
            raise Violation("Unchecked", f"{request} adds {growth} bytes, checked for {checked}")
        if request.client and growth > 0 and self._charged - charged != growth:
            raise Violation("Unchecked", f"{growth} bytes, charged {self._charged - charged}")
        self._configure()
        if is_tight and checked:
            self._expected[ticket] = "GroupFull"
            model = self.groups.get(request.group)
            is_join = isinstance(request, JoinGroup)
            if is_join and isinstance(model, ConsumerModel) and not model.members:
                self.groups[request.group] = ClassicModel(request.group, self.config)
        else:
            self._expect(ticket, request, new_id)
        if type(request) is not CommitOffsets or not is_known:
            self._tidy(request.group)
        self._settle(decision)
        self._compare(request.group)

    def _protocol(self, group: str) -> bool | None:
        machine = self.shard._groups.get(group)
        return None if machine is None else machine.listing().is_classic

    def _configure(self) -> None:
        """Apply the configs of the image to the models, as the next request does."""
        self._configs = self.image.group_configs
        for group, model in self.groups.items():
            if isinstance(model, ConsumerModel):
                model.config = self.config_of(group)

    def _expect(self, ticket: Ticket, request: GroupRequest[Any], new_id: str) -> None:
        """Predict the replies to a request."""
        try:
            if isinstance(request, CLASSIC):
                self._expect_classic(ticket, request, new_id)
            elif isinstance(request, ConsumerHeartbeat):
                self._expect_heartbeat(ticket, request, new_id)
            elif isinstance(request, CommitOffsets):
                self._expected[ticket] = self._expect_commit(request)
            elif isinstance(request, FetchOffsets):
                self._check_fetch(request)
                self._expected[ticket] = self.offsets.fetch(request, self.image)
            elif isinstance(request, DeleteOffsets):
                self._expected[ticket] = self._expect_deletion(request)
            elif isinstance(request, DescribeGroup):
                self._expected[ticket] = self._description(request.group)
            else:
                assert isinstance(request, DeleteGroup), f"{request}"
                model = self._existing(request.group)
                if model.members:
                    raise Refused("NonEmptyGroup")
                self._forget(request.group)
                self._expected[ticket] = None
        except Refused as refused:
            self._expected[ticket] = refused.name

    def _expect_classic(self, ticket: Ticket, request: Any, new_id: str) -> None:
        model = self.groups.get(request.group)
        if model is None:
            if not isinstance(request, JoinGroup):
                raise Refused("UnknownMember")
            model = self.groups[request.group] = ClassicModel(request.group, self.config)
        elif isinstance(model, ConsumerModel):
            if model.members or not isinstance(request, JoinGroup):
                self._expect_mixed(ticket, request, model, new_id)
                return
            model = self.groups[request.group] = ClassicModel(request.group, self.config)
        model.handle(ticket, request, self.now_ms, new_id)
        self._take_replies(model)

    def _expect_heartbeat(self, ticket: Ticket, request: ConsumerHeartbeat, new_id: str) -> None:
        group = request.group
        model = self.groups.get(group)
        is_there = isinstance(model, ConsumerModel)
        if isinstance(model, ConsumerModel):
            made = model
        elif request.member_epoch != 0:
            raise Refused("UnknownMember")
        else:
            made = ConsumerModel(group, self.config_of(group))
            if model is not None:
                model.config = made.config
                made.validate(request)
                made = mixed.upgraded(model, request, self.image, self.now_ms)
        targets = partial(self._targets, group)
        made.handle(ticket, request, self.image, self.now_ms, new_id, targets)
        is_refused = isinstance(made.replies.get(ticket), str)
        if request.member_epoch >= 0 and not is_refused:
            self._seen[group] = self.image
        self._take_replies(made)
        if is_there:
            self._maybe_downgrade(made)
        elif not is_refused:
            self.groups[group] = made
            self.counts["upgrades"] += bool(model is not None and model.members)
            if isinstance(model, ClassicModel):
                model.end()
                self._take_replies(model)

    def _expect_mixed(
        self, ticket: Ticket, request: Any, model: ConsumerModel, new_id: str
    ) -> None:
        """Predict the replies to a request of the classic protocol to a group of KIP-848."""
        others = list(model.members.values())
        static = None
        if isinstance(request, JoinGroup) and not request.member_id:
            static = model.static(request.instance_id)
        if static is not None and static.classic is None:
            others.remove(static)
            if all(each.classic is not None for each in others) and (
                model.config.migration in ("bidirectional", "downgrade")
            ):
                mixed.check_join(model, request)
                model.fence([static.member_id], self.image, self.now_ms)
                self._downgrade(model)
                classic = self.groups[request.group]
                assert isinstance(classic, ClassicModel), "a downgraded group"
                classic.handle(ticket, request, self.now_ms, new_id)
                self._take_replies(classic)
                return
        targets = partial(self._targets, request.group)
        mixed.handle(model, ticket, request, self.image, self.now_ms, new_id, targets)
        self._take_replies(model)
        self._maybe_downgrade(model)

    def _maybe_downgrade(self, model: ConsumerModel) -> None:
        """Change a group to the classic protocol if its last member of KIP-848 was removed."""
        if model.has_fenced and mixed.may_downgrade(model):
            self._downgrade(model)
        model.has_fenced = False

    def _downgrade(self, model: ConsumerModel) -> None:
        self.counts["downgrades"] += 1
        group = model.group
        if not model.members:
            self.groups[group] = ClassicModel(group, model.config)
            return
        machine = self.shard._groups.get(group)
        if machine is None or not machine.listing().is_classic:
            raise Violation("Downgrade", f"{group} has classic members alone, and is not classic")
        found = machine.describe(self.now_ms)  # type: ignore[arg-type]
        order = [each.member_id for each in found.members if each.member_id in model.members]
        if len(order) < len(model.members):
            raise Violation("Downgrade", f"{group} has {order} of {list(model.members)}")
        self.groups[group] = mixed.downgraded(model, self.image, self.now_ms, order)

    def _targets(self, group: str) -> Mapping[str, Shares]:
        machine = self.shard._groups.get(group)
        if machine is None:
            raise Violation("Absent", f"{group} does not exist")
        found = machine.describe(self.image, self.now_ms)  # type: ignore[arg-type, call-arg]
        return {each.member_id: each.target for each in found.members}

    def _renew(self, ticket: Ticket, request: Any) -> bool:
        """Send a heartbeat by the way without a decision; return False if it needs one."""
        outcome = self.shard.renew_session(request, self.image, self.now_ms)
        if outcome is UNDECIDED:
            if self._is_usual(request):
                raise Violation("AtOnce", f"{request} needs a decision")
            self._compare(request.group)
            return False
        self.counts["at once"] += 1
        self._expect(ticket, request, "")
        if self._expected != {ticket: plain(outcome)}:
            raise Violation("Reply", f"{plain(outcome)} at once, not {self._expected}")
        self._expected.clear()
        self._compare(request.group)
        return True

    def _is_usual(self, request: ClassicHeartbeat | ConsumerHeartbeat) -> bool:
        model = self.groups.get(request.group)
        if self._configs is not self.image.group_configs:
            return False
        if isinstance(request, ClassicHeartbeat):
            if not isinstance(model, ClassicModel) or model.state != STABLE:
                return False
            member = model.members.get(request.member_id)
            return (
                member is not None
                and request.generation == model.generation
                and request.instance_id in (None, member.instance_id)
            )
        if not isinstance(model, ConsumerModel) or self._seen.get(request.group) is not self.image:
            return False
        known = model.members.get(request.member_id)
        has_fields = (
            request.topics is not None
            or request.owned is not None
            or request.instance_id is not None
            or request.pattern is not None
            or request.assignor is not None
            or request.rack is not None
            or request.rebalance_timeout_ms >= 0
        )
        return (
            known is not None
            and known.classic is None
            and not has_fields
            and (known.client_id, known.client_host) == (request.client_id, request.client_host)
            and 0 < request.member_epoch == known.epoch == model.target_epoch == model.epoch
            and not known.lacks
            and not known.revoking
            and not model.matches
            and known.session_end_ms <= self.now_ms + model.config.consumer_session_ms
        )

    # --- offsets ----------------------------------------------------------------------------------

    def commit_at_once(self, commit: PlainCommit, *, is_stored: bool) -> bool:
        """Send a commit by the way without a decision; return False if it needs one. Without
        `is_stored`, the log does not take it."""
        self._note("commit at once", commit.group)
        contents: list[bytes] = []

        def store(topic_ids: Any) -> bool:
            if is_stored:
                contents.append(encode_plain_commit(commit, topic_ids, self.now_ms))
            return is_stored

        request = _as_request(commit)
        usual = self._is_usual_commit(commit)
        is_done = self.shard.commit_at_once(commit, self.image, self.now_ms, store)
        if is_done != bool(contents):
            raise Violation("AtOnce", f"{commit} is done: {is_done}, stored {len(contents)} times")
        if usual and is_stored and not is_done:
            raise Violation("AtOnce", f"{commit} needs a decision")
        if is_done:
            self.counts["commits at once"] += 1
            found = self._expect_commit(request)
            if any(found[1]["errors"]):
                raise Violation("AtOnce", f"{commit} is stored, and must fail: {found}")
            for record in decode_all(contents[0]):
                self._append(record, None)
        self._compare(commit.group)
        self._compare_offsets(commit.group)
        return is_done

    def _is_usual_commit(self, commit: PlainCommit) -> bool:
        model = self.groups.get(commit.group)
        if self._configs is not self.image.group_configs or self.offsets.pending:
            return False
        for name, partitions, _, _ in commit.topics:
            topic = self.image.topic(name)
            if topic is None or not set(partitions) <= set(topic.partitions):
                return False
        if isinstance(model, ConsumerModel):
            known = model.members.get(commit.member_id)
            return known is not None and known.epoch == commit.generation >= 0
        if model is None or model.state != STABLE or commit.generation != model.generation:
            return False
        member = model.members.get(commit.member_id)
        return member is not None and commit.instance_id in (None, member.instance_id)

    def _expect_commit(self, request: CommitOffsets) -> Any:
        if isinstance(request, CommitTransactionalOffsets):
            guard = request.guard
            begun = self.guards.get((request.producer, request.transactional_id))
            assert guard is None or (begun is not None and begun[0] is guard), "an unknown guard"
            known = None if guard is None or begun is None else (guard.producers, begun[1])
            self.offsets.check_commit(request, known, self.shard._producers)
        model = self.groups.get(request.group)
        if model is None:
            is_outside = not request.member_id or isinstance(request, CommitTransactionalOffsets)
            if request.generation >= 0 or not is_outside:
                raise Refused("IllegalGeneration")
            self.groups[request.group] = ClassicModel(request.group, self.config)
        elif isinstance(model, ClassicModel):
            model.check_commit(request, self.now_ms)
        else:
            model.check_commit(request)
        return self.offsets.commit(request, self.image, self.now_ms)

    def _check_fetch(self, request: FetchOffsets) -> None:
        model = self.groups.get(request.group)
        if isinstance(model, ConsumerModel):
            model.check_fetch(request)

    def _expect_deletion(self, request: DeleteOffsets) -> Any:
        model = self._existing(request.group)
        subscribed = model.subscribed_topics() if model.members else frozenset()
        if subscribed is None:
            raise Refused("NonEmptyGroup")
        errors = []
        for topic, partition in request.partitions:
            errors.append("GroupSubscribedToTopic" if topic in subscribed else None)
            if topic not in subscribed:
                self.offsets.forget([(request.group, topic, partition)])
        return "CommitOutcome", {"errors": tuple(errors)}

    def verify(self, producer: ProducerIdentity, transactional_id: str) -> None:
        """Begin the verification of a transaction."""
        known = self.offsets.producers.get(producer.producer_id)
        is_open = (
            known is not None
            and known.open_as == transactional_id
            and known.epoch == producer.producer_epoch
        )
        is_old = known is not None and producer.producer_epoch < known.epoch
        try:
            guard = self.shard.verification_guard(producer, transactional_id)
        except InvalidProducerEpoch:
            if not is_old:
                raise
            return
        if is_old or (guard is None) != is_open:
            raise Violation("Verification", f"{producer} as {transactional_id}: {guard}")
        if guard is not None:
            self.guards[producer, transactional_id] = (guard, self.offsets.markers)

    def _expect_marker(self, ticket: Ticket, marker: TransactionMarker, decision: Any) -> None:
        groups = {
            place[0]
            for place, found in self.offsets.pending.items()
            if marker.producer.producer_id in found
        }
        try:
            is_new = self.offsets.end(marker, self.now_ms)
        except Refused as refused:
            self._expected[ticket] = refused.name
            is_new = False
        else:
            self._expected[ticket] = None
        if (decision.marker == marker) != is_new:
            raise Violation("Marker", f"{marker} is stored: {decision.marker}, new: {is_new}")
        if is_new:
            for group in sorted(groups):
                self._tidy(group)

    # --- time and metadata ------------------------------------------------------------------------

    def next_ms(self) -> int:
        """Return the next time at which something ends by the model."""
        found = [each.deadline_ms() for each in self.groups.values()]
        return min([self.check_ms, *(each for each in found if each is not None)])

    def pass_time(self, ms: int) -> None:
        """Let time pass, with a stop at every deadline."""
        until_ms = self.now_ms + ms
        while True:
            asked_ms = self.shard.deadline_ms()
            times = [self.next_ms(), *([] if asked_ms is None else [asked_ms])]
            if min(times) > until_ms:
                break
            self.now_ms = max(self.now_ms, min(times))
            self._expire()
        self.now_ms = until_ms

    def _expire(self) -> None:
        self._note("expire")
        decision: Any = ShardDecision()
        for _ in range(CALLS_MAX):
            due_ms = self.shard.deadline_ms()
            if due_ms is None or due_ms > self.now_ms:
                break
            decision = decision + self.shard.expire(self.now_ms, self.image)
        else:
            raise Violation("Deadline", f"still {self.shard.deadline_ms()} at {self.now_ms}")
        for group, model in list(self.groups.items()):
            while (due_ms := model.deadline_ms()) is not None and due_ms <= self.now_ms:
                if isinstance(model, ConsumerModel):
                    model.expire(self.now_ms, self.image)
                    self._take_replies(model)
                    self._maybe_downgrade(model)
                    model = self.groups[group]
                    continue
                model.expire(self.now_ms)
                self._take_replies(model)
                self._tidy(group)
        if self.check_ms <= self.now_ms:
            self._check_offsets()
        self._settle(decision)
        self._compare_all()

    def _check_offsets(self) -> None:
        self.check_ms = self.now_ms + self.config.offsets_check_ms
        self.offsets.expire_producers(self.now_ms)
        for group, model in list(self.groups.items()):
            self.offsets.expire(group, self.image, self.now_ms, partial(_since_ms, model))
            if not model.members and group not in self.offsets.groups():
                self._forget(group)

    def stall(self, ms: int) -> None:
        """Refuse all requests for a while, then restart all sessions."""
        self._note("stall")
        self.now_ms += ms
        self.shard.restart_sessions(self.now_ms)
        for group, model in list(self.groups.items()):
            model.restart(self.now_ms)
            self._tidy(group)
        self.pass_time(0)
        self._compare_all()

    def change(self, image: MetadataImage) -> None:
        """Apply newer metadata."""
        self._note("image")
        self.image = image

    def delete_offsets_of(self, deleted: list[TopicImage]) -> None:
        """Delete the offsets of deleted topics, as the shell requests after the change."""
        self._note("topics deleted", " ".join(each.name for each in deleted))
        for topic in deleted:
            self.offsets.forget_topic(topic.name, topic.id)
        self._settle(self.shard.image_changed(self.image, self.now_ms, deleted=deleted))
        self._compare_all()

    # --- comparisons ------------------------------------------------------------------------------

    def _take_replies(self, model: GroupModel) -> None:
        self._expected |= model.replies
        model.replies.clear()

    def _settle(self, decision: Any) -> None:
        """Store the records of a decision, and compare its replies with the expected ones."""
        for record in decision.records:
            key, value = encode(record)
            self._append(Record(0, 0, key, value), decision.producer, record)
        if decision.marker is not None:
            self.log.append(decision.marker)
        found = {
            reply.ticket: plain(reply.outcome if isinstance(reply, Answered) else reply.error)
            for reply in decision.replies
        }
        if len(found) < len(decision.replies):
            raise Violation("Reply", f"a request has two: {decision.replies}")
        self._note("replies", repr(found))
        found = {ticket: _in_order(outcome) for ticket, outcome in found.items()}
        expected = {ticket: _in_order(outcome) for ticket, outcome in self._expected.items()}
        if found != expected:
            raise Violation("Reply", f"{found}\n  in place of {expected}")
        self._expected.clear()
        self.shard.check_invariants()

    def _append(
        self, record: Record, producer: ProducerIdentity | None, source: Any = None
    ) -> None:
        key, value = record.key or b"", record.value
        if producer is None:
            is_fact = not isinstance(source, REPEATABLE | None)
            if is_fact and self.stored.get(key) == value:
                raise Violation("Repeated", f"{source} is stored already")
            self.stored[key] = value
        self.log.append((record, producer, self.now_ms))

    def _tidy(self, group: str) -> None:
        """Drop a group of which nothing is left."""
        model = self.groups.get(group)
        is_blank = isinstance(model, ClassicModel) and model.is_blank
        if is_blank and group not in self.offsets.groups():
            del self.groups[group]

    def _forget(self, group: str) -> None:
        self.offsets.forget_group(group)
        model = self.groups.pop(group)
        self._take_replies(model)

    def _existing(self, group: str) -> GroupModel:
        model = self.groups.get(group)
        if model is None:
            raise Refused("GroupNotFound")
        return model

    def _description(self, group: str) -> Any:
        model = self._existing(group)
        if isinstance(model, ConsumerModel):
            return model.describe(self.image, self.now_ms)
        return model.describe(self.now_ms)

    def _compare(self, group: str) -> None:
        """Compare the description of a group."""
        machine = self.shard._groups.get(group)
        if machine is None or group not in self.groups:
            if machine is not None or group in self.groups:
                raise Violation("Exists", f"{group}: {machine is not None}")
            return
        if isinstance(self.groups[group], ConsumerModel) is machine.listing().is_classic:
            raise Violation("Description", f"{group} has the other protocol")
        arguments: Any = (
            (self.image, self.now_ms) if not machine.listing().is_classic else (self.now_ms,)
        )
        found = _in_order(plain(machine.describe(*arguments)))
        if found != (expected := _in_order(self._description(group))):
            raise Violation("Description", f"{found}\n  in place of {expected}")

    def _compare_offsets(self, group: str) -> None:
        request = FetchOffsets(group=group)
        found = plain(self.shard._offsets.fetch(request, self.image))
        if found != (expected := self.offsets.fetch(request, self.image)):
            raise Violation("Offsets", f"{found}\n  in place of {expected}")

    def _compare_all(self) -> None:
        """Compare all groups and offsets."""
        for group in sorted({*self.groups, *self.shard._groups}):
            self._compare(group)
            self._compare_offsets(group)
        found = [plain(line) for line in self.shard.listings() if line is not None]
        expected = [each.listing() for each in self.groups.values()]
        if sorted(found, key=repr) != sorted(expected, key=repr):
            raise Violation("List", f"{found}\n  in place of {expected}")
        if self.shard.offset_count != len(self.offsets.kept):
            raise Violation("Offsets", f"{self.shard.offset_count} of {len(self.offsets.kept)}")
        members = sum(len(each.members) for each in self.groups.values())
        if self.shard.member_count() != members:
            raise Violation("Members", f"{self.shard.member_count()} of {members}")
        asked_ms = self.shard.deadline_ms()
        if asked_ms is None or asked_ms > self.next_ms():
            raise Violation("Deadline", f"{asked_ms}, {self.next_ms()} is the next one")

    def _note(self, what: str, detail: str = "") -> None:
        self._record(what, f"{self.now_ms} {detail}")


def _since_ms(model: GroupModel, topic: str, one: ModelOffset) -> int | None:
    """Return the start of the broker's retention of an offset; None: it does not expire by age."""
    if not model.members:
        empty_ms = model.empty_ms if isinstance(model, ConsumerModel) else model.state_ms
        is_simple = isinstance(model, ClassicModel) and not model.protocol_type
        return one.commit_ms if is_simple else max(empty_ms, one.commit_ms)
    subscribed = model.subscribed_topics()
    if subscribed is None or topic in subscribed:
        return None
    return None if isinstance(model, ClassicModel) and model.state != STABLE else one.commit_ms


def _in_order(outcome: Any) -> Any:
    """Return a description of a KIP-848 group with its members in order: a load may change it."""
    if not isinstance(outcome, tuple) or outcome[:1] != ("GroupDescription",):
        return outcome
    parts = outcome[1]
    if parts["is_classic"]:
        return outcome
    return outcome[0], parts | {"members": sorted(parts["members"], key=_id_of)}


def _id_of(member: Any) -> str:
    return str(member[1]["member_id"])


def _check_growth(checked: list[int], is_tight: bool, growth: int) -> None:
    checked.append(growth)
    if is_tight:
        raise GroupFull("the client adds too much")


def _as_request(commit: PlainCommit) -> CommitOffsets:
    return CommitOffsets(
        group=commit.group,
        member_id=commit.member_id,
        instance_id=commit.instance_id,
        generation=commit.generation,
        offsets=tuple(
            OffsetToCommit(
                topic=topic.topic, partition=partition, offset=offset, leader_epoch=epoch
            )
            for topic in commit.topics
            for partition, offset, epoch in zip(*topic[1:], strict=True)
        ),
    )


def _is_marker(entry: Stored) -> bool:
    return isinstance(entry, TransactionMarker)
