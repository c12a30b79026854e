"""Batches that decompress to more than the broker accepts."""

import tracemalloc

import pytest
from tests.kit.batches import batch_of
from tests.kit.kafka_node import serving_kafka

from quorumlog.records import Codec
from quorumlog.runtime import Runtime
from quorumlog.simulation import run

from .produce_fetch import create, produced

MESSAGE_TOO_LARGE = 10
INFLATED = 150 << 20
HELD_MAX = 128 << 20  # twice the bound of 64 MiB: the chunks and their concatenation


@pytest.mark.long
@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4])
def test_a_batch_that_inflates_to_too_much_is_refused_and_never_held(codec: Codec) -> None:
    bomb = batch_of(bytes(INFLATED), codec=codec)
    assert len(bomb) < 1 << 20

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, "/data") as kafka:
            await create(kafka, "t")
            other = await kafka.connect()
            tracemalloc.start()
            try:
                (result,) = await produced(kafka.client, (0, bomb))
                assert tracemalloc.get_traced_memory()[1] < HELD_MAX
            finally:
                tracemalloc.stop()
            assert result.error_code == MESSAGE_TOO_LARGE
            assert "inflates" in result.error_message
            (result,) = await produced(other, (0, batch_of(b"fine", codec=codec)))
            assert (result.error_code, result.base_offset) == (0, 0)

    run(main)
