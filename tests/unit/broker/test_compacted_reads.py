"""Fetches of a log with offset gaps from compaction."""

from quorumlog.broker import FetchSpec
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode
from quorumlog.storage import AppendOrigin

from .lone_broker import T, broker, simulate, topic


def test_read_ends_at_its_last_batch_and_not_at_the_next_one() -> None:
    """Otherwise a follower could not distinguish compacted records from lost ones."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", T, cleanup_policy="compact"))
            log = await b.replicas.hosted.replica_of("t", 0).opened()
            for offset in (0, 7):
                batch = encode_batch([Record(0, 1, b"k", b"v")], base_offset=offset, leader_epoch=0)
                await b.directory.append(
                    log, batch, leader_epoch=0, origin=AppendOrigin.REPLICATED, flush=True
                )
            small = [FetchSpec("t", 0, 0, len(batch), None)]
            (first,) = await b.replicas.reader.fetch(
                small, max_wait_ms=0, min_bytes=0, max_bytes=100
            )
            assert (first.error, len(first.records), first.next_offset) == (None, len(batch), 1)
            (second,) = await b.fetch("t", offset=first.next_offset)
            assert (second.records, second.next_offset) == (batch, 8)

    simulate(main)
