"""Parsing of addresses and voters in a node's settings. Pure."""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InvalidConfig
from ..ids import DirectoryId, NodeId

PLAINTEXT = "PLAINTEXT"
ANY_HOST = ("0.0.0.0", "[::]")
ID_TEXT_SIZE = 22  # characters of base64url for 16 bytes, without padding
_VOTERS = "controller.voters"
_LISTENERS, _ADVERTISED = "listeners.kafka", "advertised.kafka"
_LISTENER_NAME = re.compile(r"[A-Z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterEntry:
    """One voter of `controller.voters`."""

    node_id: NodeId
    address: str  # "host:port" for the other voters
    directory_id: DirectoryId | None  # None: not given

    def __str__(self) -> str:
        directory = "" if self.directory_id is None else f":{id_text(self.directory_id)}"
        return f"{self.node_id}@{self.address}{directory}"


def parse_address(name: str, text: str) -> tuple[str, int]:
    """Split "host:port"; raises InvalidConfig naming the setting."""
    host, colon, port = text.rpartition(":")
    number = parse_digits(port, 65_535)
    if not colon or not host or number is None:
        raise InvalidConfig(f'{name}: "{text}"; give host:port with a port of 0..65535')
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise InvalidConfig(
            f'{name}: "{text}"; give an IPv6 address in brackets, [{host}]:{number}'
        )
    return host, number


def split_listener(text: str) -> tuple[str, str]:
    """Split "NAME://host:port" into name and address; the default name is PLAINTEXT."""
    name, mark, address = text.rpartition("://")
    return (name if mark else PLAINTEXT), address


def check_kafka_addresses(listeners: Sequence[str], advertised: Sequence[str]) -> None:
    """Validate Kafka listeners and their advertised addresses; raises InvalidConfig for invalid,
    duplicate, unmatched or unreachable ones."""
    opened = _by_name(_LISTENERS, listeners)
    for name, address in _by_name(_ADVERTISED, advertised).items():
        host, port = parse_address(_ADVERTISED, address)
        if name not in opened:
            there = ", ".join(opened) or "none"
            raise InvalidConfig(
                f"{_ADVERTISED}: {_LISTENERS} has no listener named {name}; its names are {there}"
            )
        if host in ANY_HOST or port == 0:
            raise InvalidConfig(
                f'{_ADVERTISED}: clients cannot connect to "{address}"; give the host and port for'
                " clients"
            )


def _by_name(setting: str, texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, address = split_listener(text)
        if not _LISTENER_NAME.fullmatch(name):
            raise InvalidConfig(
                f'{setting}: "{text}"; use capital letters, digits, "_" and "-" in a name, as in'
                f" INTERNAL://{address}"
            )
        if name in found:
            raise InvalidConfig(
                f"{setting}: two listeners are named {name}; use another name for one, as in"
                f" INTERNAL://{address}"
            )
        if address.startswith(":"):
            raise InvalidConfig(
                f'{setting}: "{text}" has no host; use 0.0.0.0{address} for every interface'
            )
        parse_address(setting, address)
        found[name] = address
    return found


def parse_voter(text: str) -> VoterEntry:
    """Split "id@host:port" or "id@host:port:directory id"; raises InvalidConfig."""
    number, at, place = text.partition("@")
    node_id = parse_digits(number, 2**31 - 1)
    if not at or node_id is None:
        raise InvalidConfig(f'{_VOTERS}: "{text}"; give "id@host:port:directory id"')
    address, _, tail = place.rpartition(":")
    directory_id = None
    if len(tail) > 5 and address.rpartition(":")[2].isdecimal():  # longer than any port
        directory_id = parse_id(tail, f'{_VOTERS}: "{text}"')
        place = address
    parse_address(_VOTERS, place)
    return VoterEntry(node_id=NodeId(node_id), address=place, directory_id=directory_id)


def check_voters(voters: Sequence[VoterEntry]) -> None:
    """Raise InvalidConfig for voters with duplicate fields, or too little data for a quorum."""
    for what in ("node_id", "address", "directory_id"):
        seen: dict[object, VoterEntry] = {}
        for voter in voters:
            value = getattr(voter, what)
            if value is not None and value in seen:
                raise InvalidConfig(
                    f"{_VOTERS}: {seen[value]} and {voter} have the same"
                    f" {what.replace('_', ' ')}; give each voter its own"
                )
            seen[value] = voter
    if len(voters) < 2:
        return
    for voter in voters:
        if voter.directory_id is None:
            raise InvalidConfig(
                f"{_VOTERS}: {voter} has no directory id; generate one for each voter with"
                " `quorumlog storage random-id`"
            )
        if voter.address.endswith(":0"):
            raise InvalidConfig(
                f"{_VOTERS}: {voter} has no fixed port; give a port that the other voters can reach"
            )


def id_text(raw: bytes) -> str:
    """Return a 16-byte id as Kafka prints it: 22 characters of base64url."""
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def parse_id(text: str, where: str) -> DirectoryId:
    """Return the 16 bytes of 22 characters of base64url. Raises InvalidConfig with a message that
    starts with `where`."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 16 or id_text(raw) != text or not any(raw):
        raise InvalidConfig(
            f"{where}; a directory id has {ID_TEXT_SIZE} characters of base64url, as printed by"
            " `quorumlog storage random-id`"
        )
    return DirectoryId(raw)


def parse_digits(text: str, most: int) -> int | None:
    """Return the value of a decimal number of 0..`most`, None for any other text."""
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(most)):
        return None
    return number if (number := int(text)) <= most else None
