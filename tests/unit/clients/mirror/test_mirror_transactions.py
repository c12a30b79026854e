"""A mirror of a topic with transactions: committed records as plain batches, gaps for the rest."""

from quorumlog.records import MarkerType, Record, encode_batch, encode_marker, iterate_batches
from quorumlog.records.batch import NO_PRODUCER
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin

from .clusters import Clusters, contents


def written(producer: int, value: bytes, sequence: int = 0) -> bytes:
    return encode_batch(
        [Record(0, 1_000, None, value)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def ended(producer: int, kind: MarkerType) -> bytes:
    return encode_marker(
        producer_id=producer, producer_epoch=0, kind=kind, coordinator_epoch=0, timestamp_ms=1_000
    )


def put(clusters: Clusters, *batches: bytes) -> None:
    """Append batches of transactions to the source's log, without a client."""

    async def main(runtime: Runtime) -> None:
        parts = clusters.source.nodes[1].parts
        assert parts.replicas is not None
        assert parts.directory is not None
        log = await parts.replicas.hosted.replica_of("t", 0).opened()
        for batch in batches:
            await parts.directory.append(
                log, batch, leader_epoch=0, origin=AppendOrigin.INTERNAL, flush=True
            )

    task = clusters.source.machine(1).attach(main, name="append")
    clusters.world.run_until(task, virtual_ms=1_000)
    task.result()


def copied_headers(clusters: Clusters) -> list[tuple[int, int]]:
    """Return producer id and attributes of each batch of the copy."""
    log = clusters.target.replica(2, "t").log
    taken = log.read(log.log_start_offset, max_bytes=1 << 20)
    assert taken is not None
    try:
        return [
            (header.producer_id, header.attributes) for _, header in iterate_batches(taken.read())
        ]
    finally:
        taken.release()


def test_mirror_copies_committed_records_as_plain_batches(clusters: Clusters) -> None:
    clusters.create("t")
    clusters.send("t", b"plain")
    put(
        clusters,
        written(5, b"aborted"),
        written(6, b"committed"),
        ended(5, MarkerType.ABORT),
        ended(6, MarkerType.COMMIT),
    )
    clusters.send("t", b"behind")
    report = clusters.once()
    assert (report.records, report.caught_up, report.problems) == (3, 1, ())
    values = [(offset, value) for offset, _, value, _ in clusters.same("t")]
    assert values == [(0, b"plain"), (2, b"committed"), (5, b"behind")]
    assert {*copied_headers(clusters)} == {(NO_PRODUCER, 0)}


def test_mirror_stops_below_an_open_transaction_and_continues_after_its_end(
    clusters: Clusters,
) -> None:
    clusters.create("t")
    clusters.send("t", b"plain")
    put(clusters, written(5, b"open"))
    clusters.send("t", b"behind")
    assert clusters.once().records == 1
    assert [value for _, _, value, _ in contents(clusters.target, "t")] == [b"plain"]
    put(clusters, ended(5, MarkerType.COMMIT))
    assert clusters.once().records == 2
    assert [value for _, _, value, _ in clusters.same("t")] == [b"plain", b"open", b"behind"]


def test_mirror_of_aborted_transactions_only_catches_up_and_resumes(clusters: Clusters) -> None:
    clusters.create("t")
    put(clusters, written(5, b"aborted"), ended(5, MarkerType.ABORT))
    assert clusters.once().caught_up == 1
    put(clusters, written(5, b"again", 1), ended(5, MarkerType.ABORT))
    assert clusters.once().caught_up == 1
    clusters.send("t", b"first")
    assert clusters.once().records == 1
    assert [offset for offset, *_ in clusters.same("t")] == [4]
