"""Compaction compared with a dict: the final state that a reader of a cleaned log gets."""

import tempfile
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorumlog.records import _plain_clean
from quorumlog.records.compression import Codec
from quorumlog.records.control import MarkerType
from quorumlog.runtime.files import RealFiles
from quorumlog.storage import cleaner, compaction

from ...unit.storage.cleaning.compacted_log import Pair, Shelf

RETENTION_MS = 1_000

KEYS = st.sampled_from([b"a", b"b", b"", b"a longer key, of thirty bytes..", None])
VALUES = st.sampled_from([b"1", b"2", None, b"", b"value" * 20])
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
CODECS = st.sampled_from(list(Codec))
TIMES = st.one_of(st.integers(-1, 9_000), st.sampled_from([10**6, 2**62]))
CLEAN = st.tuples(
    st.just("clean"),
    st.sampled_from([1000, 5, 3, 2]),
    st.sampled_from([10**6, 300, 1]),
    st.sampled_from([2_000, 200]),
)
APPEND = st.tuples(
    st.just("append"), PAIRS, CODECS, st.sampled_from([-1, -1, 1, 2]), st.booleans(), TIMES
)
END = st.tuples(st.just("end"), st.sampled_from([1, 2]), st.sampled_from(list(MarkerType)))
ACTION = st.one_of(
    APPEND,
    st.tuples(st.just("transaction"), PAIRS, CODECS, st.sampled_from(list(MarkerType)), TIMES),
    END,
    st.tuples(st.just("roll")),
    CLEAN,
    st.tuples(st.just("wait"), st.sampled_from([600, 1_100, 1])),
    st.tuples(st.just("forget"), st.sampled_from([1, 2])),
)
ACTIONS = st.lists(ACTION, min_size=4, max_size=40)


@dataclass
class Kept:
    """A record of the model."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    producer: int  # of its transaction; -1: none
    transaction: int = -1  # its first offset


@dataclass
class Model:
    """Everything that was appended."""

    shelf: Shelf
    records: dict[int, Kept] = field(default_factory=dict)
    ended: dict[tuple[int, int], MarkerType] = field(default_factory=dict)
    markers: dict[tuple[int, int], int] = field(default_factory=dict)
    first_cleaned: dict[int, int] = field(default_factory=dict)  # times by tombstone

    def play(self, actions: list[tuple[Any, ...]]) -> None:
        for name, *arguments in actions:
            getattr(self, name)(*arguments)
        self.clean(1000, 10**6, 2_000)
        self.check_cleaned()

    def append(
        self, pairs: list[Pair], codec: Codec, producer: int, is_transactional: bool, time: int
    ) -> None:
        shelf = self.shelf
        is_transactional = producer >= 0 and (is_transactional or producer in shelf.open)
        first = shelf.append(
            *pairs,
            codec=codec,
            timestamp=time,
            producer=producer,
            is_transactional=is_transactional,
        )
        transaction = shelf.open[producer] if is_transactional else -1
        for at, (key, value) in enumerate(pairs):
            self.records[first + at] = Kept(
                time + at, key, value, producer if is_transactional else -1, transaction
            )

    def transaction(self, pairs: list[Pair], codec: Codec, kind: MarkerType, time: int) -> None:
        self.append(pairs, codec, 3, True, time)
        self.end(3, kind)

    def end(self, producer: int, kind: MarkerType) -> None:
        if producer in self.shelf.open:
            transaction = (producer, self.shelf.open[producer])
            self.ended[transaction] = kind
            self.markers[transaction] = self.shelf.end(producer, kind)

    def roll(self) -> None:
        if self.shelf.active:
            self.shelf.roll()

    def wait(self, ms: int) -> None:
        self.shelf.wall_ms += ms

    def forget(self, producer: int) -> None:
        if producer not in self.shelf.open:
            self.shelf.live.pop(producer, None)

    def clean(self, slots: int, budget: int, segment_bytes: int) -> None:
        self.roll()
        shelf = self.shelf
        while shelf.segments and shelf.first_dirty < shelf.end_limit:
            before = shelf.first_dirty
            cleaning = shelf.clean(
                budget_bytes=budget, map_bytes=24 * slots, segment_bytes=segment_bytes
            )
            assert before < cleaning.cleaned_to == shelf.first_dirty <= shelf.end_limit
            for offset, record in self.records.items():
                if record.value is None and offset < shelf.first_dirty:
                    self.first_cleaned.setdefault(offset, shelf.wall_ms)
            self.check()
            if slots > 2:
                break

    # --- checks ---

    def is_committed(self, record: Kept) -> bool:
        kind = self.ended.get((record.producer, record.transaction))
        return record.producer < 0 or kind is MarkerType.COMMIT

    def is_aborted(self, record: Kept) -> bool:
        return self.ended.get((record.producer, record.transaction)) is MarkerType.ABORT

    def check(self) -> None:
        """Check that a reader gets only appended records, in order, and every final state."""
        found = self.shelf.records()
        offsets = [record.offset for record in found]
        assert offsets == sorted(set(offsets))
        for record in found:
            known = self.records[record.offset]
            assert (record.timestamp_ms, record.key, record.value, record.headers) == (
                known.timestamp,
                known.key,
                known.value,
                (("h", b"1"),),
            )
        present = set(offsets)
        assert self.state(self.records.keys()) == self.state(present)
        self.check_tombstones(present)
        self.check_transactions(present)
        last_offsets = {header.last_offset for header in self.shelf.headers()}
        assert {last.last_offset for last in self.shelf.live.values()} <= last_offsets

    def state(self, offsets: Any) -> dict[bytes, bytes]:
        state: dict[bytes, bytes] = {}
        for offset in sorted(offsets):
            record = self.records[offset]
            if record.key is None or not self.is_committed(record):
                continue
            state.pop(record.key, None)
            if record.value is not None:
                state[record.key] = record.value
        return state

    def newest_below(self, end: int) -> dict[bytes, int]:
        return {
            record.key: offset
            for offset, record in sorted(self.records.items())
            if offset < end and record.key is not None and self.is_committed(record)
        }

    def check_tombstones(self, present: set[int]) -> None:
        """Check that a last tombstone stays for the retention time after its first cleaning."""
        for offset in self.newest_below(self.shelf.next_offset).values():
            if self.records[offset].value is not None:
                continue
            cleaned = self.first_cleaned.get(offset)
            if cleaned is None or self.shelf.wall_ms < cleaned + RETENTION_MS:
                assert offset in present

    def check_transactions(self, present: set[int]) -> None:
        """Check that as long as a record stays, so do the marker of its transaction and its entry
        in the index of aborted ones."""
        bases = {header.base_offset for header in self.shelf.headers() if header.is_control}
        for offset in present:
            record = self.records[offset]
            transaction = (record.producer, record.transaction)
            if record.producer >= 0 and transaction in self.ended:
                assert self.markers[transaction] in bases
            if self.is_aborted(record):
                assert transaction in {(e.producer_id, e.first_offset) for e in self.shelf.aborted}

    def check_cleaned(self) -> None:
        """Check that no record below the cleaned offset has a successor there."""
        end = self.shelf.first_dirty
        newest = self.newest_below(end)
        for record in self.shelf.records():
            if record.offset < end:
                assert record.key is not None
                assert newest[record.key] == record.offset


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=ACTIONS)
def test_a_cleaned_log_has_the_state_of_a_dict(actions: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Model(Shelf(RealFiles(), folder))
        model.append([(b"z", b"1")], Codec.NONE, -1, False, 0)
        model.play(actions)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=ACTIONS)
def test_both_codecs_clean_equally(actions: list[tuple[Any, ...]]) -> None:
    contents = []
    for is_plain in (False, True):
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            if is_plain:
                patch.setattr(cleaner, "KeyMap", _plain_clean.KeyMap)
                patch.setattr(compaction, "Sieve", _plain_clean.Sieve)
                patch.setattr(compaction, "rebase_records", _plain_clean.rebase_records)
            model = Model(Shelf(RealFiles(), folder))
            model.append([(b"z", b"1")], Codec.NONE, -1, False, 0)
            model.play(actions)
            contents.append((model.shelf.content(), model.shelf.aborted, model.shelf.first_dirty))
    assert contents[0] == contents[1]
