"""ListOffsets: error codes."""

import pytest

from quorumlog.errors import NotLeaderOrFollower, OffsetNotAvailable, QuorumlogError
from quorumlog.frontends.kafka.apis.list_offsets import offset_code


@pytest.mark.parametrize(
    ("error", "version", "code"),
    [
        (OffsetNotAvailable, 4, 5),  # LEADER_NOT_AVAILABLE
        (OffsetNotAvailable, 5, 78),
        (NotLeaderOrFollower, 4, 6),
        (NotLeaderOrFollower, 5, 6),
    ],
)
def test_clients_of_old_versions_get_a_code_that_they_know(
    error: type[QuorumlogError], version: int, code: int
) -> None:
    assert offset_code(error("retry"), version) == code
