"""Producers that commit offsets in transactions: fencing by epoch, markers, verification."""

import pytest

from quorumlog.broker.groups.transactional_producers import (
    EXPIRATION_MARGIN_MS,
    TransactionalProducers,
)
from quorumlog.errors import (
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    TransactionCoordinatorFenced,
)
from quorumlog.ids import ProducerIdentity
from quorumlog.records.control import TransactionMarker
from quorumlog.storage.producer_state import ProducerLimits

NOW_MS = 1_000
LIMITS = ProducerLimits(expiration_ms=1_000, producers_max=3)


def producer(epoch: int, producer_id: int = 7) -> ProducerIdentity:
    return ProducerIdentity(producer_id, epoch)


def marker(
    epoch: int, *, version: int = 2, coordinator_epoch: int = 1, producer_id: int = 7
) -> TransactionMarker:
    return TransactionMarker(producer(epoch, producer_id), coordinator_epoch, True, version)


def begun(epoch: int) -> TransactionalProducers:
    """Return producers, one of which has an open transaction."""
    producers = TransactionalProducers(LIMITS)
    producers.begin(producer(epoch), "x", NOW_MS)
    return producers


def ended(epoch: int, *, version: int = 2) -> TransactionalProducers:
    """Return producers, one of which has ended its transaction."""
    producers = TransactionalProducers(LIMITS)
    assert producers.end(marker(epoch, version=version), NOW_MS)
    return producers


# --- commits --------------------------------------------------------------------------------------


def test_first_commit_of_a_transaction_needs_a_verification() -> None:
    producers = TransactionalProducers(LIMITS)
    with pytest.raises(InvalidTxnState):
        producers.check_commit(producer(3), "x", None)
    guard = producers.guard(producer(3), "x")
    assert guard is not None
    producers.check_commit(producer(3), "x", guard)


def test_further_commits_of_an_open_transaction_need_no_verification() -> None:
    producers = begun(3)
    assert producers.guard(producer(3), "x") is None
    producers.check_commit(producer(3), "x", None)
    assert producers.guard(producer(4), "x") is not None  # the next transaction does


@pytest.mark.parametrize("known", ["x", None])
def test_commit_under_another_transactional_id_is_verified_in_an_open_transaction(
    known: str | None,
) -> None:
    """None: the id is unknown after a reload."""
    producers = TransactionalProducers(LIMITS)
    producers.begin(producer(3), known, NOW_MS)
    guard = producers.guard(producer(3), "y")
    assert guard is not None
    with pytest.raises(InvalidTxnState):
        producers.check_commit(producer(3), "y", None)
    producers.check_commit(producer(3), "y", guard)


def test_commit_with_an_older_epoch_is_refused() -> None:
    for producers in (begun(3), ended(3)):
        with pytest.raises(InvalidProducerEpoch):
            producers.guard(producer(2), "x")
        with pytest.raises(InvalidProducerEpoch):
            producers.check_commit(producer(2), "x", None)


@pytest.mark.parametrize("version", [0, 1])
def test_marker_of_the_older_protocol_ends_the_verifications_that_began_before_it(
    version: int,
) -> None:
    producers = TransactionalProducers(LIMITS)
    guard = producers.guard(producer(3), "x")
    producers.end(marker(3, version=version), NOW_MS)
    with pytest.raises(CoordinatorNotAvailable):
        producers.check_commit(producer(3), "x", guard)
    producers.check_commit(producer(3), "x", producers.guard(producer(3), "x"))


def test_marker_keeps_the_verification_of_the_next_transaction() -> None:
    for producers in (TransactionalProducers(LIMITS), ended(2), begun(2)):
        guard = producers.guard(producer(3), "x")
        assert producers.end(marker(3), NOW_MS)
        producers.check_commit(producer(3), "x", guard)


def test_repeated_marker_keeps_the_verification_of_the_next_transaction() -> None:
    producers = ended(3)
    guard = producers.guard(producer(3), "x")
    assert not producers.end(marker(3), NOW_MS)
    producers.check_commit(producer(3), "x", guard)


@pytest.mark.parametrize("version", [0, 1])
def test_repeated_marker_of_the_older_protocol_ends_verifications_too(version: int) -> None:
    producers = ended(3, version=version)
    guard = producers.guard(producer(3), "x")
    assert producers.end(marker(3, version=version), NOW_MS)
    with pytest.raises(CoordinatorNotAvailable):
        producers.check_commit(producer(3), "x", guard)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_refused_marker_of_an_older_epoch_ends_verifications_below_version_2(version: int) -> None:
    producers = begun(3)
    guard = producers.guard(producer(4), "x")
    with pytest.raises(InvalidProducerEpoch):
        producers.end(marker(2, version=version), NOW_MS)
    if version == 2:
        producers.check_commit(producer(4), "x", guard)
        return
    with pytest.raises(CoordinatorNotAvailable):
        producers.check_commit(producer(4), "x", guard)


def test_refused_marker_ends_the_verifications_of_lower_epochs() -> None:
    producers = TransactionalProducers(LIMITS)
    producers.end(marker(3, coordinator_epoch=5), NOW_MS)
    lower, next_one = producers.guard(producer(4), "x"), producers.guard(producer(5), "x")
    with pytest.raises(TransactionCoordinatorFenced):
        producers.end(marker(5, coordinator_epoch=4), NOW_MS)
    with pytest.raises(CoordinatorNotAvailable):
        producers.check_commit(producer(4), "x", lower)
    producers.check_commit(producer(5), "x", next_one)


def test_marker_of_another_producer_leaves_verifications_valid() -> None:
    producers = TransactionalProducers(LIMITS)
    guard = producers.guard(producer(3), "x")
    producers.end(marker(3, producer_id=8), NOW_MS)
    producers.check_commit(producer(3), "x", guard)


def test_reload_ends_verifications() -> None:
    guard = TransactionalProducers(LIMITS).guard(producer(3), "x")
    with pytest.raises(CoordinatorNotAvailable):
        TransactionalProducers(LIMITS).check_commit(producer(3), "x", guard)


# --- markers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_marker_of_an_unknown_producer_is_appended_and_fences(version: int) -> None:
    producers = ended(3, version=version)
    with pytest.raises(InvalidProducerEpoch):
        producers.check_commit(producer(2), "x", None)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_marker_of_a_newer_epoch_is_appended(version: int) -> None:
    for producers in (begun(3), ended(3)):
        assert producers.end(marker(4, version=version), NOW_MS)
        assert not producers.is_open(7)


def test_repeated_marker_is_acknowledged_and_not_appended() -> None:
    producers = ended(3)
    assert not producers.end(marker(3), NOW_MS)
    assert not producers.end(marker(3, coordinator_epoch=2), NOW_MS)


def test_marker_with_the_epoch_of_the_open_transaction_is_refused() -> None:
    producers = begun(3)
    with pytest.raises(InvalidProducerEpoch):
        producers.end(marker(3), NOW_MS)
    assert producers.is_open(7)


@pytest.mark.parametrize("version", [0, 1])
def test_older_protocol_ends_a_transaction_with_its_own_epoch(version: int) -> None:
    producers = begun(3)
    assert producers.end(marker(3, version=version), NOW_MS)
    assert not producers.is_open(7)
    assert producers.end(marker(3, version=version), NOW_MS)  # a repeat is stored again


@pytest.mark.parametrize("version", [0, 1, 2])
def test_marker_of_an_older_epoch_is_refused(version: int) -> None:
    for producers in (begun(3), ended(3)):
        with pytest.raises(InvalidProducerEpoch):
            producers.end(marker(2, version=version), NOW_MS)


def test_marker_of_an_older_coordinator_is_refused() -> None:
    producers = TransactionalProducers(LIMITS)
    producers.end(marker(3, coordinator_epoch=5), NOW_MS)
    producers.begin(producer(3), "x", NOW_MS)
    with pytest.raises(TransactionCoordinatorFenced):
        producers.end(marker(4, coordinator_epoch=4), NOW_MS)
    assert producers.end(marker(4, coordinator_epoch=5), NOW_MS)


# --- loading and expiry ---------------------------------------------------------------------------


def test_loaded_producers_fence_as_before() -> None:
    producers = TransactionalProducers(LIMITS)
    producers.begin(producer(3), "x", 0)
    producers.replay_marker(marker(4, version=0))
    producers.begin(producer(4), "x", 0)
    producers.loaded(NOW_MS)
    assert producers.guard(producer(4), "x") is None
    with pytest.raises(InvalidProducerEpoch):
        producers.end(marker(4), NOW_MS)


def test_idle_producers_are_forgotten_unless_a_transaction_is_open() -> None:
    producers = TransactionalProducers(LIMITS)
    producers.begin(producer(0, producer_id=1), "x", 0)
    producers.replay_marker(marker(0, producer_id=2))
    producers.loaded(NOW_MS)
    producers.expire(NOW_MS + 1_000 + EXPIRATION_MARGIN_MS - 1)
    assert len(producers) == 2
    producers.expire(NOW_MS + 1_000 + EXPIRATION_MARGIN_MS)
    assert len(producers) == 1
    assert producers.is_open(1)


def test_longest_idle_producers_are_forgotten_above_the_limit() -> None:
    producers = TransactionalProducers(LIMITS)
    for producer_id in (1, 2, 3):
        producers.begin(producer(0, producer_id=producer_id), "x", NOW_MS)
    for producer_id in (3, 2):  # 1 stays open
        producers.end(marker(1, producer_id=producer_id), NOW_MS)
    producers.begin(producer(0, producer_id=4), "x", NOW_MS)
    assert len(producers) == 3
    producers.check_commit(
        producer(0, producer_id=3), "x", producers.guard(producer(0, producer_id=3), "x")
    )
    with pytest.raises(InvalidProducerEpoch):
        producers.guard(producer(0, producer_id=2), "x")
    producers.begin(producer(0, producer_id=5), "x", NOW_MS)
    producers.begin(producer(0, producer_id=6), "x", NOW_MS)  # none is idle
    assert len(producers) == 4


def test_commit_is_verified_again_after_its_producer_was_forgotten_with_its_marker() -> None:
    """The marker that arrived during the verification is no longer known."""
    producers = TransactionalProducers(LIMITS)
    guard = producers.guard(producer(0, producer_id=1), "x")
    producers.end(marker(1, producer_id=1), NOW_MS)
    for producer_id in (2, 3, 4):
        producers.end(marker(1, producer_id=producer_id), NOW_MS)
    with pytest.raises(CoordinatorNotAvailable):
        producers.check_commit(producer(0, producer_id=1), "x", guard)
    producers.check_commit(
        producer(0, producer_id=1), "x", producers.guard(producer(0, producer_id=1), "x")
    )
