"""Calls that arrive while the I/O thread ends."""

import asyncio

import pytest

from quorumlog.clients.blocking.io_thread import IoThread
from quorumlog.errors import ClientClosed


class ClosingLoop(asyncio.SelectorEventLoop):
    """A loop that another thread closes just after the check."""

    was_looked_at = False

    def is_closed(self) -> bool:
        if self.was_looked_at:
            return super().is_closed()
        self.was_looked_at = True
        return False


def test_a_call_during_the_end_of_the_thread_raises_stopping() -> None:
    async def work() -> None:
        raise AssertionError("no thread runs it")

    io = IoThread()
    io.loop = ClosingLoop()
    io.loop.close()
    with pytest.raises(ClientClosed, match="I/O thread has ended"):
        io.wait(work())
