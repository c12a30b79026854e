"""The log view and the voters' history compared with plain lists, in any order of operations."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.kit.raft_member import batches_of, voters

from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.log_view import LOG_START, LogEnd, LogView
from quorumlog.raftlog.voters import VoterHistory, VoterSet

SETS = [voters(*range(1, count + 1)) for count in range(1, 6)]


class LogModel(RuleBasedStateMachine):
    """A list of (base, next, epoch, size), and the log start offset."""

    def __init__(self) -> None:
        super().__init__()
        self.log = LogView()
        self.batches: list[tuple[int, int, int, int]] = []
        self.start = LOG_START
        self.sets: list[tuple[int, VoterSet]] = [(-1, SETS[2])]
        self.history = VoterHistory(SETS[2], start_offset=Offset(0))

    @property
    def end(self) -> LogEnd:
        if not self.batches:
            return self.start
        _, after, epoch, _ = self.batches[-1]
        return LogEnd(Epoch(epoch), Offset(after))

    @property
    def boundaries(self) -> list[int]:
        return [self.start.offset, *(after for _, after, _, _ in self.batches)]

    def epoch_before(self, offset: int) -> int:
        found = [epoch for _, after, epoch, _ in self.batches if after == offset]
        return found[0] if found else self.start.epoch

    @rule(
        count=st.integers(1, 4),
        jump=st.sampled_from([0, 0, 0, 1, 3]),
        size=st.integers(1, 50),
        changed=st.none() | st.sampled_from(SETS),
    )
    def append(self, count: int, jump: int, size: int, changed: VoterSet | None) -> None:
        base, epoch = self.end.offset, max(1, self.end.epoch + jump)
        self.log.append(base, Offset(base + count), Epoch(epoch), size)
        self.batches.append((base, base + count, epoch, size))
        if changed is not None:
            self.history.append(base, changed)
            self.sets.append((base, changed))

    @rule(data=st.data())
    def truncate(self, data: Any) -> None:
        offset = data.draw(st.sampled_from(self.boundaries))
        self.log.truncate_to(Offset(offset))
        self.batches = [each for each in self.batches if each[1] <= offset]
        kept = [each for each in self.sets if each[0] < offset] or self.sets[:1]
        assert self.history.truncate_to(Offset(offset)) == (kept != self.sets)
        self.sets = kept

    @rule(data=st.data())
    def clean(self, data: Any) -> None:
        offset = data.draw(st.sampled_from(self.boundaries))
        start = LogEnd(Epoch(self.epoch_before(offset)), Offset(offset))
        self.log.clean_to(start)
        self.history.clean_to(Offset(offset))
        self.batches = [each for each in self.batches if each[0] >= offset]
        self.start = start
        below = [each for each in self.sets if each[0] < offset]
        self.sets = [*below[-1:], *(each for each in self.sets if each[0] >= offset)]

    @rule(ahead=st.integers(0, 5), epochs=st.integers(0, 2))
    def install(self, ahead: int, epochs: int) -> None:
        start = LogEnd(Epoch(self.end.epoch + epochs), Offset(self.end.offset + ahead))
        self.log.reset(start)
        self.batches, self.start = [], start
        self.sets = [(start.offset - 1, self.sets[-1][1])]
        self.history = VoterHistory(self.sets[0][1], start_offset=start.offset)

    @invariant()
    def the_end_is_the_end(self) -> None:
        self.log.check_invariants()
        assert (self.log.start, self.log.end) == (self.start, self.end)
        assert batches_of(self.log, self.log.start_offset) == [each[:3] for each in self.batches]

    @invariant()
    def every_offset_has_its_epoch_and_its_boundary(self) -> None:
        for base, after, epoch, _ in self.batches:
            for offset in range(base, after):
                assert self.log.epoch_at(Offset(offset)) == epoch
                assert self.log.is_boundary(Offset(offset)) == (offset == base)
                assert self.log.boundary_at_or_below(Offset(offset)) == base
        for offset in self.boundaries:
            assert self.log.epoch_before(Offset(offset)) == self.epoch_before(offset)

    @invariant()
    def every_epoch_ends_where_the_next_begins(self) -> None:
        for asked in range(self.start.epoch, self.end.epoch + 2):
            last = [each for each in self.batches if each[2] <= asked][-1:]
            expected = LogEnd(Epoch(last[0][2]), Offset(last[0][1])) if last else self.start
            assert self.log.end_offset_for(Epoch(asked)) == expected

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), bytes_max=st.integers(1, 200))
    def a_range_is_what_fits(self, data: Any, bytes_max: int) -> None:
        index = data.draw(st.integers(0, len(self.batches) - 1))
        taken = [self.batches[index]]
        for batch in self.batches[index + 1 :]:
            if sum(each[3] for each in taken) + batch[3] > bytes_max:
                break
            taken.append(batch)
        found = self.log.range_end(Offset(self.batches[index][0]), bytes_max=bytes_max)
        assert found == (taken[-1][1], sum(each[3] for each in taken))

    @invariant()
    def the_voters_are_those_of_the_last_record(self) -> None:
        assert self.history.latest == self.sets[-1][1]
        if len(self.sets) > 1:
            assert self.history.latest_offset == self.sets[-1][0]
        for offset in self.boundaries:
            below = [of for at, of in self.sets if at < offset] or [self.sets[0][1]]
            assert self.history.at(Offset(offset)) == below[-1]


TestLogModel = pytest.mark.slow(LogModel.TestCase)
