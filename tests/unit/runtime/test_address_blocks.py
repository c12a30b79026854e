"""The bounds of clients by address count the addresses of one IPv6 network as one."""

import pytest

from quorumlog import simulation
from quorumlog.api.authentication.failures import FailureDelays
from quorumlog.errors import Overloaded
from quorumlog.frontends.kafka import KafkaConfig
from quorumlog.frontends.kafka.api import Client
from quorumlog.frontends.kafka.connection_limits import ConnectionLimits
from quorumlog.runtime import ClientIdentity, Runtime
from quorumlog.runtime.client_bounds import address_block


@pytest.mark.parametrize(
    ("host", "block"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[::ffff:10.0.0.1]", "10.0.0.1"),
        ("2001:db8:0:7:aaaa::1", "2001:db8:0:7::/64"),
        ("[2001:db8:0:7:bbbb::2]", "2001:db8:0:7::/64"),
        ("2001:db8:0:8::1", "2001:db8:0:8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("node", "node"),
    ],
)
def test_address_counts_with_its_network(host: str, block: str) -> None:
    assert address_block(host) == block


def test_failed_login_delays_other_addresses_of_the_same_network() -> None:
    async def main(runtime: Runtime) -> None:
        failures = FailureDelays(runtime.clock.now_ms, 100)
        await failures.after_failure("2001:db8::1")
        began_ms = runtime.clock.now_ms()
        await failures.after_failure("2001:db8::2")
        assert runtime.clock.now_ms() - began_ms >= 200
        began_ms = runtime.clock.now_ms()
        await failures.after_failure("2001:db8:0:1::1")
        assert runtime.clock.now_ms() - began_ms < 200

    simulation.run(main)


class _Held:
    """A connection that stays open."""

    def __init__(self, host: str) -> None:
        identity = ClientIdentity("User:mallory", host)
        self.client = Client(peer=f"{host}:1", local="", listener="one", identity=identity)

    def end_stranger(self) -> None:
        """Fail: no other connection has a reason."""
        raise AssertionError

    def end_at_limit(self) -> None:
        """Fail: no other user has a reason."""
        raise AssertionError


def test_network_has_the_connections_of_one_address() -> None:
    limits = ConnectionLimits(KafkaConfig(address_connections_max=3))
    for number in range(3):
        limits.authenticated(_Held(f"2001:db8::{number}"))
    assert limits.count_of("2001:db8::aaaa") == 3
    with pytest.raises(Overloaded, match="limit of 3 connections"):
        limits.authenticated(_Held("2001:db8::aaaa"))
    limits.authenticated(_Held("2001:db8:0:1::1"))
