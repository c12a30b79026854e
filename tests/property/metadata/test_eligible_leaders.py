"""Every replica that can be elected cleanly has all acknowledged records, in random histories of
brokers."""

from random import Random

import pytest

from .brokers import World

STEPS = 400


def play(seed: int, steps: int = STEPS) -> World:
    world = World(Random(seed))
    for _ in range(steps):
        try:
            world.step()
            world.check()
        except AssertionError as error:
            story = "\n".join(world.history[-40:])
            raise AssertionError(f"seed {seed}: {error}\n{story}") from error
    return world


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_electable_replicas_hold_everything_acknowledged(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        play(seed)


@pytest.mark.long
def test_electable_replicas_hold_everything_acknowledged_in_many_histories() -> None:
    for seed in range(80, 2_000):
        play(seed)


@pytest.mark.slow
def test_histories_have_acknowledgements_elections_and_losses() -> None:
    """Many entries are acknowledged, leaders change often, and loss is rare."""
    worlds = [play(seed) for seed in range(20)]
    assert sum(len(world.acknowledged) for world in worlds) > 80
    assert sum(world.elections for world in worlds) > 30
    assert 0 < sum(world.losses for world in worlds) < sum(w.elections for w in worlds) / 4
