"""Ids of members fit the log, or are refused before any decision."""

import pytest

from quorumlog.broker.groups.formats import encode
from quorumlog.broker.groups.records import ConsumerMemberForgotten
from quorumlog.broker.groups.requests import JoinGroup
from quorumlog.broker.groups.shell.group_ids import NAME_LENGTH_MAX, check_group, check_texts
from quorumlog.errors import InvalidRequest

WIDE = "\N{GRINNING FACE}"  # four bytes
DRAWN = "0" * 32


def join(client_id: str) -> JoinGroup:
    return JoinGroup(
        group="g",
        member_id="",
        client_id=client_id,
        client_host="/h",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        takes_member_id_first=False,
    )


def test_generated_id_of_the_longest_client_id_can_be_stored() -> None:
    longest = WIDE * NAME_LENGTH_MAX
    check_group(longest)
    check_texts(join(longest))
    encode(ConsumerMemberForgotten(group=longest, member_id=f"{longest}-{DRAWN}"))
    with pytest.raises(InvalidRequest, match="client_id has"):
        check_texts(join(longest + WIDE))
