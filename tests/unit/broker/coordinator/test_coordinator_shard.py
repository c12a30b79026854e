"""Effects, transactional batches and control batches of a shard, on whole simulated nodes."""

import asyncio

import pytest

from quorumlog.errors import CoordinatorNotAvailable
from quorumlog.ids import ProducerIdentity
from quorumlog.records import iterate_batches
from quorumlog.records.control import TransactionMarker
from quorumlog.runtime import Runtime

from .ledger import TOPIC, Ledgers, Put, ledgers

pytestmark = pytest.mark.plain  # subclasses of compiled classes must be compiled

PRODUCER = ProducerIdentity(7, 3)
MARKER = TransactionMarker(PRODUCER, 5, True, 0)


def headers(opened: Ledgers, number: int) -> list[tuple[int, int, bool, bool, int]]:
    """Return producer id, epoch, the two flags and the record count of each batch of the log."""
    log = opened.nodes.replica(number, TOPIC).log
    found = log.read(0, max_bytes=1 << 20)
    assert found is not None
    content = found.read()
    found.release()
    return [
        (
            each.producer_id,
            each.producer_epoch,
            each.is_transactional,
            each.is_control,
            each.record_count,
        )
        for _, each in iterate_batches(content)
    ]


def test_decisions_of_one_turn_keep_their_order_over_batches_of_producers_and_markers() -> None:
    with ledgers(1) as opened:
        requests = [
            Put(texts=("a", "b")),
            Put(texts=("c",)),
            Put(texts=("d", "e"), producer=PRODUCER),
            Put(texts=("f",)),
            Put(marker=MARKER),
            Put(texts=("g",)),
        ]

        async def ask(runtime: Runtime) -> list[int]:
            deadline_ms = runtime.clock.now_ms() + 10_000
            ledger = opened.coordinators[1]
            asked = [ledger.ask(request, deadline_ms=deadline_ms) for request in requests]
            return list(await asyncio.gather(*asked))

        assert opened.on(1, ask) == [2, 3, 5, 6, 7, 8]
        assert headers(opened, 1) == [
            (-1, -1, False, False, 3),
            (7, 3, True, False, 2),
            (-1, -1, False, False, 1),
            (7, 3, True, True, 1),
            (-1, -1, False, False, 1),
        ]


def test_load_replays_producers_and_markers_in_log_order() -> None:
    with ledgers(1) as opened:
        for request in (
            Put(texts=("a",)),
            Put(texts=("b", "c"), producer=PRODUCER),
            Put(marker=MARKER),
            Put(texts=("d",)),
        ):
            opened.nodes.world.run_until(opened.put(1, request), virtual_ms=10_000)
        expected = [("a", None), ("b", PRODUCER), ("c", PRODUCER), MARKER, ("d", None)]
        assert opened.coordinators[1].entries() == expected
        opened.nodes.crash(1, power=True)
        opened.coordinators.clear()
        opened.nodes.start(1)
        opened.open(1)
        opened.nodes.until(lambda: opened.coordinator() == 1)
        assert opened.coordinators[1].entries() == expected
        assert opened.coordinators[1].started == ["loaded 5"]


def test_effects_start_in_order_after_their_records_are_committed() -> None:
    with ledgers(1, 2, 3) as opened:
        number = opened.coordinator()
        started = opened.coordinators[number].started
        assert started == ["loaded 0"]
        del started[:]
        others = [other for other in opened.nodes.numbers if other != number]
        for other in others:
            opened.nodes.machine(other).pause()
        tasks = [
            opened.put(number, Put(texts=("a",), effect="first")),
            opened.put(number, Put(effect="second")),
            opened.put(number, Put(texts=("b",), effect="third")),
        ]
        log = opened.nodes.replica(number, TOPIC).log
        opened.nodes.until(lambda: log.log_end_offset == 2)
        assert started == []
        assert not any(task.done() for task in tasks)
        for other in others:
            opened.nodes.machine(other).resume()
        opened.nodes.until(lambda: all(task.done() for task in tasks))
        assert started == ["first", "second", "third"]


def test_effects_of_a_decision_that_was_not_stored_do_not_start() -> None:
    with ledgers(1) as opened:
        ledger = opened.coordinators[1]
        purgatory = opened.nodes.replica(1, TOPIC).partition.purgatory

        async def refused(runtime: Runtime) -> None:
            """Decide on a request, then refuse its append."""
            deadline_ms = runtime.clock.now_ms() + 1_000
            task = asyncio.create_task(
                ledger.ask(Put(texts=("a",), effect="lost"), deadline_ms=deadline_ms)
            )
            await asyncio.sleep(0)
            purgatory.entries_max = 0
            with pytest.raises(CoordinatorNotAvailable, match="could not be stored"):
                await task
            purgatory.entries_max = 100

        opened.on(1, refused)
        opened.nodes.until(lambda: opened.coordinator() == 1)
        assert ledger.entries() == []
        assert ledger.started == ["loaded 0", "loaded 0"]
        assert ledger.figures.reloads == 1


def test_effects_start_before_their_replies_and_despite_a_bug_in_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ledgers(1) as opened:
        ledger = opened.coordinators[1]
        replies: list[tuple[int, list[str]]] = []

        def reply(outcome: int) -> None:
            replies.append((outcome, list(ledger.started)))

        def fail(outcome: int) -> None:
            reply(outcome)
            raise RuntimeError("broken reply")

        async def submit(runtime: Runtime) -> None:
            ledger.submit(Put(texts=("a",), effect="first"), fail)
            ledger.submit(Put(texts=("b",), effect="second"), reply)
            await asyncio.sleep(1)
            ledger.submit(Put(effect="third"), fail)  # answered at once
            ledger.submit(Put(effect="fourth"), reply)

        opened.on(1, submit)
        started = ["loaded 0", "first", "second"]
        assert replies == [
            (1, started),
            (2, started),
            (2, [*started, "third"]),
            (2, [*started, "third", "fourth"]),
        ]
        assert ledger.figures.reloads == 0
        assert caplog.text.count("entries.reply_broke partition=0") == 2


def test_state_is_loaded_again_after_a_bug_in_an_effect(caplog: pytest.LogCaptureFixture) -> None:
    with ledgers(1) as opened:
        ledger = opened.coordinators[1]
        task = opened.put(1, Put(texts=("a",), effect="broken"))
        opened.nodes.until(task.done)
        with pytest.raises(CoordinatorNotAvailable, match="broken effect"):
            task.result()
        opened.nodes.until(lambda: opened.coordinator() == 1)
        assert ledger.entries() == [("a", None)]
        assert ledger.started == ["loaded 0", "broken", "loaded 1"]
        assert "RuntimeError: broken effect" in caplog.text
