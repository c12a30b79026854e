"""Level `quorum`: whole quorums hold, what is left out on purpose is found.
`make simulate LEVEL=quorum` plays more seeds, each under two hash seeds."""

from functools import partial

import pytest
from tests.simulation.levels.quorum.level import play
from tests.simulation.runs import play_seed


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "sign"),
    [
        ("lying-disk", "durable"),
        ("double-apply", "is at offset"),
        ("stale-reads", "read"),
    ],
)
def test_what_is_left_out_on_purpose_is_found(bug: str, sign: str) -> None:
    for seed in range(5):
        failure = play_seed("quorum", seed, partial(play, bug=bug)).failure
        if failure:
            assert sign in failure, failure
            return
    raise AssertionError(f"{bug} was not found")
