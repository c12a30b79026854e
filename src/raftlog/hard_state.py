"""The hard state, a node's epoch and vote, and its file `quorum-state`. Pure.

The file is JSON with Kafka's names (QuorumStateData v1). It is replaced atomically and fsynced
before a vote or a leadership depends on it. `leaderId` is -1: a restarted node never resumes a
leadership, and asks for the leader. `crc32c` is specific to quorumlog and covers the other members.
Kafka's readers skip it; a file without it is accepted.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Final

from ..errors import CorruptionError
from ..ids import NO_NODE, DirectoryId, Epoch, NodeId
from ..records.checksum import crc32c
from .voters import Voter

QUORUM_STATE_NAME: Final = "quorum-state"

_NO_DIRECTORY: Final = bytes(16)
_CHECKSUM: Final = "crc32c"


@dataclass(frozen=True, slots=True)
class HardState:
    """The durable epoch and vote of a node (Raft figure 2)."""

    epoch: Epoch
    vote: Voter | None


def encode_hard_state(state: HardState) -> bytes:
    """Return the content of the file."""
    voter = state.vote or Voter(NO_NODE, DirectoryId(_NO_DIRECTORY))
    fields: dict[str, Any] = {
        "leaderId": -1,
        "leaderEpoch": state.epoch,
        "votedId": voter.node_id,
        "votedDirectoryId": base64.urlsafe_b64encode(voter.directory_id).rstrip(b"=").decode(),
        "data_version": 1,
    }
    return json.dumps({**fields, _CHECKSUM: _checksum(fields)}).encode()


def decode_hard_state(content: bytes) -> HardState:
    """Return the hard state in the file. Raise CorruptionError if it is not valid."""
    try:
        return _decode(json.loads(content))
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise CorruptionError(
            f"{QUORUM_STATE_NAME}: damaged ({error}); this node may have voted and must not vote"
            " again; format a new data directory and join with it as a new voter",
            path=QUORUM_STATE_NAME,
        ) from error


def _decode(fields: dict[str, Any]) -> HardState:
    version, epoch, voted = fields["data_version"], fields["leaderEpoch"], fields["votedId"]
    stored = fields.pop(_CHECKSUM, None)
    if stored is not None and stored != _checksum(fields):
        raise ValueError(f"{_CHECKSUM} is {stored!r}, the content's is {_checksum(fields)}")
    if version != 1:
        raise ValueError(f"data_version {version} is not 1")
    if type(epoch) is not int or type(voted) is not int or epoch < 0 or voted < NO_NODE:
        raise ValueError(f"leaderEpoch {epoch!r} or votedId {voted!r} is out of range")
    if voted == NO_NODE:
        return HardState(Epoch(epoch), None)
    directory_id = base64.urlsafe_b64decode(fields["votedDirectoryId"] + "==")
    if len(directory_id) != len(_NO_DIRECTORY):
        raise ValueError(f"votedDirectoryId has {len(directory_id)} bytes, not 16")
    return HardState(Epoch(epoch), Voter(NodeId(voted), DirectoryId(directory_id)))


def _checksum(fields: dict[str, Any]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True).encode())
