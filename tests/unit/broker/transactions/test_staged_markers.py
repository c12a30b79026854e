"""The markers of staged commits in the marker queue: many decided attempts of one name at once."""

from quorumlog.broker.transactions.marker_queue import MarkerQueue
from quorumlog.records.control import TransactionMarker

from .stage_play import StagePlay


def test_the_queue_keeps_every_attempt_of_a_name() -> None:
    play = StagePlay()
    winners = [play.sealed(0, 7, task=task) for task in range(3)]
    play.commit(0, 7, winners)
    queue = MarkerQueue()
    queue.image_changed(play.image, ())
    for _ in range(2):  # a repeated effect replaces the first one
        for effect in play.effects:
            marker = TransactionMarker(
                effect.producer, 5, effect.is_commit, effect.transaction_version
            )
            queue.add(0, marker, effect, play.now_ms)
    assert queue.marker_count() == 3
    queue.check_invariants()
    queue.drop(0, 5)
    assert queue.marker_count() == 0
