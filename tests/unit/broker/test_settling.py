"""Appends of which there is news, told together."""

import asyncio
from typing import cast

import pytest

from quorumlog import simulation
from quorumlog.broker.shell.produce import DirectAppend, Settling
from quorumlog.runtime import Runtime


class News:
    """Stands in for an append: all that is asked of it is to settle."""

    def __init__(self, *, is_broken: bool) -> None:
        self.is_broken = is_broken
        self.looked = asyncio.Event()

    def settle(self) -> None:
        """Take note of it."""
        if self.is_broken:
            raise ZeroDivisionError("one of ours")
        self.looked.set()


@pytest.mark.plain
def test_one_append_that_cannot_be_told_leaves_no_other_untold(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(runtime: Runtime) -> None:
        settling, news = Settling(), [News(is_broken=True), News(is_broken=False)]
        for each in news:
            settling.add(cast(DirectAppend, each))
        async with asyncio.timeout(10):
            await news[1].looked.wait()

    simulation.run(main)
    assert [record.msg for record in caplog.records] == ["broker.append_not_told"]
