"""Staged commits: each call, each rule, and each row of the table of failures."""

from dataclasses import replace

import pytest

from quorumlog.broker.transactions import staged_commits
from quorumlog.broker.transactions.config import TransactionConfig
from quorumlog.broker.transactions.records import (
    CLIENT_EPOCH_MAX,
    AttemptState,
    FreeProducerId,
    ProducerIdForgotten,
    StagedAttempt,
    StagedNameForgotten,
)
from quorumlog.broker.transactions.requests import (
    VISIBLE_WAIT_MS,
    AbortReason,
    AbortTransaction,
    BeginAttempt,
    CommitStage,
    CommittedAttempt,
    CommittedBatch,
    DeleteStage,
    DescribeStage,
    DescribeTransaction,
    MarkerPartition,
    ResetStage,
    SealAttempt,
    SealedPartition,
    routing_id,
)
from quorumlog.broker.transactions.staged_commits import UNNAMED_RETENTION_MS
from quorumlog.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    FencedWrite,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    NumberTooOld,
    ProducerFenced,
    StagedAttemptsExceeded,
    StageLost,
    TransactionalIdInUse,
    TransactionalIdNotFound,
)
from quorumlog.ids import ProducerIdentity, TopicId
from quorumlog.staged_names import OPEN_TIMEOUT_MS, STAGE_TIMEOUT_MS_MAX

from .shard_play import FIRST_ID, TOPIC_A, TOPIC_A2, TOPIC_B, A, B, image_of
from .stage_play import NAME, STAGE_MS, StagePlay


@pytest.fixture
def play() -> StagePlay:
    return StagePlay()


# --- the way of a batch ---------------------------------------------------------------------------


def test_a_batch_is_begun_sealed_committed_and_visible(play: StagePlay) -> None:
    first = play.sealed(0, 7, A, task=0)
    second = play.sealed(0, 7, A, B, task=1)
    assert (first, second) == ((FIRST_ID, 0), (FIRST_ID + 1, 0))
    ticket = play.commit(0, 7, [first, second])
    assert ticket not in play.answers
    assert [effect.producer for effect in play.effects] == [(FIRST_ID, 1), (FIRST_ID + 1, 1)]
    assert all(effect.is_commit for effect in play.effects)
    assert play.effects[1].partitions == (
        MarkerPartition("a", 0, TOPIC_A, 9),  # P6: with the last sequence
        MarkerPartition("b", 1, TOPIC_B, 9),
    )
    play.mark(play.effects[0])
    assert ticket not in play.answers
    play.mark(play.effects[1])
    assert play.answer(ticket) == CommittedBatch(number=0, write_id=7, count=30)


def test_the_answer_waits_for_the_markers_for_a_bounded_time(play: StagePlay) -> None:
    first = play.commit(0, 7, [play.sealed(0, 7)])
    play.now_ms += VISIBLE_WAIT_MS - 1
    play.expire()
    again = play.commit(0, 7, [ProducerIdentity(FIRST_ID, 0)])
    play.now_ms += 1
    play.expire()
    assert play.answer(first) == CommittedBatch(number=0, write_id=7, count=10, is_visible=False)
    assert again not in play.answers
    play.mark_all()
    assert play.answer(again) == CommittedBatch(number=0, write_id=7, count=10)


def test_each_waiting_commit_gets_the_answer_of_its_own_number(play: StagePlay) -> None:
    first = play.commit(0, 7, [play.sealed(0, 7)])
    second = play.commit(1, 8, [play.sealed(1, 8)])
    play.mark(play.effects[1])
    assert second not in play.answers  # it is behind the first one
    play.mark(play.effects[0])
    assert play.answer(first) == CommittedBatch(number=0, write_id=7, count=10)
    assert play.answer(second) == CommittedBatch(number=1, write_id=8, count=10)
    third = play.commit(2, 9, [play.sealed(2, 9)])
    play.commit(3, 10, [play.sealed(3, 10)])
    play.mark(play.effects[2])
    assert play.answer(third).number == 2


def test_one_record_decides_a_commit(play: StagePlay) -> None:
    """The winner commits, and the record aborts every other attempt of the write."""
    winner = play.sealed(0, 7, task=0, attempt=1)
    loser = play.sealed(0, 7, task=0, attempt=2)
    running = play.opened(0, 7, B, task=1, attempt=3)
    size = len(play.log)
    play.commit(0, 7, [winner])
    assert len(play.log) == size + 1
    assert play.newest_name().committing == (winner,)
    expected = {
        winner.producer_id: True,
        loser.producer_id: False,
        running.producer_id: False,
    }
    assert play.outcomes() == expected
    play.reload()
    assert play.outcomes() == expected


def test_a_batch_follows_a_batch(play: StagePlay) -> None:
    for number in (0, 1, 5):
        play.committed(number, 7 + number)
    assert play.newest_name().last_committed == 5
    assert play.next_id == FIRST_ID + 1  # one id, with a higher epoch for each batch


def test_a_later_batch_does_not_disturb_the_markers_of_an_earlier_one(play: StagePlay) -> None:
    """Compaction keeps the newest record of a name only; it still lists what commits."""
    first = play.sealed(0, 7)
    play.commit(0, 7, [first])
    second = play.sealed(1, 8, B)
    play.commit(1, 8, [second])
    newest = dict(play.log)
    play.log = list(newest.items())
    play.reload()
    assert play.outcomes() == {first.producer_id: True, second.producer_id: True}


def test_names_are_independent(play: StagePlay) -> None:
    one = play.sealed(0, 7, name="x")
    other = play.sealed(0, 8, name="y")
    play.commit(0, 7, [one], name="x")
    assert play.outcomes() == {one.producer_id: True}
    with pytest.raises(StageLost):
        play.answer(play.commit(0, 8, [one], name="y"))
    play.commit(0, 8, [other], name="y")
    assert play.outcomes() == {one.producer_id: True, other.producer_id: True}


# --- Begin ------------------------------------------------------------------------------------


def test_a_committed_number_is_answered_with_its_count(play: StagePlay) -> None:
    play.committed(3, 7)
    assert play.begin(3, 8) == CommittedBatch(number=3, write_id=7, count=10)


def test_an_older_number_is_an_error_that_names_the_remedy(play: StagePlay) -> None:
    play.committed(3, 7)
    with pytest.raises(NumberTooOld, match="quorumlog commits reset"):
        play.begin(2, 8)
    for ask in (
        lambda: play.answer(play.commit(2, 8, [ProducerIdentity(FIRST_ID, 1)])),
        lambda: play.abort(2, 8),
    ):  # each may repeat a request of a committed batch
        with pytest.raises(NumberTooOld, match="if this write committed it before") as refused:
            ask()
        assert "commits reset" not in str(refused.value)


def test_a_repeated_begin_returns_its_producer(play: StagePlay) -> None:
    first = play.begin(0, 7, task=0, attempt=5)
    size = len(play.log)
    assert play.begin(0, 7, task=0, attempt=5) == first
    play.reload()
    assert play.begin(0, 7, task=0, attempt=5) == first
    assert len(play.log) == size
    assert play.begin(0, 7, task=0, attempt=6) == (FIRST_ID + 1, 0)
    with pytest.raises(InvalidRequest, match="belongs to task 0"):
        play.begin(0, 7, task=1, attempt=5)


def test_a_write_has_one_number(play: StagePlay) -> None:
    play.begin(0, 7)
    with pytest.raises(InvalidRequest, match="one number"):
        play.begin(1, 7, attempt=2)


def test_a_write_has_a_bounded_number_of_attempts() -> None:
    play = StagePlay(config=TransactionConfig(staged_attempts_max=3))
    for task in range(3):
        play.opened(0, 7, A, task=task)
    with pytest.raises(StagedAttemptsExceeded, match="use fewer tasks"):
        play.begin(0, 7, task=3)
    assert play.begin(0, 8) == (FIRST_ID + 3, 0)  # the next write aborts these


def test_attempts_without_their_markers_are_bounded() -> None:
    """A driver that restarts again and again is held back until the markers are written."""
    play = StagePlay(config=TransactionConfig(staged_attempts_max=3))
    for write in (7, 8):
        for task in range(3):
            play.opened(0, write, A, task=task)
    play.begin(0, 9)  # three attempts of write 7 abort, and three of write 8
    drawn = play.next_id
    for write in (9, 10):
        with pytest.raises(ConcurrentTransactions, match="wait for their markers"):
            play.begin(0, write, task=1)
    assert play.next_id == drawn
    play.mark_all()
    assert isinstance(play.begin(0, 10, task=1), ProducerIdentity)


def test_names_of_a_partition_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_commits, "NAMES_MAX", 2)
    play = StagePlay()
    for name in ("a", "b", "a"):
        play.begin(0, 7, name=name)
    with pytest.raises(StagedAttemptsExceeded, match="commits delete"):
        play.begin(0, 7, name="c")


@pytest.mark.parametrize("timeout_ms", [OPEN_TIMEOUT_MS - 1, STAGE_TIMEOUT_MS_MAX + 1])
def test_a_stage_timeout_has_bounds(play: StagePlay, timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout):
        play.ask(
            BeginAttempt(
                transactional_id=NAME,
                number=0,
                write_id=1,
                task=0,
                attempt=0,
                timeout_ms=timeout_ms,
            )
        )


def test_without_a_producer_id_at_hand_nothing_changes(play: StagePlay) -> None:
    play.opened(0, 7, A)
    play.has_ids = False
    with pytest.raises(CoordinatorLoading):
        play.begin(0, 8)
    assert play.effects == []


# --- partitions and seals ---------------------------------------------------------------------


def test_an_open_attempt_adds_and_verifies_partitions(play: StagePlay) -> None:
    producer = play.opened(0, 7, A)
    assert play.add_staged(producer, A, ("c", 0)) == [
        "OPERATION_NOT_ATTEMPTED",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    size = len(play.log)
    assert play.add_staged(producer, A) == [""]
    assert len(play.log) == size
    assert play.verify_staged(producer, A, B) == ["", "TRANSACTION_ABORTABLE"]


def test_a_seal_ends_the_writes_of_an_attempt(play: StagePlay) -> None:
    producer = play.sealed(0, 7, A)
    with pytest.raises(InvalidTxnState):
        play.add_staged(producer, B)
    with pytest.raises(InvalidTxnState):
        play.verify_staged(producer, A)
    size = len(play.log)
    play.seal(producer, {A: 10})  # repeated
    assert len(play.log) == size
    with pytest.raises(InvalidTxnState):
        play.seal(producer, {A: 11})


@pytest.mark.parametrize(
    ("count", "last_sequence"),
    [(-1, -1), (2**40 + 1, 0), (0, 0), (2, 2), (2, -1), (2**31, 2**31 - 2), (2**31 + 1, 1)],
)
def test_a_seal_has_the_last_sequence_of_its_records(
    play: StagePlay, count: int, last_sequence: int
) -> None:
    producer = play.opened(0, 7, A)
    with pytest.raises(InvalidRequest):
        play.ask(sealing(producer, count, last_sequence))
    assert play.verify_staged(producer, A) == [""]  # still open
    play.ask(sealing(producer, 2**31 + 1, 0))  # sequences count modulo 2^31
    play.commit(0, 7, [producer])
    (effect,) = play.effects
    assert effect.partitions[0].last_sequence == 0


def sealing(producer: ProducerIdentity, count: int, last_sequence: int) -> SealAttempt:
    sealed = SealedPartition(topic="a", partition=0, count=count, last_sequence=last_sequence)
    return SealAttempt(transactional_id=NAME, producer=producer, partitions=(sealed,))


def test_internal_topics_are_in_no_attempt() -> None:
    topics = {"a": TOPIC_A, "__consumer_offsets": TOPIC_B}
    play = StagePlay(image=image_of(topics))
    producer = play.opened(0, 7)
    for ask in (play.add_staged, play.verify_staged):
        with pytest.raises(InvalidRequest, match="__consumer_offsets is an internal topic"):
            ask(producer, ("__consumer_offsets", 0))
    assert play.newest_id() == StagedAttempt(
        producer_id=producer.producer_id,
        producer_epoch=0,
        transactional_id=NAME,
        number=0,
        write_id=7,
        task=0,
        attempt=0,
        state=AttemptState.OPEN,
        timeout_ms=STAGE_MS,
        started_ms=play.now_ms,
    )


def test_a_seal_lists_added_partitions_only(play: StagePlay) -> None:
    producer = play.opened(0, 7, A, B)
    with pytest.raises(InvalidRequest, match=r"^a-1: .* was not added"):
        play.seal(producer, {A: 1, ("a", 1): 1})
    play.seal(producer, {A: 1})  # nothing was written to the other one
    play.commit(0, 7, [producer])
    assert [each.last_sequence for each in play.effects[0].partitions] == [0, -1]


def test_other_identities_are_refused(play: StagePlay) -> None:
    producer = play.opened(0, 7, A)
    with pytest.raises(ProducerFenced):
        play.add_staged(ProducerIdentity(producer.producer_id, 1), B)
    with pytest.raises(InvalidProducerIdMapping):
        play.add_staged(ProducerIdentity(9, 0), B)
    with pytest.raises(ProducerFenced):
        play.add_staged(producer, B, name="other")
    with pytest.raises(StageLost):
        play.seal(ProducerIdentity(producer.producer_id, 1), {A: 1})


# --- Commit -----------------------------------------------------------------------------------


def lost(
    play: StagePlay, winners: list[CommittedAttempt], *, number: int = 0, write: int = 7
) -> str:
    """The text of StageLost; nothing changes."""
    size = len(play.log)
    with pytest.raises(StageLost) as caught:
        play.ask(
            CommitStage(
                transactional_id=NAME, number=number, write_id=write, attempts=tuple(winners)
            )
        )
    assert len(play.log) == size
    return str(caught.value)


def test_a_commit_fails_whole_for_one_attempt_that_is_not_sealed(play: StagePlay) -> None:
    sealed, opened = play.sealed(0, 7, task=0), play.opened(0, 7, A, task=1)
    winners = [CommittedAttempt(task=0, producer=sealed), CommittedAttempt(task=1, producer=opened)]
    assert "task 1: its attempt is not sealed" in lost(play, winners)
    play.seal(opened, {A: 10})
    play.commit(0, 7, [sealed, opened])
    assert set(play.outcomes().values()) == {True}


def test_a_commit_names_the_attempts_of_its_own_write(play: StagePlay) -> None:
    producer = play.sealed(0, 7)
    for task, epoch in ((1, 0), (0, 1)):
        winner = CommittedAttempt(task=task, producer=ProducerIdentity(producer.producer_id, epoch))
        lost(play, [winner])
    lost(play, [CommittedAttempt(task=0, producer=ProducerIdentity(9, 0))])
    lost(play, [CommittedAttempt(task=0, producer=producer)], number=1)


def test_a_commit_names_one_attempt_of_each_task(play: StagePlay) -> None:
    one, two = play.sealed(0, 7, attempt=1), play.sealed(0, 7, attempt=2)
    with pytest.raises(InvalidRequest, match="2 attempts of task 0"):
        play.ask(
            CommitStage(
                transactional_id=NAME,
                number=0,
                write_id=7,
                attempts=(
                    CommittedAttempt(task=0, producer=one),
                    CommittedAttempt(task=0, producer=two),
                ),
            )
        )
    with pytest.raises(InvalidRequest):
        play.answer(play.commit(0, 7, []))


# --- ids and partitions (P1, P2) --------------------------------------------------------------


def test_an_id_returns_to_the_pool_with_the_epoch_of_its_markers(play: StagePlay) -> None:
    producer = play.sealed(0, 7, A, B)
    play.commit(0, 7, [producer])
    assert play.begin(1, 8) == (FIRST_ID + 1, 0)  # the markers are not written yet
    [effect] = play.effects
    play.mark(replace(effect, partitions=effect.partitions[:1]))
    assert play.begin(1, 8, attempt=2) == (FIRST_ID + 2, 0)
    play.mark(effect)
    assert play.begin(1, 8, attempt=3) == (FIRST_ID, 1)
    play.reload()
    assert play.begin(1, 8, attempt=3) == (FIRST_ID, 1)


def test_a_late_report_of_an_earlier_attempt_changes_nothing(play: StagePlay) -> None:
    play.commit(0, 7, [play.sealed(0, 7)])
    [first] = play.effects
    play.mark_all()
    assert play.sealed(1, 8) == (FIRST_ID, 1)
    play.abort(1, 8)
    play.mark(first)
    assert play.shard.open_count == 1
    play.mark_all()
    assert play.shard.open_count == 0


def test_the_pool_survives_a_load(play: StagePlay) -> None:
    play.committed(0, 7)
    play.reload()
    assert play.begin(1, 8) == (FIRST_ID, 1)


def test_an_id_with_exhausted_epochs_is_dropped(play: StagePlay) -> None:
    play.store_staged(FreeProducerId(producer_id=50, producer_epoch=CLIENT_EPOCH_MAX))
    assert play.begin(0, 7) == (50, CLIENT_EPOCH_MAX)
    assert play.abort(0, 7) is None
    assert play.newest_id() == ProducerIdForgotten(producer_id=50)
    assert play.begin(0, 8) == (FIRST_ID, 0)


def test_the_pool_has_a_bound() -> None:
    play = StagePlay(config=TransactionConfig(staged_attempts_max=2))
    for name in ("x", "y", "z"):
        play.opened(0, 7, A, name=name)
    for name in ("x", "y", "z"):
        play.abort(0, 7, name=name)
    play.mark_all()
    assert play.newest_id() == ProducerIdForgotten(producer_id=FIRST_ID + 2)


def test_an_attempt_without_partitions_is_aborted_without_markers(play: StagePlay) -> None:
    producer = play.begin(0, 7)
    assert isinstance(producer, ProducerIdentity)
    play.abort(0, 7)
    assert play.effects == []
    with pytest.raises(ProducerFenced):
        play.add_staged(producer, A)


def test_a_sealed_attempt_without_partitions_commits_at_once(play: StagePlay) -> None:
    producer = play.opened(0, 7)
    play.seal(producer, {})
    assert play.answer(play.commit(0, 7, [producer])) == CommittedBatch(
        number=0, write_id=7, count=0
    )


# --- expiry -----------------------------------------------------------------------------------


def test_an_open_attempt_expires_without_a_sign_of_life(play: StagePlay) -> None:
    silent, alive = play.opened(0, 7, A, task=0), play.opened(0, 7, A, task=1)
    play.now_ms += OPEN_TIMEOUT_MS - 1
    play.keep_alive(alive)
    play.now_ms += 1
    [record] = play.expire()
    assert isinstance(record, StagedAttempt)
    assert (record.producer_id, record.state) == (silent.producer_id, AttemptState.ABORTING)
    assert play.effects[0].abort_reason is AbortReason.TIMEOUT
    with pytest.raises(StageLost):
        play.keep_alive(silent)
    with pytest.raises(StageLost):
        play.seal(silent, {A: 1})
    play.reload()  # expiry is a record
    assert play.outcomes() == {silent.producer_id: False}


def test_a_repeated_begin_extends_the_deadlines_of_its_attempt(play: StagePlay) -> None:
    producer = play.begin(0, 7)
    play.now_ms += OPEN_TIMEOUT_MS - 1
    assert play.begin(0, 7) == producer
    play.now_ms += OPEN_TIMEOUT_MS - 1
    assert play.expire() == []
    play.now_ms += 1
    assert play.expire() != []


def test_a_sealed_stage_expires_after_the_last_activity_of_its_write(play: StagePlay) -> None:
    early = play.sealed(0, 7, task=0)
    play.now_ms += STAGE_MS - 1
    late = play.opened(0, 7, A, task=1)
    for _ in range(20):
        play.now_ms += OPEN_TIMEOUT_MS - 1
        play.keep_alive(late)
        assert play.expire() == []
    play.seal(late, {A: 10})
    play.now_ms += STAGE_MS - 1
    assert play.expire() == []
    play.now_ms += 1
    play.expire()
    assert play.outcomes() == {early.producer_id: False, late.producer_id: False}


def test_live_attempts_restart_after_their_coordinator_refused_requests(play: StagePlay) -> None:
    opened, sealed = play.opened(0, 7, A, task=0), play.sealed(0, 7, task=1)
    aborted = play.opened(0, 7, A, task=2)
    play.abort(0, 7, aborted)
    play.now_ms += STAGE_MS
    play.shard.restart_sessions(play.now_ms)
    play.shard.check_invariants()
    assert play.expire() == []
    play.now_ms += OPEN_TIMEOUT_MS
    [record] = play.expire()
    assert isinstance(record, StagedAttempt)
    assert record.producer_id == opened.producer_id
    play.now_ms += STAGE_MS - OPEN_TIMEOUT_MS
    play.expire()
    assert play.outcomes() == dict.fromkeys(
        (each.producer_id for each in (aborted, opened, sealed)), False
    )


def begin_with_timeout(play: StagePlay, attempt: int, timeout_ms: int) -> ProducerIdentity:
    """A task attempt of batch 0 of the name "batch/7"."""
    producer = play.ask(
        BeginAttempt(
            transactional_id="batch/7",
            number=0,
            write_id=7,
            task=attempt,
            attempt=attempt,
            timeout_ms=timeout_ms,
        )
    )
    assert isinstance(producer, ProducerIdentity)
    return producer


@pytest.mark.parametrize("partitions", [(), (A,)])
def test_a_stage_and_its_open_attempt_expire_in_the_same_millisecond(
    play: StagePlay, partitions: tuple[tuple[str, int], ...]
) -> None:
    name = "batch/7"
    sealed = begin_with_timeout(play, 0, OPEN_TIMEOUT_MS)
    play.seal(sealed, {}, name=name)
    opened = begin_with_timeout(play, 1, OPEN_TIMEOUT_MS)
    play.add_staged(opened, *partitions, name=name)
    play.now_ms += OPEN_TIMEOUT_MS
    play.expire()
    assert [each.producer.producer_id for each in play.effects] == (
        [opened.producer_id] if partitions else []
    )
    play.mark_all()
    assert play.shard.open_count == 0


def test_a_name_is_forgotten_in_the_millisecond_of_its_stage_deadline(play: StagePlay) -> None:
    for attempt, timeout_ms in enumerate((UNNAMED_RETENTION_MS // 2, UNNAMED_RETENTION_MS)):
        producer = begin_with_timeout(play, attempt, timeout_ms)
        play.abort(0, 7, producer, name="batch/7")
    play.now_ms += UNNAMED_RETENTION_MS
    assert play.expire() == [StagedNameForgotten(transactional_id="batch/7")]
    assert list(filter(None, play.shard.staged_names())) == []


# --- the table of failures ------------------------------------------------------------------------


def test_a_retried_speculative_task_commits_once(play: StagePlay) -> None:
    """Task retry, speculation, stage retry: several sealed attempts of a task, one is named."""
    attempts = [play.sealed(0, 7, task=0, attempt=attempt) for attempt in range(3)]
    play.commit(0, 7, attempts[1:2])
    assert play.outcomes() == {
        producer.producer_id: producer == attempts[1] for producer in attempts
    }


def test_a_zombie_task_after_the_decision_is_refused(play: StagePlay) -> None:
    winner, zombie = play.sealed(0, 7, attempt=1), play.opened(0, 7, A, attempt=2)
    play.commit(0, 7, [winner])
    for _ in range(2):
        with pytest.raises(ProducerFenced):
            play.add_staged(zombie, B)
        with pytest.raises(ProducerFenced):
            play.verify_staged(zombie, A)
        with pytest.raises(StageLost):
            play.seal(zombie, {A: 10})
        play.mark_all()
    assert isinstance(play.begin(0, 7, attempt=3), CommittedBatch)


def test_a_driver_that_dies_before_the_commit_is_superseded(play: StagePlay) -> None:
    old = [play.sealed(0, 7, task=0), play.opened(0, 7, A, task=1)]
    size = len(play.log)
    new = play.opened(0, 8, A)
    assert len(play.log) == size + 3  # the name, the attempt, its partition
    assert play.outcomes() == {producer.producer_id: False for producer in old}
    play.reload()
    assert play.outcomes() == {producer.producer_id: False for producer in old}
    play.seal(new, {A: 10})
    play.commit(0, 8, [new])
    assert play.outcomes()[new.producer_id]


def test_a_stage_without_a_driver_expires(play: StagePlay) -> None:
    producer = play.sealed(0, 7)
    play.now_ms += STAGE_MS
    play.expire()
    play.mark_all()
    assert play.shard.open_count == 0
    lost(play, [CommittedAttempt(task=0, producer=producer)])
    assert play.begin(0, 8) == (FIRST_ID, 1)


def test_a_driver_that_dies_after_the_commit_finds_it_done(play: StagePlay) -> None:
    play.commit(0, 7, [play.sealed(0, 7)])
    play.reload()
    for task in range(3):
        assert play.begin(0, 8, task=task) == CommittedBatch(
            number=0, write_id=7, count=10, is_visible=False
        )
    assert play.newest_name().write_id == 7


@pytest.mark.parametrize("has_restarted", [False, True])
def test_a_late_commit_of_a_dead_driver_wins_before_the_restart_only(
    play: StagePlay, has_restarted: bool
) -> None:
    producer = play.sealed(0, 7)
    if has_restarted:
        play.begin(0, 8)
        with pytest.raises(FencedWrite):
            play.answer(play.commit(0, 7, [producer]))
        return
    play.commit(0, 7, [producer])
    assert isinstance(play.begin(0, 8), CommittedBatch)


def test_of_two_drivers_on_one_checkpoint_the_later_plan_wins(play: StagePlay) -> None:
    first = play.sealed(0, 7)
    second = play.sealed(0, 8)
    with pytest.raises(FencedWrite):
        play.begin(0, 7, task=1)
    with pytest.raises(FencedWrite):
        play.answer(play.commit(0, 7, [first]))
    play.commit(0, 8, [second])
    play.mark_all()
    # the loser sees whose batch it is
    assert play.answer(play.commit(0, 7, [first])).write_id == 8


def test_an_abort_after_a_lost_answer_has_no_effect(play: StagePlay) -> None:
    producer = play.sealed(0, 7)
    play.commit(0, 7, [producer])
    assert play.abort(0, 7) == CommittedBatch(number=0, write_id=7, count=10, is_visible=False)
    assert play.abort(0, 7, producer) is not None
    assert play.outcomes() == {producer.producer_id: True}


def test_an_abort_does_not_decide_the_number(play: StagePlay) -> None:
    producer = play.sealed(0, 7)
    assert play.abort(0, 7) is None
    assert play.outcomes() == {producer.producer_id: False}
    lost(play, [CommittedAttempt(task=0, producer=producer)])
    with pytest.raises(FencedWrite):
        play.begin(0, 7, attempt=2)
    play.committed(0, 8)


def test_an_abort_of_an_older_write_changes_nothing(play: StagePlay) -> None:
    play.sealed(0, 8)
    assert play.abort(0, 7) is None
    assert play.effects == []
    assert play.abort(0, 7, name="unknown") is None


@pytest.mark.parametrize("is_loaded", [False, True])
def test_an_aborted_write_without_attempts_cannot_begin(play: StagePlay, is_loaded: bool) -> None:
    """A task that starts after the abort of its driver."""
    older = play.sealed(0, 8)
    assert play.abort(0, 9) is None
    assert play.outcomes() == {older.producer_id: False}
    play.mark_all()
    if is_loaded:
        play.reload()
    with pytest.raises(FencedWrite, match="write 9 ended"):
        play.begin(0, 9)
    play.committed(0, 10)


def test_a_commit_of_a_write_without_attempts_is_refused(play: StagePlay) -> None:
    producer = play.sealed(0, 8)
    with pytest.raises(FencedWrite, match="write 9 has no attempts, the newest write is 8"):
        play.answer(play.commit(0, 9, [producer]))


def test_a_task_aborts_its_own_attempt(play: StagePlay) -> None:
    failed, other = play.opened(0, 7, A, task=0), play.sealed(0, 7, task=1)
    for _ in range(2):
        assert play.abort(0, 7, failed) is None
    assert play.outcomes() == {failed.producer_id: False}
    again = play.sealed(0, 7, task=0, attempt=9)
    play.commit(0, 7, [again, other])
    assert play.outcomes()[again.producer_id]


@pytest.mark.parametrize("commits", [False, True])
def test_a_new_coordinator_resends_the_markers(play: StagePlay, commits: bool) -> None:
    producer = play.sealed(0, 7, A, B)
    if commits:
        play.commit(0, 7, [producer])
    else:
        play.abort(0, 7)
    [before] = play.effects
    play.mark(replace(before, partitions=before.partitions[:1]))
    play.reload()
    [after] = play.effects
    assert after == replace(before, abort_reason=None)
    play.mark_all()
    assert play.shard.open_count == 0


def test_a_stage_that_expired_under_a_slow_job_is_lost(play: StagePlay) -> None:
    one, other = play.sealed(0, 7, task=0), play.sealed(0, 7, task=1)
    play.now_ms += STAGE_MS
    play.expire()
    for reload in (False, True):
        if reload:
            play.reload()
        winners = [CommittedAttempt(task=0, producer=one), CommittedAttempt(task=1, producer=other)]
        assert "expired or was aborted" in lost(play, winners)


def test_a_decision_stands_while_a_partition_has_no_leader(play: StagePlay) -> None:
    producer = play.sealed(0, 7, A, B)
    play.commit(0, 7, [producer])
    [effect] = play.effects
    play.mark(replace(effect, partitions=effect.partitions[:1]))
    following = play.sealed(1, 8, A)  # later batches are staged and committed
    play.commit(1, 8, [following])
    play.mark(play.effects[-1])
    assert play.begin(1, 9) == CommittedBatch(number=1, write_id=8, count=10, is_visible=False)
    play.mark(effect)
    assert play.begin(1, 9) == CommittedBatch(number=1, write_id=8, count=10)


def test_a_topic_that_is_deleted_after_the_decision_counts_as_marked(play: StagePlay) -> None:
    ticket = play.commit(0, 7, [play.sealed(0, 7, A, B)])
    play.change(image_of({"b": TOPIC_B}))
    assert ticket not in play.answers
    play.change(image_of({}))
    assert play.answer(ticket).is_visible


@pytest.mark.parametrize("topics", [{"b": TOPIC_B}, {"a": TOPIC_A2, "b": TOPIC_B}])
def test_a_topic_that_is_deleted_before_the_commit_loses_the_stage(
    play: StagePlay, topics: dict[str, TopicId]
) -> None:
    producer = play.sealed(0, 7, A, B)
    play.change(image_of(topics))
    assert "topic a was deleted" in lost(play, [CommittedAttempt(task=0, producer=producer)])


def test_a_commit_after_a_failover_to_a_mirror_finds_nothing(play: StagePlay) -> None:
    with pytest.raises(StageLost, match="nothing is staged"):
        play.answer(play.commit(0, 7, [ProducerIdentity(FIRST_ID, 0)]))


def test_a_reused_number_returns_the_count_of_the_winners(play: StagePlay) -> None:
    """The driver compares it with what its tasks drained: COMMITTED_BATCH_DIFFERS."""
    winners = [play.sealed(0, 7, A, task=0), play.sealed(0, 7, A, B, task=1)]
    play.sealed(0, 7, A, task=1, attempt=5)
    play.commit(0, 7, winners)
    found = play.begin(0, 8)
    assert isinstance(found, CommittedBatch)
    assert found.count == 30


# --- names ------------------------------------------------------------------------------------


def test_a_name_of_one_write_is_deleted_some_time_after_its_last_marker(play: StagePlay) -> None:
    name = "batch/7"
    producer = play.sealed(0, 7, name=name)
    play.commit(0, 7, [producer], name=name)
    play.now_ms += UNNAMED_RETENTION_MS
    assert play.expire() == []
    play.mark_all()
    play.now_ms += UNNAMED_RETENTION_MS - 1
    play.expire()
    assert play.answer(play.commit(0, 7, [producer], name=name)).count == 10
    play.now_ms += 1
    assert play.expire() == [StagedNameForgotten(transactional_id=name)]
    assert list(filter(None, play.shard.staged_names())) == []
    play.reload()
    assert list(filter(None, play.shard.staged_names())) == []
    with pytest.raises(StageLost, match="committed more than 24 h ago; check its records"):
        play.answer(play.commit(0, 7, [producer], name=name))


def test_a_name_does_not_expire(play: StagePlay) -> None:
    play.committed(0, 7)
    play.now_ms += 365 * 24 * 3_600_000
    assert play.expire() == []
    assert [each.name for each in list(filter(None, play.shard.staged_names()))] == [NAME]


def test_a_reset_sets_the_last_number_and_ends_the_write(play: StagePlay) -> None:
    play.committed(5, 7)
    producer = play.sealed(6, 8)
    play.ask(ResetStage(transactional_id=NAME, last_committed=2))
    assert play.outcomes() == {producer.producer_id: False}
    with pytest.raises(FencedWrite):
        play.begin(3, 8)
    play.committed(3, 9)
    with pytest.raises(InvalidRequest):
        play.ask(ResetStage(transactional_id=NAME, last_committed=-2))
    with pytest.raises(TransactionalIdNotFound):
        play.ask(ResetStage(transactional_id="unknown", last_committed=2))


def test_a_name_with_attempts_is_not_deleted(play: StagePlay) -> None:
    play.opened(0, 7, A)
    with pytest.raises(InvalidTxnState, match=f"quorumlog transactions abort {NAME}"):
        play.ask(DeleteStage(transactional_id=NAME))
    play.abort(0, 7)
    play.mark_all()
    play.ask(DeleteStage(transactional_id=NAME))
    play.reload()
    assert list(filter(None, play.shard.staged_names())) == []
    with pytest.raises(TransactionalIdNotFound):
        play.ask(DeleteStage(transactional_id=NAME))


def test_attempts_are_listed_as_transactions(play: StagePlay) -> None:
    """P5: an operator sees what holds the last stable offset, and ends it by the name."""
    opened, sealed = play.opened(0, 7, A, task=0), play.sealed(0, 7, task=1)
    play.init(name="t")
    assert [
        (each.transactional_id, each.state) for each in filter(None, play.shard.listings())
    ] == [
        ("t", "Empty"),
        (f"{NAME}#{opened.producer_id}", "Ongoing"),
        (f"{NAME}#{sealed.producer_id}", "Ongoing"),
    ]
    described = play.ask(DescribeStage(transactional_id=NAME))
    assert (described.stage.attempts, described.stage.last_committed) == (2, -1)
    play.ask(AbortTransaction(transactional_id=NAME))
    assert play.outcomes() == {opened.producer_id: False, sealed.producer_id: False}
    with pytest.raises(InvalidTxnState):
        play.ask(AbortTransaction(transactional_id=NAME))


def test_a_listed_attempt_is_described_and_aborted(play: StagePlay) -> None:
    first, second = play.opened(0, 7, A, B), play.sealed(0, 7, task=1)
    listed = f"{NAME}#{first.producer_id}"
    found = play.ask(DescribeTransaction(transactional_id=listed))
    assert (found.state, found.producer, found.partitions) == ("Ongoing", first, (A, B))
    assert play.ask(AbortTransaction(transactional_id=listed)) == (first.producer_id, 1)
    with pytest.raises(ConcurrentTransactions):
        play.ask(AbortTransaction(transactional_id=listed))
    assert play.outcomes() == {first.producer_id: False}
    play.mark_all()
    for missing in (listed, f"{NAME}#", f"{NAME}#x", f"x#{second.producer_id}", "#1"):
        with pytest.raises(TransactionalIdNotFound):
            play.ask(DescribeTransaction(transactional_id=missing))
        with pytest.raises(TransactionalIdNotFound):
            play.ask(AbortTransaction(transactional_id=missing))
    play.commit(0, 7, [second])


@pytest.mark.parametrize(
    ("transactional_id", "routed"),
    [
        ("a#1", "a"),
        ("a#1#22", "a"),
        ("a#b#1", "a#b"),
        ("a", "a"),
        ("a#", "a#"),
        ("a#b", "a#b"),
        ("#1", "#1"),
        ("#1#2", "#1"),
        ("a#\u0661", "a#\u0661"),
    ],
)
def test_a_listed_attempt_has_the_coordinator_of_its_name(
    transactional_id: str, routed: str
) -> None:
    assert routing_id(transactional_id) == routed
    assert routing_id(f"{transactional_id}#7") == routed  # an attempt of this name


def test_transactional_ids_and_names_do_not_share_producer_ids(play: StagePlay) -> None:
    producer = play.init(name="t")
    staged = play.opened(0, 7, A)
    assert play.add(producer, B, name="t") == [""]
    play.end(producer, name="t")
    play.commit(0, 7, [staged])
    with pytest.raises(StageLost):
        play.answer(play.commit(1, 7, [producer]))
    assert play.outcomes() == {producer.producer_id: True}


def test_a_name_and_a_transactional_id_exclude_each_other(play: StagePlay) -> None:
    play.init(name="t")
    with pytest.raises(TransactionalIdInUse):
        play.begin(0, 7, name="t")
    staged = play.opened(0, 7, A)
    with pytest.raises(TransactionalIdInUse):
        play.init(name=NAME)
    with pytest.raises(TransactionalIdInUse):
        play.end(staged, name=NAME)
    assert play.shard.id_count == 1
