"""Logins of gRPC clients."""

import asyncio

import pytest

from quorumlog import simulation
from quorumlog.api.authentication.failures import FailureDelays
from quorumlog.api.authentication.sasl import SaslServer
from quorumlog.api.authentication.sessions import SessionTokens
from quorumlog.errors import SaslAuthenticationFailed
from quorumlog.frontends.grpc.auth_service import AuthService
from quorumlog.metadata import EMPTY_IMAGE
from quorumlog.proto import auth_pb2 as pb
from quorumlog.runtime import Runtime
from quorumlog.runtime.client_bounds import LINES_A_SECOND_MAX, ClientLines
from quorumlog.services import AUTH_AUTHENTICATE

TOO_LONG = b"\0" + b"n" * 300 + b"\0password"


def service_of(runtime: Runtime) -> AuthService:
    """Return a service without users and without delays."""
    now_ms = runtime.clock.now_ms
    sasl = SaslServer(
        tasks=runtime.tasks,
        nonces=runtime.entropy.stream("sasl"),
        secret=bytes(32),
        image=lambda: EMPTY_IMAGE,
        tokens=None,
    )
    sessions = SessionTokens(bytes(32), now_ms, lambda: EMPTY_IMAGE)
    failures = FailureDelays(now_ms, 0)
    lines = ClientLines(now_ms)
    return AuthService(sasl, sessions, failures, mechanisms=("PLAIN",), audit=None, lines=lines)


def test_failed_logins_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def failed() -> int:
        return sum("not_authenticated" in each.msg for each in caplog.records)

    async def main(runtime: Runtime) -> None:
        listener = await runtime.network.serve("127.0.0.1:0", service_of(runtime).handlers())
        channel = runtime.network.channel(listener.address)

        async def log_in() -> None:
            stream = await channel.stream(AUTH_AUTHENTICATE, timeout_ms=10_000)
            await stream.send(pb.AuthenticateRequest(mechanism="PLAIN", message=TOO_LONG))
            with pytest.raises(SaslAuthenticationFailed):
                await stream.receive()

        await asyncio.gather(*(log_in() for _ in range(5 * LINES_A_SECOND_MAX)))
        in_burst = failed()
        assert LINES_A_SECOND_MAX <= in_burst <= 2 * LINES_A_SECOND_MAX  # in one or two seconds
        await asyncio.sleep(1)
        await log_in()
        assert failed() == in_burst + 1
        await channel.close()
        await listener.close(0)

    simulation.run(main)
