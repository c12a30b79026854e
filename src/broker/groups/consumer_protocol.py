"""The bytes that classic consumers put into a group: what a member wants, and what it is given.

The coordinator reads them where it needs topics, and speaks them with members of the classic
protocol in a group of KIP-848. Versions 0 to 3 of ConsumerProtocolSubscription and
ConsumerProtocolAssignment; a later version is read as 3, as its writer expects. Whole numbers are
big-endian.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

VERSION_MAX: Final = 3
PROTOCOL_TYPE: Final = "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member wants."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # from version 1
    generation: int = -1  # from version 2
    rack: str | None = None  # from version 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a member is given."""

    version: int
    partitions: Mapping[str, tuple[int, ...]]
    user_data: bytes | None = None


def decode_subscription(data: bytes) -> Subscription:
    """Read a subscription; raises ValueError where the bytes are none."""
    raise NotImplementedError


def decode_assignment(data: bytes) -> Assignment:
    """Read an assignment; raises ValueError where the bytes are none. No bytes: nothing."""
    raise NotImplementedError


def encode_subscription(subscription: Subscription) -> bytes:
    """Bytes of `subscription.version`, at most 3."""
    raise NotImplementedError


def encode_assignment(assignment: Assignment) -> bytes:
    """Bytes of `assignment.version`, at most 3."""
    raise NotImplementedError
