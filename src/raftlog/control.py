"""The control record that opens an epoch, byte for byte as the field's dump tools read it.

Key: version and type, two bytes each. Value: LeaderChangeMessage version 1 in the flexible encoding
(compact array = unsigned varint of length + 1; one zero byte for "no tagged fields").
"""

import struct
from typing import Final

from ..ids import NodeId
from .config import Voter

_KEY: Final = struct.Struct(">hh")
_LEADER_CHANGE: Final = 2
_HEAD: Final = struct.Struct(">hi")


def encode_leader_change(
    leader_id: NodeId, *, voters: tuple[Voter, ...], granting: tuple[Voter, ...]
) -> tuple[bytes, bytes]:
    """Return key and value of the control record."""
    body = _HEAD.pack(1, leader_id) + _voters(voters) + _voters(granting) + b"\0"
    return _KEY.pack(0, _LEADER_CHANGE), body


def _voters(voters: tuple[Voter, ...]) -> bytes:
    assert len(voters) < 127, f"{len(voters)} voters need a longer varint"
    each = (struct.pack(">i", voter.node_id) + voter.directory_id + b"\0" for voter in voters)
    return bytes([len(voters) + 1]) + b"".join(each)
