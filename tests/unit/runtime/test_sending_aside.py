"""Large ranges of files that a thread sends."""

import asyncio
import resource
import socket
import threading
import time
from pathlib import Path

from quorumlog.runtime import Runtime, real
from quorumlog.runtime.files import RealFile
from quorumlog.runtime.sending_aside import AsideJob

from .test_bytes import connected, filled_file

SIZE = 8 << 20


def test_a_peer_that_takes_a_little_now_and_then_does_not_hold_the_thread(tmp_path: Path) -> None:
    """There are few threads, and others behind it in the lane."""

    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{tmp_path}/log", bytes(SIZE))
        assert isinstance(file, RealFile)
        near, far = socket.socketpair()
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)  # there is room soon

        def take() -> None:
            while far.recv(4 << 10):
                time.sleep(0.0001)

        reader = threading.Thread(target=take)
        reader.start()
        count = await runtime.tasks.offload("send", AsideJob(near.fileno(), file, 0, SIZE).run)
        near.close()
        await asyncio.to_thread(reader.join)
        far.close()
        file.close()
        assert 0 < count < SIZE // 2

    real.run(main)


def test_where_no_descriptor_is_left_the_loop_sends_by_itself(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        file = filled_file(runtime, f"{tmp_path}/log", bytes(SIZE))
        async with connected(runtime) as (caller, server, _):
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
            try:
                caller.connection.send_range(file, 0, SIZE)
                await server.wait(lambda: len(server.got) == SIZE)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
            assert not caller.errors
        file.close()

    real.run(main)
