"""Strict verification of small text files: every byte must be as written by a broker.

The decoders of `checkpoints` accept hand-edited files: spaces, comments, signs. A check does not: a
flipped bit may leave a file that still parses. The same rules apply to files of other servers:
lines, single spaces, digits.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ...errors import CorruptionError
from ...records.checksum import crc32c
from ..checkpoints import (
    DirectoryMeta,
    PartitionMeta,
    decode_epochs,
    decode_id,
    decode_meta,
    decode_offsets,
    decode_partition_metadata,
    encode_id,
)

NUMBER: Final = rb"(?:0|[1-9][0-9]*)"
NAME: Final = rb"[A-Za-z0-9._-]+"
ID: Final = rb"[A-Za-z0-9_-]{22}"

OFFSETS: Final = re.compile(rb"0\n%b\n(?:%b %b %b\n)*" % (NUMBER, NAME, NUMBER, NUMBER))
EPOCHS: Final = re.compile(rb"0\n%b\n(?:%b %b\n)*" % (NUMBER, NUMBER, NUMBER))
PARTITION: Final = re.compile(
    rb"version: 0\ntopic_id: %b(?:\n(?:unsynced_bytes_max: %b\n)?(?:gaps_below: %b\n)?)?"
    % (ID, NUMBER, NUMBER)
)
MARKER: Final = re.compile(rb'\{"version":0,"brokerEpoch":(?:-1|%b)\}' % NUMBER)
META_LINE: Final = re.compile(
    rb"#[ -~]*|version=1|node\.id=%b|cluster\.id=[A-Za-z0-9_-]+|directory\.id=%b" % (NUMBER, ID)
)
META_KEYS: Final = (b"cluster.id=", b"directory.id=", b"node.id=", b"version=")

UNEXPECTED: Final = "its bytes are not in the form of its writer"


def strict_offsets(content: bytes, path: str) -> dict[str, int]:
    """Decode an offset checkpoint; raises CorruptionError, also for a duplicate log."""
    offsets = decode_offsets(content, path)
    _match(OFFSETS, content, path)
    if len(offsets) != content.count(b"\n") - 2:
        raise CorruptionError("a log is listed twice", path=path)
    return offsets


def strict_epochs(content: bytes, path: str) -> list[tuple[int, int]]:
    """Decode a leader epoch checkpoint; raises CorruptionError."""
    epochs = decode_epochs(content, path)
    _match(EPOCHS, content, path)
    return epochs


def strict_partition(content: bytes, path: str) -> PartitionMeta:
    """Decode partition.metadata; raises CorruptionError."""
    meta = decode_partition_metadata(content, path)
    _match(PARTITION, content, path)
    text = content.split(b"topic_id: ")[1][:22].decode()
    if encode_id(decode_id(text, path)) != text:
        raise CorruptionError(f"{text} is not a canonical id", path=path)
    return meta


def strict_meta(content: bytes, path: str) -> DirectoryMeta:
    """Decode meta.properties; raises CorruptionError."""
    meta = decode_meta(content, path)
    lines = content.split(b"\n")
    if lines.pop() or not all(META_LINE.fullmatch(line) for line in lines):
        raise CorruptionError(UNEXPECTED, path=path)
    for key in META_KEYS:
        if sum(line.startswith(key) for line in lines) != 1:
            raise CorruptionError(f"{key.decode()[:-1]} must occur once", path=path)
    if encode_id(meta.directory_id).encode() not in content:
        raise CorruptionError("directory.id is not a canonical id", path=path)
    return meta


def strict_marker(content: bytes, path: str) -> None:
    """Check the clean-shutdown marker; raises CorruptionError."""
    _match(MARKER, content, path)


def quorum_checksum(fields: Mapping[str, Any]) -> int:
    """Return the CRC-32C of the other fields of quorum-state, as its writer computes it."""
    return crc32c(json.dumps(fields, sort_keys=True).encode())


def _match(pattern: "re.Pattern[bytes]", content: bytes, path: str) -> None:
    if pattern.fullmatch(content) is None:
        raise CorruptionError(UNEXPECTED, path=path)
