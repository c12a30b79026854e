"""A model of the committed offsets of all groups, and of the producers that commit in transactions.

- A commit replaces the offset of a partition. A commit in a transaction counts once the transaction
  is committed, as if it had been in force since its place in the log: a later plain commit stays.
- An offset expires after its own retention time, or the broker's since the group was empty or since
  its topic was unsubscribed. It ends with its topic.
- A producer's transaction is verified before its first commit, and no marker that may end it may
  arrive during that; an older epoch is refused; a marker is applied once (KIP-98, 447, 890).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from quorumlog.broker.groups.config import GroupConfig
from quorumlog.broker.groups.requests import (
    CommitOffsets,
    CommitTransactionalOffsets,
    FetchOffsets,
    OffsetToCommit,
    StoredOffset,
)
from quorumlog.ids import ProducerIdentity, TopicId
from quorumlog.metadata.image import MetadataImage
from quorumlog.records.control import TransactionMarker
from quorumlog.storage.producer_state import ProducerLimits

from .classic import Refused
from .replies import plain

Place = tuple[str, str, int]  # group, topic, partition
NONE: Final = -1
EXPIRY_MARGIN_MS: Final = 3_600_000  # of idle producers, beyond the expiration in the log


@dataclass(slots=True, kw_only=True)
class ModelOffset:
    """A committed or pending offset."""

    number: int  # its place in the log
    offset: int
    leader_epoch: int
    note: str
    commit_ms: int
    expire_ms: int
    topic_id: TopicId | None  # None: unknown


@dataclass(slots=True)
class ModelProducer:
    """A producer that committed in a transaction, or got a marker."""

    epoch: int
    coordinator_epoch: int = -1
    open_as: str | None = None  # the transactional id of its open transaction; "": unknown
    ended_epoch: int = 0  # transactions of epochs below it have ended
    voided: int = 0  # the number of the last marker that may have ended any transaction
    newest: int = 0  # the number of its last marker
    touched_ms: int = 0


@dataclass(slots=True)
class OffsetsModel:
    """The offsets of all groups of a partition."""

    config: GroupConfig
    limits: ProducerLimits
    kept: dict[Place, ModelOffset] = field(default_factory=dict)
    pending: dict[Place, dict[int, ModelOffset]] = field(default_factory=dict)  # by producer
    # Pending offsets that a tombstone deleted. A load without the tombstone, which a later commit
    # replaced, finds them again; they never come into force.
    dropped: dict[Place, dict[int, ModelOffset]] = field(default_factory=dict)
    producers: dict[int, ModelProducer] = field(default_factory=dict)  # the longest idle first
    markers: int = 0
    forgotten: int = 0  # the number of the newest marker of a forgotten producer
    _number: int = 0

    def groups(self) -> set[str]:
        """Return the groups with offsets."""
        return {place[0] for place in (*self.kept, *self.pending)}

    # --- commits ----------------------------------------------------------------------------------

    def commit(self, request: CommitOffsets, image: MetadataImage, now_ms: int) -> Any:
        """Apply a commit; return the expected outcome."""
        errors: list[str | None] = []
        is_transactional = isinstance(request, CommitTransactionalOffsets)
        expire_ms = -1
        if request.retention_ms >= 0 and not is_transactional:
            expire_ms = now_ms + request.retention_ms
        for each in request.offsets:
            error = self._error(each, image)
            errors.append(error)
            if error is not None:
                continue
            topic = image.topic(each.topic)
            assert topic is not None, "a checked topic"
            self._number += 1
            made = ModelOffset(
                number=self._number,
                offset=each.offset,
                leader_epoch=each.leader_epoch,
                note=each.note,
                commit_ms=now_ms,
                expire_ms=expire_ms,
                topic_id=topic.id,
            )
            place = (request.group, each.topic, each.partition)
            if isinstance(request, CommitTransactionalOffsets):
                self.pending.setdefault(place, {})[request.producer.producer_id] = made
            else:
                self.kept[place] = made
        if isinstance(request, CommitTransactionalOffsets) and None in errors:
            producer = self._touch(*request.producer, now_ms)
            producer.open_as = request.transactional_id
        return "CommitOutcome", {"errors": tuple(errors)}

    def _error(self, each: OffsetToCommit, image: MetadataImage) -> str | None:
        topic = image.topic(each.topic)
        if len(each.note.encode()) > self.config.note_bytes_max:
            return "OffsetNoteTooLarge"
        if topic is None or each.partition not in topic.partitions:
            return "UnknownTopicOrPartition"
        return "UnknownTopicId" if each.topic_id not in (None, topic.id) else None

    def fetch(self, request: FetchOffsets, image: MetadataImage) -> Any:
        """Return the expected offsets of a group."""
        mine = {place[1:]: one for place, one in self.kept.items() if place[0] == request.group}
        shown = {where: one for where, one in mine.items() if _is_current(one, where[0], image)}
        unstable = set[tuple[str, int]]()
        if request.require_stable:
            unstable = {
                place[1:]
                for place, found in self.pending.items()
                if place[0] == request.group
                and any(_is_current(one, place[1], image) for one in found.values())
            }
        asked = request.partitions
        if asked is None:
            asked = tuple(sorted(shown.keys() | unstable))
        return tuple(
            _answer(topic, index, shown.get((topic, index)), (topic, index) in unstable)
            for topic, index in asked
        )

    # --- deletions --------------------------------------------------------------------------------

    def forget(self, places: Iterable[Place]) -> None:
        """Delete offsets."""
        for place in list(places):
            self.kept.pop(place, None)
            if (found := self.pending.pop(place, None)) is not None:
                self.dropped.setdefault(place, {}).update(found)

    def restore(self, offsets_of: Callable[[Place], set[int]]) -> None:
        """Take the dropped offsets that a load has found again; `offsets_of` returns the pending
        offsets of a partition."""
        for place, found in self.dropped.items():
            kept, present = self.kept.get(place), offsets_of(place)
            for producer_id, one in found.items():
                if kept is not None and one.number < kept.number and one.offset in present:
                    self.pending.setdefault(place, {}).setdefault(producer_id, one)

    def forget_group(self, group: str) -> None:
        """Delete all offsets of a group."""
        self.forget(place for place in (*self.kept, *self.pending) if place[0] == group)

    def forget_topic(self, topic: str, topic_id: TopicId) -> None:
        """Delete the offsets of a deleted topic, unless some are of the next one of that name."""
        for place in {*self.kept, *self.pending}:
            found = list(self.pending.get(place, {}).values())
            found += [self.kept[place]] if place in self.kept else []
            if place[1] == topic and all(one.topic_id in (None, topic_id) for one in found):
                self.forget([place])

    def expire(
        self,
        group: str,
        image: MetadataImage,
        now_ms: int,
        since_ms: Callable[[str, ModelOffset], int | None],
    ) -> None:
        """Delete what has expired; `since_ms` returns the start of the broker's retention."""
        for place, one in list(self.kept.items()):
            if place[0] != group or place in self.pending:
                continue
            start_ms = since_ms(place[1], one)
            is_late = start_ms is not None and (
                now_ms >= one.expire_ms
                if one.expire_ms >= 0
                else now_ms - start_ms >= self.config.offsets_retention_ms
            )
            topic = image.topic(place[1])
            is_gone = now_ms - one.commit_ms >= self.config.offsets_check_ms and (
                topic is None or topic.id != one.topic_id
            )
            is_gone = is_gone and one.topic_id is not None
            if is_late or is_gone:
                del self.kept[place]

    # --- transactions -----------------------------------------------------------------------------

    def check_commit(
        self, request: CommitTransactionalOffsets, guard: tuple[object, int] | None, owner: object
    ) -> None:
        """Raise Refused; `guard` has the coordinator's state and the number of markers at the start
        of the verification, None without one; `owner` is the present state."""
        producer_id, epoch = request.producer
        known = self.producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise Refused("InvalidProducerEpoch")
        if self.is_verified(request):
            return
        if guard is None:
            raise Refused("InvalidTxnState")
        may_have_ended = self.forgotten > guard[1] or (
            known is not None and (known.voided > guard[1] or epoch < known.ended_epoch)
        )
        if guard[0] is not owner or may_have_ended:
            raise Refused("CoordinatorNotAvailable")

    def is_verified(self, request: CommitTransactionalOffsets) -> bool:
        """Return True if the transaction is open here under the same transactional id."""
        known = self.producers.get(request.producer.producer_id)
        return (
            known is not None
            and known.epoch == request.producer.producer_epoch
            and known.open_as == request.transactional_id
        )

    def end(self, marker: TransactionMarker, now_ms: int) -> bool:
        """Apply a marker; return False for a repeated one. Raises Refused."""
        self.markers += 1
        producer_id, epoch = marker.producer
        known = self.producers.get(producer_id)
        if known is not None:
            self._void(known, marker)
            is_same = epoch == known.epoch and marker.transaction_version >= 2
            if epoch < known.epoch or (is_same and known.open_as is not None):
                raise Refused("InvalidProducerEpoch")
            if marker.coordinator_epoch < known.coordinator_epoch:
                raise Refused("TransactionCoordinatorFenced")
            if is_same:
                return False
        known = self._touch(producer_id, epoch, now_ms)
        known.open_as, known.coordinator_epoch = None, marker.coordinator_epoch
        self._void(known, marker)
        self._apply(producer_id, is_commit=marker.is_commit)
        return True

    def _apply(self, producer_id: int, *, is_commit: bool) -> None:
        for found in self.dropped.values():
            found.pop(producer_id, None)
        for place, found in list(self.pending.items()):
            one = found.pop(producer_id, None)
            if one is not None and is_commit:
                before = self.kept.get(place)
                if before is None or before.number < one.number:
                    self.kept[place] = one
            if not found:
                del self.pending[place]

    def _void(self, known: ModelProducer, marker: TransactionMarker) -> None:
        known.newest = self.markers
        if marker.transaction_version >= 2:
            known.ended_epoch = max(known.ended_epoch, marker.producer.producer_epoch)
        else:
            known.voided = self.markers

    def _touch(self, producer_id: int, epoch: int, now_ms: int) -> ModelProducer:
        known = self.producers.pop(producer_id, None)
        if known is None:
            known = ModelProducer(epoch)
            surplus = len(self.producers) + 1 - self.limits.producers_max
            idle = [name for name, each in self.producers.items() if each.open_as is None]
            self._forget(idle[: max(0, surplus)])
        self.producers[producer_id] = known
        known.epoch, known.touched_ms = epoch, now_ms
        return known

    def expire_producers(self, now_ms: int) -> None:
        """Forget the producers that were idle for long, none with an open transaction."""
        longest_ms = self.limits.expiration_ms + EXPIRY_MARGIN_MS
        self._forget(
            [
                name
                for name, each in self.producers.items()
                if each.open_as is None and now_ms - each.touched_ms >= longest_ms
            ]
        )

    def _forget(self, names: list[int]) -> None:
        for name in names:
            self.forgotten = max(self.forgotten, self.producers.pop(name).newest)

    def loaded(
        self, now_ms: int, log: Iterable[ProducerIdentity | TransactionMarker | None]
    ) -> None:
        """Read the producers from a log: versions of markers and transactional ids are not stored,
        nor is a refused marker."""
        self.producers.clear()
        self.markers = self.forgotten = 0
        for one in self.kept.values():
            if one.expire_ms >= 0:  # a record with a retention time has no topic id
                one.topic_id = None
        for entry in log:
            if isinstance(entry, TransactionMarker):
                self.markers += 1
                known = self._touch(*entry.producer, now_ms)
                known.open_as, known.coordinator_epoch = None, entry.coordinator_epoch
                known.voided = known.newest = self.markers
            elif entry is not None:
                self._touch(*entry, now_ms).open_as = ""


def _is_current(one: ModelOffset, topic: str, image: MetadataImage) -> bool:
    present = image.topic(topic)
    return one.topic_id is None or present is None or present.id == one.topic_id


def _answer(topic: str, index: int, one: ModelOffset | None, is_unstable: bool) -> Any:
    if is_unstable or one is None:
        name, parts = plain(StoredOffset(topic=topic, partition=index, offset=NONE))
        return name, parts | {"error": "UnstableOffsetCommit" if is_unstable else None}
    return plain(
        StoredOffset(
            topic=topic,
            partition=index,
            offset=one.offset,
            leader_epoch=one.leader_epoch,
            note=one.note,
            commit_ms=one.commit_ms,
        )
    )
