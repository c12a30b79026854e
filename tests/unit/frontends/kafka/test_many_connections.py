"""Thousands of idle clients take little memory and delay no other client."""

import asyncio
import gc
import resource
import subprocess
import sys

import pytest
from tests.kit.kafka_client import connected

from quorumlog.runtime import Runtime
from quorumlog.runtime.real import run

from .bare_server import PLAIN_KEY, bare_server, topics

COUNT = 5_000
BYTES_EACH_MAX = 12 << 10  # 7 KiB measured

CROWD = """
import socket, struct, sys
host, port = sys.argv[1].rsplit(":", 1)
sockets = [socket.create_connection((host, int(port))) for _ in range(int(sys.argv[2]))]
for number, each in enumerate(sockets):
    if number % 2:
        each.sendall(struct.pack(">ihhih", 40_000, 19, 2, 7, -1))  # half have begun a request
print("here", flush=True)
sys.stdin.readline()
"""


@pytest.mark.long
def test_five_thousand_idle_connections_take_little_memory_and_delay_no_other() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < COUNT + 1_000:
        if hard != resource.RLIM_INFINITY and hard < COUNT + 1_000:
            pytest.skip(f"the process limit is {hard} descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (COUNT + 1_000, hard))

    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime, connections_max=COUNT + 1, listener_connections_max=COUNT + 1) as (
                server,
                addresses,
            ),
            connected(runtime, addresses["one"]) as busy,
        ):
            await busy.ask(PLAIN_KEY, 5, **topics("t"))
            gc.collect()
            before = resident_bytes()
            crowd = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", CROWD, addresses["one"], str(COUNT)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert crowd.stdin is not None
            assert crowd.stdout is not None
            async with asyncio.timeout(240):
                assert await crowd.stdout.readline() == b"here\n"
                while server.connection_count <= COUNT:  # noqa: ASYNC110 (there is no event)
                    await asyncio.sleep(0.01)
            for _ in range(20):
                await busy.ask(PLAIN_KEY, 5, **topics("t"))
            assert (resident_bytes() - before) / COUNT < BYTES_EACH_MAX
            crowd.stdin.close()
            async with asyncio.timeout(240):
                await crowd.wait()
                while server.connection_count > 1:  # noqa: ASYNC110 (there is no event)
                    await asyncio.sleep(0.01)
            assert server.figures.listeners["one"].ended == {"client": COUNT}

    run(main)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
