"""A contradictory configuration is rejected with a remedy."""

from typing import Any

import pytest
from tests.kit.raft_member import voter

from quorumlog.errors import InvalidRequest
from quorumlog.raftlog.config import EPOCH_JUMP_MAX, EPOCH_MAX, RaftConfig


def config(**fields: Any) -> RaftConfig:
    me = voter(1)
    return RaftConfig(node_id=me.node_id, directory_id=me.directory_id, **fields)


def test_the_defaults_fit_together() -> None:
    assert config().me == voter(1)
    assert config().heartbeat_ms * 10 <= config().election_timeout_ms_min


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"election_timeout_ms_min": 0}, "election timeout"),
        ({"election_timeout_ms_min": 500, "election_timeout_ms_max": 400}, "500 to 400 ms"),
        ({"heartbeat_ms": 0}, "heartbeat interval: 0 ms"),
        ({"heartbeat_ms": 501}, "limit is half"),
        ({"uncommitted_bytes_max": 0}, "uncommitted_bytes_max"),
        ({"write_bytes_max": 0}, "write_bytes_max"),
        ({"append_bytes_max": 0}, "append_bytes_max"),
        ({"inflight_requests_max": 0}, "inflight_requests_max"),
        ({"inflight_bytes_max": 0}, "inflight_bytes_max"),
        ({"snapshot_chunk_bytes": 0}, "snapshot_chunk_bytes"),
        ({"reads_max": 0}, "reads_max"),
        ({"observer_timeout_ms": 0}, "observer_timeout_ms"),
    ],
)
def test_a_contradiction_is_named(fields: dict[str, int], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        config(**fields)


def test_heartbeat_interval_may_be_half_of_the_election_timeout() -> None:
    assert config(heartbeat_ms=500).heartbeat_ms == 500


def test_quorum_timeout_lies_within_the_election_timeouts() -> None:
    """Check-quorum uses a timeout between the shortest and the longest election timeout."""
    assert config(election_timeout_ms_min=1000, election_timeout_ms_max=2000).quorum_timeout_ms == (
        1500
    )


def test_epochs_fit_into_the_bits_of_a_batch() -> None:
    assert EPOCH_MAX < 2**31 - 1
    assert EPOCH_JUMP_MAX < EPOCH_MAX
