"""A mirror between two real nodes, with kills of all three processes."""

from pathlib import Path

import pytest

from .mirror_soak import soak


@pytest.mark.long
@pytest.mark.timeout(900)
def test_copies_are_equal_after_kills_of_both_sides(tmp_path: Path) -> None:
    seen = soak(tmp_path, seconds=8, seed=3, pause_s=1.5)
    assert seen.problems == []
    assert len(seen.kills) == 3, seen.kills
    assert seen.records > 0
