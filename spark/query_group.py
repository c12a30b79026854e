"""A streaming query's group at the broker: where the query starts, and how far it has come.

Spark asks a Python source for the initial offset again when the first micro-batch failed, and tells
it neither the query's id nor its checkpoint. So a start that would be another one by then is stored
under the query's group and a digest of what it depends on, and forgotten at the first proof that
batch 0 is committed. How far the query has come is committed to the group itself, where tools see
its lag; the query never waits long for that, and never fails over it.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from quorumlog.errors import (
    GroupNotFound,
    InvalidConfig,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from quorumlog.proto import groups_pb2
from quorumlog.runtime.error_detail import decode_error
from quorumlog.services import GROUPS_COMMIT_OFFSETS, GROUPS_DELETE, GROUPS_FETCH_OFFSETS
from quorumlog.settings.query_groups import START_GROUP_PREFIX
from quorumlog.spark.cluster import CALL_TIMEOUT_MS, PATIENT_ATTEMPTS_MAX, Cluster, repeat
from quorumlog.spark.offsets import Offsets, TopicPartition
from quorumlog.spark.options import ReadOptions, Subscribed

OFFSETS_A_CALL: Final = 1_000
"""So many are stored together or not at all."""

TELL_TIMEOUT_MS = 1_000
"""How long a query waits for the broker to take how far it has come."""

FIRST_ATTEMPTS_MAX: Final = 4
"""How often it is tried the first time: it may be what makes the topic of offsets."""

TELL_AGAIN_S: Final = 10.0
"""For so long it does not try again after that has failed."""

TELL_ANEW_S: Final = 600.0
"""It is told again when it is so old, where nothing is new: offsets that nobody commits expire, and
who deletes the group of a query that runs deletes it for so long."""

LOOK_S: Final = 60.0
"""So often it is looked, when there is something to tell, whether others tell of the group too."""

PART: Final = "part"
COMPLETE: Final = "complete"
PLANNED: Final = "planned"
"""Notes beside stored starts: those of a start that was stored in several calls count once one of
them is complete. From a planned one a micro-batch may have been planned; from no other."""

logger = logging.getLogger(__name__)


def start_digest(options: ReadOptions) -> str:
    """Return what tells apart the starts of one group: 16 hexadecimal digits of what is read and
    where that begins. Other options may change between two runs of a query."""
    selection = options.selection
    if isinstance(selection, Subscribed):
        selection = replace(selection, topics=tuple(sorted(selection.topics)))
    text = repr((selection, _sorted(options.start), options.start_no_match.value))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _sorted(position: object) -> str:
    offsets = getattr(position, "offsets", None) or getattr(position, "timestamps_ms", None)
    if offsets is None:
        return repr(position)
    return type(position).__name__ + json.dumps(
        [[*place, at] for place, at in sorted(offsets.items())]
    )


class QueryGroup:
    """The group of one run of a query. For one thread."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        """`options` name a group."""
        assert options.group_id is not None, "a query without a group has none to tell"
        self.name = options.group_id
        self._cluster = cluster
        self._start_group = f"{START_GROUP_PREFIX}{start_digest(options)}.{options.group_id}"
        self._may_have_start = options.starts_at_end  # one may be stored that is of no use any more
        self._start: Offsets | None = None  # as it is stored; None: not known, or none is
        self._is_planned = False  # it is stored that a micro-batch may have been planned from it
        self._is_first = False  # this run has asked where the query starts: batch 0 is to be run
        self._told: Offsets | None = None  # how far the query has come, as far as the broker knows
        self._told_s = 0.0  # when it was told, on time.monotonic()
        self._looked_s = time.monotonic()  # when it was looked for others
        self._silent_until_s = 0.0  # on time.monotonic()

    # --- the start -----------------------------------------------------------------------------

    def start(self, resolve: Callable[[], Offsets]) -> Offsets:
        """Return where the query starts: what is stored, else what `resolve` says, which is then
        stored. Raises what keeps it from being read or stored, and InvalidConfig where there is no
        partition, so that nothing can be stored."""
        self._is_first = True
        if self._start is None:
            self._start = self._stored_start(attempts_max=PATIENT_ATTEMPTS_MAX)
            if self._start is not None:
                logger.info("spark.start_again group=%s partitions=%d", self.name, len(self._start))
        if self._start is None:
            found = resolve()
            if not found:
                raise InvalidConfig(
                    "option 'startingOffsets' is 'latest' and no topic matches yet; use "
                    "'earliest': what matches later is read from its first record, here as there"
                )
            if len(found) > OFFSETS_A_CALL:
                self._store_start(found, PART)
            self._store_start(found, COMPLETE)
            self._start = found
        return self._start

    def starts_anew(self, topics: Collection[str], starts: Offsets) -> None:
        """Start elsewhere in some topics, which are others now; raises what keeps that from being
        stored."""
        if self._start is None or not self._may_have_start:
            return
        kept = {place: at for place, at in self._start.items() if place.topic not in topics}
        found = kept | starts
        if found:
            self._store_start(found, PLANNED if self._is_planned else COMPLETE)
        self._start = found

    def plans(self) -> None:
        """A micro-batch is about to be planned. Where it is the first, that is stored beside the
        start; raises what keeps it from being."""
        if self._is_first and not self._is_planned and self._start is not None:
            self._store_start(self._start, PLANNED)
            self._is_planned = True

    def check_planned(self) -> None:
        """A micro-batch that was planned is about to be run. Raises InvalidConfig where it is the
        first one, and was planned from another start than the one that `start` returned."""
        if self._is_first and not self._is_planned:
            raise InvalidConfig(
                "the start of the first micro-batch is not known any more: another run of the "
                f"query planned it, and no start of it is stored under the group {self.name!r} for "
                "what is read now. Were the groupId, the topics or the starting options others "
                "then? Say them again, or begin with a new checkpoint"
            )

    def _store_start(self, start: Offsets, note: str) -> None:
        must_exist = note != PLANNED  # what was deleted since it was stored is no reason to wait
        places = sorted(start)
        for begin in range(0, len(places), OFFSETS_A_CALL):
            part = {place: start[place] for place in places[begin : begin + OFFSETS_A_CALL]}

            def store(_: int, part: Offsets = part) -> None:
                self._commit(self._start_group, part, note=note, must_exist=must_exist)

            repeat("store_start", store, attempts_max=PATIENT_ATTEMPTS_MAX)

    def _stored_start(
        self, *, attempts_max: int = 1, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> Offsets | None:
        stored = self._stored(self._start_group, attempts_max=attempts_max, timeout_ms=timeout_ms)
        notes = {note for _, note in stored.values()}
        self._is_planned = notes == {PLANNED}
        if not notes & {COMPLETE, PLANNED}:
            return None
        return {place: offset for place, (offset, _) in stored.items()}

    def _stored(
        self, group: str, *, attempts_max: int = 1, timeout_ms: int = TELL_TIMEOUT_MS
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Return the offsets that a group has committed, and the notes beside them."""
        answer = self._cluster.call(
            "fetch_offsets",
            GROUPS_FETCH_OFFSETS,
            groups_pb2.FetchOffsetsRequest(group=group),
            attempts_max=attempts_max,
            timeout_ms=timeout_ms,
        )
        found: dict[TopicPartition, tuple[int, str]] = {}
        for result in answer.results:
            if result.HasField("error"):
                raise decode_error(result.error)
            offset = result.offset
            if offset.topic and offset.offset >= 0:
                place = TopicPartition(offset.topic, offset.partition)
                found[place] = (offset.offset, offset.note)
        return found

    # --- progress ------------------------------------------------------------------------------

    def begins(self, start: Mapping[TopicPartition, int], *, must: bool) -> None:
        """Tell where the query begins, so that its lag is seen before its first micro-batch has
        ended. Raises what keeps it from being told where it `must` be."""
        if self._told == start:
            return
        if not must:
            self._tell(start, attempts_max=FIRST_ATTEMPTS_MAX)
            return
        self._commit(self.name, start, attempts_max=PATIENT_ATTEMPTS_MAX)
        self._is_told(start)

    def reached(self, offsets: Mapping[TopicPartition, int], *, is_end: bool) -> None:
        """Everything below these offsets is in committed micro-batches, if they are not where the
        query starts; `is_end` says that a micro-batch ended there. Raises nothing."""
        now_s = time.monotonic()
        is_told = self._told == offsets and now_s < self._told_s + TELL_ANEW_S
        if (is_told and not self._may_have_start) or now_s < self._silent_until_s:
            return
        if not is_told:
            self._tell(offsets)
        if self._may_have_start and time.monotonic() >= self._silent_until_s:
            self._attempt("forget the start of", lambda: self._forget_start(offsets, is_end))

    def _tell(self, offsets: Mapping[TopicPartition, int], *, attempts_max: int = 1) -> None:
        self._look_for_others()

        def tell() -> None:
            self._told = None  # should the commit fail
            if offsets:
                self._commit(
                    self.name, offsets, attempts_max=attempts_max, timeout_ms=TELL_TIMEOUT_MS
                )
            self._is_told(offsets)

        self._attempt("tell of", tell)

    def _look_for_others(self) -> None:
        """Warn where the group is not where this query has left it. Raises nothing."""
        now_s = time.monotonic()
        if self._told is None or now_s < self._looked_s + LOOK_S:
            return
        self._looked_s = now_s
        try:
            stored = self._stored(self.name)
        except QuorumlogError as error:
            logger.info("spark.group_not_looked_at group=%s: %s", self.name, error)
            return
        for place, (there, _) in stored.items():
            here = self._told.get(place, there)
            if there != here:
                logger.warning(
                    "spark.group_shared group=%s: %s is at %d there and at %d here, so another "
                    "query or program commits it too. Give each a groupId of its own: else its "
                    "lag is not what it seems, and what it has not read is not held",
                    self.name,
                    place,
                    there,
                    here,
                )
                return

    def _is_told(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._told = dict(offsets)
        self._told_s = time.monotonic()

    def _forget_start(self, offsets: Mapping[TopicPartition, int], is_end: bool) -> None:
        if not is_end:
            if self._start is None:
                self._start = self._stored_start(timeout_ms=TELL_TIMEOUT_MS)
            if self._start == offsets:
                return  # no proof: the first micro-batch may be yet to come
        answer = self._cluster.call(
            "delete_groups",
            GROUPS_DELETE,
            groups_pb2.DeleteGroupsRequest(groups=[self._start_group]),
            attempts_max=1,
            timeout_ms=TELL_TIMEOUT_MS,
        )
        for error in answer.errors:
            if error.name:
                failure = decode_error(error)
                if not isinstance(failure, GroupNotFound):
                    raise failure
        self._may_have_start = False

    def _attempt(self, what: str, job: Callable[[], None]) -> None:
        try:
            job()
        except QuorumlogError as error:
            self._silent_until_s = time.monotonic() + TELL_AGAIN_S
            logger.warning(
                "spark.group_silent group=%s: cannot %s it, which is tried again with a "
                "micro-batch after %d s: %s",
                self.name,
                what,
                TELL_AGAIN_S,
                error,
            )

    def _commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        note: str = "",
        must_exist: bool = False,
        attempts_max: int = 1,
        timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> None:
        """Commit; partitions that are unknown there are left out, unless they `must_exist`."""
        places = sorted(offsets)
        for begin in range(0, len(places), OFFSETS_A_CALL):
            request = groups_pb2.CommitOffsetsRequest(
                group=group,
                offsets=[
                    groups_pb2.CommittedOffset(
                        topic=place.topic,
                        partition=place.partition,
                        offset=offsets[place],
                        note=note,
                    )
                    for place in places[begin : begin + OFFSETS_A_CALL]
                ],
            )
            answer = self._cluster.call(
                "commit_offsets",
                GROUPS_COMMIT_OFFSETS,
                request,
                attempts_max=attempts_max,
                timeout_ms=timeout_ms,
            )
            for result in answer.results:
                if result.HasField("error"):
                    failure = decode_error(result.error)
                    if must_exist or not isinstance(failure, UnknownTopicOrPartition):
                        raise failure
