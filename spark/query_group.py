"""The consumer group of a streaming query: its stored start and its committed progress.

Spark requests the initial offset again after a failed first micro-batch, and passes the source
neither the query's id nor its checkpoint. So a start at `latest` is stored under a group named by
the query's group and a digest of its options, and deleted at the first proof that batch 0 is
committed. The query commits its progress to its own group, where tools show its lag; a failed
commit delays the query briefly and never fails it.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from quorumlog.clients.retry import RetryLimit
from quorumlog.errors import (
    GroupNotFound,
    InvalidConfig,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from quorumlog.ids import TopicPartition
from quorumlog.proto import groups_pb2
from quorumlog.runtime.error_detail import decode_error
from quorumlog.services import GROUPS_COMMIT_OFFSETS, GROUPS_DELETE, GROUPS_FETCH_OFFSETS
from quorumlog.settings.query_groups import START_GROUP_PREFIX
from quorumlog.spark.broker_calls import CALL_TIMEOUT_MS, PATIENT_ATTEMPTS, Cluster, now_ms
from quorumlog.spark.offsets import Offsets
from quorumlog.spark.options import ReadOptions, Subscribed

OFFSETS_A_CALL: Final = 1_000
"""The maximum number of offsets that one call commits atomically."""

COMMIT_TIMEOUT_MS = 1_000
"""Timeout of a commit of the query's progress."""

FIRST_ATTEMPTS: Final = 4
"""Attempts of the first commit, which may create the offsets topic."""

COMMIT_RETRY_S: Final = 10.0
"""Pause after a failed commit of progress."""

COMMIT_INTERVAL_S: Final = 600.0
"""Interval of repeated commits without progress: committed offsets expire otherwise, and a deleted
group is restored."""

SHARED_CHECK_S: Final = 60.0
"""Minimum interval of checks for other programs that commit to the group."""

PART: Final = "part"
COMPLETE: Final = "complete"
PLANNED: Final = "planned"
"""Metadata of stored starts. The offsets of a start stored in several calls are valid once one is
COMPLETE. PLANNED: a micro-batch may have been planned from the start."""

logger = logging.getLogger(__name__)


def start_digest(options: ReadOptions) -> str:
    """Return a digest of the selection and start options, 16 hexadecimal digits, which identifies
    a start of a group. Other options may change between two runs of a query."""
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
    """The group of one run of a query. Not thread-safe."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        """`options` must have a group_id."""
        assert options.group_id is not None, "no groupId"
        self.name = options.group_id
        self._cluster = cluster
        self._start_group = f"{START_GROUP_PREFIX}{start_digest(options)}.{options.group_id}"
        self._may_have_start = options.starts_at_end  # a stored start may have to be deleted
        self._start: Offsets | None = None  # the stored start; None: unknown, or none
        self._is_planned = False  # the start is stored with PLANNED
        self._is_first = False  # this run has requested the start: batch 0 is not committed
        self._committed: Offsets | None = None  # the progress committed last
        self._committed_s = 0.0  # time of that commit, on time.monotonic()
        self._checked_s = time.monotonic()  # time of the last check for other programs
        self._paused_until_s = 0.0  # no commits before, on time.monotonic()

    # --- the start -----------------------------------------------------------------------------

    def start(self, resolve: Callable[[], Offsets]) -> Offsets:
        """Return the stored start, else the result of `resolve`, which is then stored. Raise the
        error of reading or storing it, and InvalidConfig without partitions, since an empty start
        cannot be stored."""
        self._is_first = True
        if self._start is None:
            self._start = self._stored_start(attempts=PATIENT_ATTEMPTS)
            if self._start is not None:
                logger.info("spark.start_again group=%s partitions=%d", self.name, len(self._start))
        if self._start is None:
            found = resolve()
            if not found:
                raise InvalidConfig(
                    "option 'startingOffsets' is 'latest' and no topic matches yet; use "
                    "'earliest': topics that match later are read from their first record anyway"
                )
            if len(found) > OFFSETS_A_CALL:
                self._store_start(found, PART)
            self._store_start(found, COMPLETE)
            self._start = found
        return self._start

    def replace_start(self, topics: Collection[str], starts: Offsets) -> None:
        """Replace the start of recreated topics; raise the error of storing it."""
        if self._start is None or not self._may_have_start:
            return
        kept = {place: at for place, at in self._start.items() if place.topic not in topics}
        found = kept | starts
        if found:
            self._store_start(found, PLANNED if self._is_planned else COMPLETE)
        self._start = found

    def mark_planned(self) -> None:
        """Record that a micro-batch is about to be planned. For the first one, mark the stored
        start as PLANNED; raise the error of storing it."""
        if self._is_first and not self._is_planned and self._start is not None:
            self._store_start(self._start, PLANNED)
            self._is_planned = True

    def check_planned(self) -> None:
        """Raise InvalidConfig if the first micro-batch was planned from another start than the one
        that `start` returned."""
        if self._is_first and not self._is_planned:
            raise InvalidConfig(
                "the start of the first micro-batch is unknown: another run of the query planned "
                f"it, and the group {self.name!r} has no stored start for these options; use the "
                "groupId, topics and starting options of that run, or a new checkpoint"
            )

    def _store_start(self, start: Offsets, note: str) -> None:
        must_exist = note != PLANNED  # do not wait for topics deleted since
        places = sorted(start)
        for begin in range(0, len(places), OFFSETS_A_CALL):
            part = {place: start[place] for place in places[begin : begin + OFFSETS_A_CALL]}

            def store(_: int, part: Offsets = part) -> None:
                self._commit(self._start_group, part, note=note, must_exist=must_exist)

            # No deadline: each commit already retries until the cluster's patience ends.
            limit = RetryLimit(now_ms(), PATIENT_ATTEMPTS)
            self._cluster.repeat("store_start", store, limit=limit)

    def _stored_start(
        self, *, attempts: int = 1, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> Offsets | None:
        stored = self._stored(self._start_group, attempts=attempts, timeout_ms=timeout_ms)
        notes = {note for _, note in stored.values()}
        self._is_planned = notes == {PLANNED}
        if not notes & {COMPLETE, PLANNED}:
            return None
        return {place: offset for place, (offset, _) in stored.items()}

    def _stored(
        self, group: str, *, attempts: int = 1, timeout_ms: int = COMMIT_TIMEOUT_MS
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Return the committed offsets of a group and their metadata."""
        answer = self._cluster.call(
            "fetch_offsets",
            GROUPS_FETCH_OFFSETS,
            groups_pb2.FetchOffsetsRequest(group=group),
            attempts=attempts,
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

    def commit_start(self, start: Mapping[TopicPartition, int], *, must: bool) -> None:
        """Commit the start of the query, so that its lag is visible before the first micro-batch
        ends. Raise the error if it `must` be committed."""
        if self._committed == start:
            return
        if not must:
            self._try_commit(start, attempts=FIRST_ATTEMPTS)
            return
        self._commit(self.name, start, attempts=PATIENT_ATTEMPTS)
        self._record_committed(start)

    def commit_progress(self, offsets: Mapping[TopicPartition, int], *, is_end: bool) -> None:
        """Commit the progress: offsets below are in committed micro-batches, or the offsets are the
        start. `is_end`: a micro-batch ended there. Raises no error."""
        now_s = time.monotonic()
        is_committed = self._committed == offsets and now_s < self._committed_s + COMMIT_INTERVAL_S
        if (is_committed and not self._may_have_start) or now_s < self._paused_until_s:
            return
        if not is_committed:
            self._try_commit(offsets)
        if self._may_have_start and time.monotonic() >= self._paused_until_s:
            self._attempt("delete the stored start", lambda: self._delete_start(offsets, is_end))

    def _try_commit(self, offsets: Mapping[TopicPartition, int], *, attempts: int = 1) -> None:
        self._check_shared()

        def commit() -> None:
            self._committed = None  # should the commit fail
            if offsets:
                self._commit(self.name, offsets, attempts=attempts, timeout_ms=COMMIT_TIMEOUT_MS)
            self._record_committed(offsets)

        self._attempt("commit the progress", commit)

    def _check_shared(self) -> None:
        """Log a warning if another program has committed to the group. Raises no error."""
        now_s = time.monotonic()
        if self._committed is None or now_s < self._checked_s + SHARED_CHECK_S:
            return
        self._checked_s = now_s
        try:
            stored = self._stored(self.name)
        except QuorumlogError as error:
            logger.info("spark.group_not_looked_at group=%s: %s", self.name, error)
            return
        for place, (there, _) in stored.items():
            here = self._committed.get(place, there)
            if there != here:
                logger.warning(
                    "spark.group_shared group=%s: %s is committed at %d, this query is at %d; "
                    "another query or program commits to the group. Give each its own groupId: "
                    "otherwise the lag is wrong and unread records are not held",
                    self.name,
                    place,
                    there,
                    here,
                )
                return

    def _record_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._committed = dict(offsets)
        self._committed_s = time.monotonic()

    def _delete_start(self, offsets: Mapping[TopicPartition, int], is_end: bool) -> None:
        if not is_end:
            if self._start is None:
                self._start = self._stored_start(timeout_ms=COMMIT_TIMEOUT_MS)
            if self._start == offsets:
                return  # no proof: the first micro-batch may not be committed
        answer = self._cluster.call(
            "delete_groups",
            GROUPS_DELETE,
            groups_pb2.DeleteGroupsRequest(groups=[self._start_group]),
            attempts=1,
            timeout_ms=COMMIT_TIMEOUT_MS,
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
            self._paused_until_s = time.monotonic() + COMMIT_RETRY_S
            logger.warning(
                "spark.group_silent group=%s: cannot %s; a micro-batch after %d s retries it: %s",
                self.name,
                what,
                COMMIT_RETRY_S,
                error,
            )

    def _commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        note: str = "",
        must_exist: bool = False,
        attempts: int = 1,
        timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> None:
        """Commit offsets; ignore partitions that do not exist, unless they `must_exist`."""
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
                attempts=attempts,
                timeout_ms=timeout_ms,
            )
            for result in answer.results:
                if result.HasField("error"):
                    failure = decode_error(result.error)
                    if must_exist or not isinstance(failure, UnknownTopicOrPartition):
                        raise failure
