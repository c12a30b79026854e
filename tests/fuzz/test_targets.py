"""Arbitrary bytes end in a result or a typed error, within bounded time and memory; `make fuzz`
searches for more inputs by coverage."""

import random
import time
import tracemalloc

import pytest

from .targets import Fuzzed, mutated, survive, targets

ROUNDS = 150
SECONDS_MAX = 5.0  # of CPU time for one input, far above the usual
MEMORY_MAX = 64 << 20  # with an inflation bound of 1 MiB


@pytest.mark.slow
@pytest.mark.parametrize("fuzzed", targets(), ids=lambda fuzzed: fuzzed.name)
def test_arbitrary_bytes_end_in_a_result_or_a_typed_error(fuzzed: Fuzzed) -> None:
    drawn = random.Random(fuzzed.name)
    inputs = [*fuzzed.corpus, b"", bytes(200)]
    inputs += [mutated(drawn.choice(fuzzed.corpus), drawn) for _ in range(ROUNDS)]
    for content in inputs:
        began = time.thread_time()
        try:
            survive(fuzzed.run, content)
        except Exception as error:
            error.add_note(f"input: {content.hex()}")
            raise
        assert time.thread_time() - began < SECONDS_MAX, f"slow: {content.hex()}"


@pytest.mark.slow
@pytest.mark.parametrize("fuzzed", targets(), ids=lambda fuzzed: fuzzed.name)
def test_arbitrary_bytes_take_bounded_memory(fuzzed: Fuzzed) -> None:
    drawn = random.Random(f"memory {fuzzed.name}")
    inputs = [mutated(drawn.choice(fuzzed.corpus), drawn) for _ in range(20)]
    tracemalloc.start()
    try:
        for content in inputs:
            survive(fuzzed.run, content)
            peak = tracemalloc.get_traced_memory()[1]
            assert peak < MEMORY_MAX, f"{peak} bytes for {content.hex()}"
    finally:
        tracemalloc.stop()


def test_a_target_that_fails_is_reported() -> None:
    def broken(content: bytes) -> object:
        return content[10_000]

    with pytest.raises(IndexError):
        survive(broken, b"abc")


TAKEN = {"headers", "validate", "validate sealed", "decode", "decode one", "arrow", "index"}
TAKEN |= {"epochs", "offsets", "walk", "kafka frames", "kafka header", "kafka request"}
TAKEN |= {"token", "signed token", "session token", "key set", "pem"}
TAKEN |= {"sasl SCRAM-SHA-256", "sasl PLAIN", "sasl OAUTHBEARER"}


@pytest.mark.parametrize(
    "fuzzed",
    [one for one in targets() if one.name in TAKEN or one.name.startswith("inflate")],
    ids=lambda fuzzed: fuzzed.name,
)
def test_a_corpus_passes_the_first_checks(fuzzed: Fuzzed) -> None:
    """Otherwise the code after those checks would not be fuzzed."""
    assert fuzzed.run(fuzzed.corpus[0]) is not fuzzed
