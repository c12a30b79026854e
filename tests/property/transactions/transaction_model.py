"""The rules of one transactional id in another form: identities as pairs, phases as words.

The response to a request is an identity, a list of errors, or the name of an error.
"""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

Identity: TypeAlias = tuple[int, int]
Part: TypeAlias = tuple[str, int]
LAST_EPOCH: Final = 32_766

FENCED = "PRODUCER_FENCED"
MAPPING = "INVALID_PRODUCER_ID_MAPPING"
CONCURRENT = "CONCURRENT_TRANSACTIONS"
INVALID = "INVALID_TXN_STATE"
NOT_FOUND = "TRANSACTIONAL_ID_NOT_FOUND"
ABORTABLE = "TRANSACTION_ABORTABLE"


@dataclass
class TransactionModel:
    """One transactional id that exists."""

    now: Identity  # of the open transaction, or of the next one
    phase: str = "idle"  # idle, open, deciding
    outcome: bool | None = None  # of the last transaction: True: commit; None: no transaction yet
    repeats_end: Identity | None = None  # EndTxn version 5 of this identity is a repetition
    repeats_init: Identity | None = None  # InitProducerId of this identity is a repetition
    markers: Identity | None = None
    marker_version: int = 0
    parts: dict[Part, bytes | None] = field(default_factory=dict)  # topic id of each partition
    left: dict[Part, bytes] = field(default_factory=dict)  # without an acknowledged marker
    begun_ms: int = 0
    changed_ms: int = 0
    timeout_ms: int = 0

    def wrong(self, producer: Identity) -> str | None:
        if producer == self.now and producer[1] <= LAST_EPOCH:
            return CONCURRENT if self.phase == "deciding" else None
        mine = {self.now[0]} | ({self.markers[0]} if self.markers and self.left else set())
        return FENCED if producer[0] in mine else MAPPING

    def bump(self, next_id: int) -> Identity:
        """Return the identity after the current one; `next_id` is a new producer id."""
        producer_id, epoch = self.now
        return (producer_id, epoch + 1) if epoch < LAST_EPOCH else (next_id, 0)

    # --- requests -----------------------------------------------------------------------------

    def init(
        self, current: Identity | None, *, next_id: int, topics: dict[str, bytes], level: int
    ) -> Identity | str:
        if self.phase == "deciding":
            return CONCURRENT
        if current is not None and current not in (self.now, self.repeats_init):
            return FENCED
        if self.phase == "open":
            if current not in (None, self.now):
                return FENCED
            self.coordinator_abort(
                next_id=next_id, topics=topics, level=level, keeps=current is not None
            )
            return CONCURRENT
        if current is None or current == self.now:
            before, self.now = self.now, self.bump(next_id)
            self.repeats_init = before if current is not None else None
        self.outcome = self.repeats_end = None
        return self.now

    def add(
        self, producer: Identity, parts: list[Part], *, topics: dict[str, bytes], now_ms: int
    ) -> list[str] | str:
        error = self.wrong(producer)
        if error:
            return error
        if any(topic not in topics for topic, _ in parts):
            return [
                "OPERATION_NOT_ATTEMPTED" if topic in topics else "UNKNOWN_TOPIC_OR_PARTITION"
                for topic, _ in parts
            ]
        if self.phase == "idle":
            self.phase, self.parts, self.begun_ms = "open", {}, now_ms
            if self.repeats_init is not None and self.repeats_init[0] != self.now[0]:
                self.repeats_init = None
            self.repeats_end = self.outcome = None
        for part in parts:
            self.parts[part] = None
        for part in self.parts:
            if part[0] in {topic for topic, _ in parts}:
                self.parts[part] = topics[part[0]]
        return [""] * len(parts)

    def verify(
        self, producer: Identity, parts: list[Part], *, topics: dict[str, bytes]
    ) -> list[str] | str:
        error = self.wrong(producer)
        if error:
            return error
        return [
            ""
            if self.phase == "open"
            and part in self.parts
            and topics.get(part[0]) is not None
            and self.parts[part] == topics.get(part[0])
            else ABORTABLE
            for part in parts
        ]

    def end(
        self,
        producer: Identity,
        commit: bool,
        *,
        version: int,
        next_id: int,
        topics: dict[str, bytes],
    ) -> Identity | str:
        repeated = self.repeats_end if version == 2 else self.now
        if producer == repeated and self.phase != "open" and self.outcome is not None:
            if commit != self.outcome:
                return INVALID
            return CONCURRENT if self.phase == "deciding" else self.now
        error = self.wrong(producer)
        if error:
            return error
        if self.phase == "idle" and (commit or version == 1):
            return INVALID
        if self.phase == "idle":
            self.parts = {}
        if version == 1:
            self.markers, self.marker_version, self.repeats_end = self.now, 0, None
        else:
            before = self.now
            self.now = self.bump(next_id)
            self.markers, self.marker_version = (before[0], before[1] + 1), 2
            self.repeats_end = self.repeats_init = before
        self.decide(commit, topics)
        return self.now

    def coordinator_abort(
        self, *, next_id: int, topics: dict[str, bytes], level: int, keeps: bool
    ) -> None:
        before = self.now
        self.markers = (before[0], before[1] + 1)
        self.now = self.bump(next_id) if level == 2 else self.markers
        self.marker_version = 2 if level == 2 else 0
        self.repeats_init = before if keeps and level == 2 else None
        self.repeats_end = self.repeats_init
        self.decide(False, topics)

    def operator_abort(self, *, next_id: int, topics: dict[str, bytes], level: int) -> str | None:
        if self.phase == "deciding":
            return CONCURRENT
        if self.phase == "idle":
            return INVALID
        self.coordinator_abort(next_id=next_id, topics=topics, level=level, keeps=False)
        return None

    # --- markers ------------------------------------------------------------------------------

    def decide(self, commit: bool, topics: dict[str, bytes]) -> None:
        self.outcome = commit
        self.left = {
            part: topic_id
            for part, topic_id in self.parts.items()
            if topic_id is not None and topics.get(part[0]) == topic_id
        }
        self.phase = "deciding" if self.left else "idle"

    def marked(self, markers: Identity, parts: list[tuple[Part, bytes]]) -> None:
        if self.phase == "deciding" and markers == self.markers:
            self.left = {
                part: topic_id
                for part, topic_id in self.left.items()
                if (part, topic_id) not in parts
            }
            self.phase = "deciding" if self.left else "idle"

    def topics_deleted(self, gone: set[bytes]) -> None:
        if self.phase == "deciding":
            self.left = {part: each for part, each in self.left.items() if each not in gone}
            self.phase = "deciding" if self.left else "idle"

    def loaded(self, topics: dict[str, bytes]) -> None:
        """Apply a change of leader: only names are left, and no acknowledgements."""
        self.parts = {part: topics.get(part[0]) for part in self.parts}
        if self.phase == "deciding":
            assert self.outcome is not None
            self.decide(self.outcome, topics)
