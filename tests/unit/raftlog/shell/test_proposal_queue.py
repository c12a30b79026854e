"""Proposals share batches. Each has its offset at once and gets its own outcome."""

import pytest

from quorumlog.errors import NotController, OutcomeUnknown, Overloaded, QuorumlogError
from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.shell.proposal_queue import VALUE_OVERHEAD, Proposal, ProposalQueue
from quorumlog.records.batch import HEADER_SIZE, parse_header
from quorumlog.records.codec import decode_batch

LOST, REFUSED = OutcomeUnknown("unknown"), NotController("not appended")


def gathering(*, bytes_max: int = 100_000, batch_bytes_max: int = 10_000) -> ProposalQueue:
    return ProposalQueue(bytes_max=bytes_max, batch_bytes_max=batch_bytes_max)


def add(into: ProposalQueue, *values: bytes, end: int = 7) -> Proposal:
    return into.add(list(values), log_end_offset=Offset(end), epoch=Epoch(3))


def append(gathered: ProposalQueue) -> int:
    batch = gathered.next_batch()
    gathered.appended(batch)
    return len(batch.proposals)


def test_gathered_proposals_follow_each_other_in_one_batch() -> None:
    proposals = gathering()
    first, second = add(proposals, b"a", b"b"), add(proposals, b"c")
    assert (first.base_offset, first.last_offset) == (7, 8)
    assert (second.base_offset, second.last_offset) == (9, 9)
    batch = proposals.next_batch()
    payload = batch.encode(123)
    header = parse_header(payload)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (7, 3, 3)
    assert [record.value for record in decode_batch(payload)] == [b"a", b"b", b"c"]


def test_a_proposal_is_never_spread_over_two_batches() -> None:
    proposals = gathering(batch_bytes_max=1_000)
    add(proposals, b"x" * 600)
    add(proposals, b"y" * 600, b"z" * 600)
    assert append(proposals) == 1
    batch = proposals.next_batch()
    assert batch.base_offset == 8
    assert len(batch.values) == 2


def test_refused_batch_is_built_again() -> None:
    proposals = gathering()
    add(proposals, b"a")
    assert proposals.next_batch().values == [b"a"]
    add(proposals, b"b")
    assert proposals.next_batch().values == [b"a", b"b"]


def test_proposals_over_the_limit_are_refused_until_delivery() -> None:
    proposals = gathering(bytes_max=1_000)
    add(proposals, b"x" * 2_000)  # a single larger proposal is accepted when the queue is empty
    with pytest.raises(Overloaded):
        add(proposals, b"y")
    append(proposals)
    with pytest.raises(Overloaded):
        add(proposals, b"y")
    proposals.complete_to(Offset(8))
    add(proposals, b"y", end=8)


def test_a_value_counts_for_at_least_what_it_takes_in_any_batch() -> None:
    proposals = gathering()
    add(proposals, b"x" * 100)
    assert len(proposals.next_batch().encode(2**47)) <= 100 + VALUE_OVERHEAD
    assert HEADER_SIZE < VALUE_OVERHEAD


def test_proposal_committed_before_the_leadership_ended_succeeds() -> None:
    proposals = gathering(batch_bytes_max=1)
    committed, pending, gathered = (add(proposals, b"%d" % n) for n in range(3))
    append(proposals)
    append(proposals)
    proposals.fail(Offset(8), appended=LOST, queued=REFUSED)
    assert outcomes(committed, pending, gathered) == ["pending", LOST, REFUSED]
    assert proposals.values_at(Offset(7), Epoch(3)) == [b"0"]
    assert proposals.values_at(Offset(7), Epoch(4)) is None
    proposals.complete_to(Offset(8))
    assert outcomes(committed) == [None]
    assert proposals.is_empty


def outcomes(*proposals: Proposal) -> list[QuorumlogError | str | None]:
    return [each.error if each.is_done else "pending" for each in proposals]
