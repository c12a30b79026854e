"""The Raft paper, one test for each rule: figure 2, sections 5.3, 5.4.2, 5.5, 5.6 and 8.

The paper's AppendEntries RPC is an AppendRequest, nextIndex and matchIndex are a peer's next and
match end, commitIndex is the high watermark. A request without entries is a probe: it only compares
the logs.
"""

import pytest
from tests.kit.quorum import Quorum
from tests.kit.raft_member import batches_of, data, voter

from quorumlog.errors import NotController
from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.log_view import Entry, EntryKind, LogEnd
from quorumlog.raftlog.messages import AppendRejected, AppendRequest, AppendResponse, Message


def append(
    *entries: Entry, prev: tuple[int, int], epoch: int = 5, hw: int = 0, sender: int = 1
) -> AppendRequest:
    """Build a request from node 1 to node 2; `prev` is (offset, epoch)."""
    return AppendRequest(
        sender=voter(sender),
        receiver=voter(2),
        epoch=Epoch(epoch),
        prev=LogEnd(Epoch(prev[1]), Offset(prev[0])),
        entries=entries,
        high_watermark=Offset(hw),
    )


def follower(*epochs: int) -> Quorum:
    """Return node 2 with one entry of each epoch."""
    quorum = Quorum()
    quorum.prepare(2, list(epochs))
    quorum.restart(2)
    return quorum


def answer(quorum: Quorum, request: AppendRequest) -> Message:
    """Return the last response of node 2, after its writes are durable."""
    quorum.flying.clear()
    quorum.step(request)
    while quorum.persist(2):
        pass
    return quorum.flying[-1]


def epochs_of(quorum: Quorum, node_id: int) -> list[int]:
    log = quorum[node_id].log
    return [epoch for _, _, epoch in batches_of(log, log.start_offset)]


# --- figure 2: AppendEntries, receiver -----------------------------------------------------------


@pytest.mark.parametrize(
    ("prev", "fits"),
    [
        ((0, 0), True),
        ((1, 1), True),
        ((3, 2), True),
        ((2, 1), False),
        ((3, 3), False),
        ((4, 2), False),
        ((9, 5), False),
    ],
)
def test_no_entry_matches_the_previous_one(prev: tuple[int, int], fits: bool) -> None:
    """Receiver 2: "reply false if log doesn't contain an entry at prevLogIndex whose term matches
    prevLogTerm"."""
    quorum = follower(1, 2, 2)
    said = answer(quorum, append(prev=prev))
    assert isinstance(said, AppendResponse if fits else AppendRejected)
    assert epochs_of(quorum, 2) == [1, 2, 2], "a probe changes nothing"


def test_conflicting_entry_and_all_that_follow_are_truncated() -> None:
    """Receiver 3."""
    quorum = follower(1, 2, 2, 2)
    answer(quorum, append(data(1, 3), prev=(1, 1)))
    assert epochs_of(quorum, 2) == [1, 3]
    assert [entry.epoch for entry in quorum.members[2].disk.entries] == [1, 3]


def test_entries_that_are_there_already_stay_and_so_does_what_follows_them() -> None:
    """Receiver 3 and 4: truncation on conflict only (B7)."""
    quorum = follower(1, 2, 2, 2)
    answer(quorum, append(data(1, 2), prev=(1, 1)))
    assert epochs_of(quorum, 2) == [1, 2, 2, 2]


def test_new_entries_are_appended() -> None:
    """Receiver 4: "append any new entries not already in the log"."""
    quorum = follower(1, 2)
    said = answer(quorum, append(data(1, 2), data(2, 2), data(3, 5), prev=(1, 1)))
    assert epochs_of(quorum, 2) == [1, 2, 2, 5]
    assert isinstance(said, AppendResponse)
    assert (said.match_end, said.received_end) == (4, 4)


@pytest.mark.parametrize(("leader_commit", "committed"), [(0, 0), (1, 1), (2, 2), (9, 2)])
def test_the_commit_is_the_lower_of_the_leaders_and_the_last_new_entry(
    leader_commit: int, committed: int
) -> None:
    """Receiver 5: min(leaderCommit, index of last new entry). Later entries of the own log may be
    any others (B8)."""
    quorum = follower(1, 2, 2, 2)
    quorum.step(append(data(1, 2), prev=(1, 1), hw=leader_commit))
    assert quorum[2].high_watermark == committed


def test_nothing_is_acknowledged_before_it_is_durable() -> None:
    """Figure 2, persistent state: "updated on stable storage before responding to RPCs"."""
    quorum = follower()
    quorum.step(append(data(0, 5), prev=(0, 0)))
    assert not quorum.flying
    quorum.persist(2)
    assert not quorum.flying or quorum.members[2].writing is None
    quorum.persist(2)
    (said,) = quorum.flying
    assert isinstance(said, AppendResponse)
    assert said.match_end == 1


# --- figure 2: leaders ---------------------------------------------------------------------------


def test_new_leader_probes_from_the_end_of_its_own_log() -> None:
    """Volatile state on leaders: nextIndex is initialised to the leader's last index + 1."""
    quorum = Quorum()
    quorum.prepare(1, [1, 1, 1])
    quorum.restart(1)
    quorum.campaign(1)
    quorum.deliver_all()
    quorum.deliver_all()
    quorum.persist(1)
    quorum.deliver_all()
    for node_id in (2, 3):
        while quorum.persist(node_id):
            pass
    quorum.deliver_all()
    asked = [m for m in quorum.flying if isinstance(m, AppendRequest)]
    assert [(m.receiver, m.prev, m.entries) for m in asked] == [
        (voter(node_id), LogEnd(Epoch(1), Offset(3)), ()) for node_id in (2, 3)
    ]


def test_a_proposal_is_appended_locally_and_sent_to_all() -> None:
    """Leaders 2: "append entry to local log, respond after entry applied to state machine"."""
    quorum = Quorum()
    quorum.elect(1)
    start = quorum[1].log.end_offset
    quorum.propose(1, "a", count=3)
    assert quorum[1].log.end_offset == start + 3
    sent = [m for m in quorum.flying if isinstance(m, AppendRequest)]
    assert [m.receiver for m in sent] == [voter(2), voter(3)]
    assert all(m.entries[0].payload == b"a" for m in sent)
    assert quorum[1].high_watermark == start


def test_follower_refuses_proposals_and_names_the_leader() -> None:
    quorum = Quorum()
    with pytest.raises(NotController):
        quorum.propose(2, "a")
    quorum.elect(1)
    with pytest.raises(NotController, match="node 1 is") as caught:
        quorum.propose(2, "a")
    assert caught.value.leader_id == 1


def test_next_offset_decreases_until_the_logs_match() -> None:
    """Leaders 3: "if AppendEntries fails because of log inconsistency: decrement nextIndex and
    retry"; here by whole epochs, as 5.3 proposes."""
    quorum = Quorum()
    quorum.prepare(1, [1, 1, 4, 4, 5, 5])
    quorum.prepare(2, [1, 1, 2, 2, 3, 3, 3])
    quorum.prepare(3, [1, 1, 4, 4, 5, 5])
    for node_id in (1, 2, 3):
        quorum.restart(node_id)
    quorum.elect(1)
    assert epochs_of(quorum, 2) == epochs_of(quorum, 1)
    assert quorum.members[2].disk.entries == quorum.members[1].disk.entries


def test_lost_requests_are_repeated_indefinitely() -> None:
    """5.3: "the leader retries AppendEntries RPCs indefinitely"."""
    quorum = Quorum()
    quorum.elect(1)
    quorum.isolate(3)
    quorum.propose(1, "a")
    quorum.run(2_000)
    quorum.heal()
    quorum.run(500)
    assert quorum.members[3].state == ["a"]


@pytest.mark.parametrize(("size", "acks"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_an_entry_is_committed_once_a_majority_has_it(size: int, acks: int) -> None:
    """Leaders 4 and 5.3: the leader counts itself, with its durable entries."""
    quorum = Quorum(range(1, size + 1))
    quorum.elect(1)
    start = quorum[1].high_watermark
    quorum.propose(1, "a")
    quorum.persist(1)
    for node_id in range(2, size + 1):
        have = node_id - 2
        assert (quorum[1].high_watermark > start) is (have >= acks)
        quorum.deliver_all(to=node_id)
        quorum.persist(node_id)
        quorum.deliver_all(to=1)
    assert quorum[1].high_watermark == start + 1


def test_followers_learn_of_a_commit_and_apply_it_in_order() -> None:
    """5.3: "once a follower learns that a log entry is committed, it applies the entry to its
    local state machine (in log order)"."""
    quorum = Quorum()
    quorum.elect(1)
    for value in "abcdef":
        quorum.propose(1, value)
    quorum.settle()
    assert [quorum.members[n].state for n in (1, 2, 3)] == [list("abcdef")] * 3


def test_commit_includes_all_preceding_entries() -> None:
    """5.3: "this also commits all preceding entries in the leader's log, including entries created
    by previous leaders"."""
    quorum = Quorum()
    quorum.prepare(1, [1, 2])
    quorum.restart(1)
    quorum.elect(1)
    assert quorum[1].high_watermark == quorum[1].log.end_offset
    assert quorum.members[3].state == ["v0", "v1"]


def test_leader_only_appends_to_its_own_log() -> None:
    """Figure 3, leader append-only. A leader ignores requests of its own epoch."""
    quorum = Quorum()
    quorum.elect(2)
    before = epochs_of(quorum, 2)
    quorum.step(append(data(0, 1, "other"), prev=(0, 0), epoch=quorum[2].epoch, sender=3))
    assert epochs_of(quorum, 2) == before
    assert quorum[2].is_leader


def test_entries_with_one_offset_and_epoch_are_one_entry() -> None:
    """Figure 3, log matching: entries of one offset and epoch are equal without a comparison."""
    quorum = Quorum()
    quorum.elect(1)
    quorum.propose(1, "a")
    quorum.settle()
    logs = [quorum.members[n].disk.entries for n in (1, 2, 3)]
    assert logs[0] == logs[1] == logs[2]


# --- 5.4.2, 8 ------------------------------------------------------------------------------------


def test_entries_of_older_epochs_are_not_committed_by_counting() -> None:
    """5.4.2 and figure 8 (B6): an old entry on a majority may yet be overwritten."""
    quorum = Quorum(range(1, 6), append_bytes_max=1)  # every entry is sent alone
    quorum.prepare(1, [1, 2])
    quorum.prepare(2, [1, 2])
    quorum.prepare(3, [1])
    quorum.prepare(4, [1])
    quorum.prepare(5, [1, 3])
    for node_id in range(1, 6):
        quorum.restart(node_id)
    quorum.split({1, 2, 3, 4}, {5})
    quorum.campaign(1)
    for _ in range(12):  # elected; from here on no write of the leader completes
        for node_id in (2, 3, 4):
            quorum.persist(node_id)
        if not quorum[1].is_leader:
            quorum.persist(1)
        quorum.flying = [
            m for m in quorum.flying if not (isinstance(m, AppendRequest) and m.end_offset > 2)
        ]
        quorum.deliver_all()
    assert quorum[1].is_leader
    holders = [n for n in range(1, 5) if quorum.members[n].disk.end_offset == 2]
    assert holders == [1, 2, 3, 4], "the old entry is on a majority, the no-op on no disk"
    assert quorum[1].high_watermark == 0
    quorum.settle()
    quorum.run(200)
    assert quorum[1].high_watermark == quorum[1].log.end_offset


def test_a_leader_opens_its_epoch_with_an_entry_of_its_own() -> None:
    """Section 8: "each leader commit a blank no-op entry at the start of its term"."""
    quorum = Quorum()
    quorum.elect(1)
    first = quorum.members[1].disk.entries[0]
    assert (first.kind, first.epoch, first.base_offset) == (EntryKind.LEADER_CHANGE, 1, 0)
    assert quorum[1].high_watermark >= 1


# --- 5.5, 5.6: crashes and time ------------------------------------------------------------------


def test_duplicate_request_changes_nothing() -> None:
    """5.5: "Raft RPCs are idempotent"."""
    quorum = follower(1)
    request = append(data(1, 5), data(2, 5), prev=(1, 1), hw=3)
    first = answer(quorum, request)
    state = (epochs_of(quorum, 2), quorum[2].high_watermark)
    assert answer(quorum, request) == first
    assert (epochs_of(quorum, 2), quorum[2].high_watermark) == state


def test_a_crashed_follower_catches_up_after_its_restart() -> None:
    """5.5."""
    quorum = Quorum()
    quorum.elect(1)
    quorum.crash(3)
    for value in "abc":
        quorum.propose(1, value)
    quorum.settle()
    quorum.restart(3)
    quorum.run(300)
    assert quorum.members[3].state == ["a", "b", "c"]


def test_safety_does_not_depend_on_time() -> None:
    """5.6: wrong clocks cost leaderships, but never entries or a second leader."""
    quorum = Quorum()
    quorum.elect(1)
    for turn in range(30):
        node_id = turn % 3 + 1
        quorum.tick(700 * (turn % 5), node_id)
        for leader in (1, 2, 3):
            if quorum[leader].is_leader:
                quorum.propose(leader, f"v{turn}")
        quorum.settle()
    quorum.run(5_000)
    states = [quorum.members[n].state for n in (1, 2, 3)]
    assert states[0] == states[1] == states[2]
    assert len(states[0]) == len(set(states[0]))
