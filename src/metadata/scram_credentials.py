"""SCRAM credentials of users: the salted keys of RFC 5802 and RFC 7677, never a password (KIP-84,
KIP-554)."""

import hashlib
from enum import IntEnum
from typing import Final, TypeAlias

from immutables import Map
from msgspec import Struct

from ..errors import UnacceptableCredential, UnsupportedSaslMechanism
from ..proto import metadata_records_pb2 as pb

ITERATIONS_MIN: Final = 4_096
"""The least number of PBKDF2 rounds (RFC 7677 section 4)."""

ITERATIONS_MAX: Final = 16_384
"""The greatest number: a login costs the client and a PLAIN check costs the broker this many."""

USER_NAME_MAX: Final = 255
"""The maximum length of a user's name, in characters."""

SALT_MIN: Final = 12
"""The minimum length of a salt, in bytes: shorter ones repeat among users."""

SALT_MAX: Final = 256
"""The maximum length of a salt, in bytes."""

CREDENTIALS_MAX: Final = 50_000
"""The maximum number of credentials, which each node holds."""


class ScramMechanism(IntEnum):
    """A SCRAM mechanism, with its number in the Kafka protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The registered name: "SCRAM-SHA-256"."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of the hash function in hashlib."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


class ScramCredential(Struct, frozen=True, kw_only=True):
    """A user's salted keys for one mechanism."""

    salt: bytes
    iterations: int  # rounds of PBKDF2, ITERATIONS_MIN..ITERATIONS_MAX
    stored_key: bytes  # verifies the client's proof
    server_key: bytes  # signs the server's answer

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, keys hidden)"


ScramKey: TypeAlias = tuple[str, ScramMechanism]
"""User and mechanism."""

ScramCredentials: TypeAlias = Map[ScramKey, ScramCredential]


def credential_of_salted(
    mechanism: ScramMechanism, salted_password: bytes, *, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password."""
    from ..scram_keys import keys_of_salted  # needed by few processes

    keys = keys_of_salted(mechanism.hash_name, salted_password)
    return ScramCredential(
        salt=salt, iterations=iterations, stored_key=keys.stored, server_key=keys.server
    )


def credential_of_password(
    mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a password; takes milliseconds. Raises UnacceptableCredential."""
    from ..scram_keys import keys_of_password

    keys = keys_of_password(mechanism.hash_name, password, salt=salt, iterations=iterations)
    return ScramCredential(
        salt=salt, iterations=iterations, stored_key=keys.stored, server_key=keys.server
    )


def mechanism_of(number: int) -> ScramMechanism:
    """Return the mechanism of a number of the protocol; raise UnsupportedSaslMechanism."""
    try:
        return ScramMechanism(number)
    except ValueError as error:
        offered = ", ".join(f"{each:d} ({each.sasl_name})" for each in ScramMechanism)
        raise UnsupportedSaslMechanism(
            f"SCRAM mechanism {number} is not supported; give one of {offered}"
        ) from error


def check_user(user: str) -> None:
    """Raise UnacceptableCredential for an empty, too long or unprintable name."""
    if not 1 <= len(user) <= USER_NAME_MAX:
        raise UnacceptableCredential(
            f"the user name has {len(user)} characters; give 1..{USER_NAME_MAX}"
        )
    if not user.isprintable():
        raise UnacceptableCredential(f"user name {user!r} has characters that are not printable")


def check_credential(mechanism: ScramMechanism, credential: ScramCredential) -> None:
    """Raise UnacceptableCredential for iterations, a salt or keys outside their limits."""
    if not ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX:
        raise UnacceptableCredential(
            f"iterations is {credential.iterations}; give {ITERATIONS_MIN}..{ITERATIONS_MAX}"
        )
    if not SALT_MIN <= len(credential.salt) <= SALT_MAX:
        raise UnacceptableCredential(
            f"the salt has {len(credential.salt)} bytes; give {SALT_MIN}..{SALT_MAX}"
        )
    size = hashlib.new(mechanism.hash_name).digest_size
    if not len(credential.stored_key) == len(credential.server_key) == size:
        raise UnacceptableCredential(
            f"the keys have {len(credential.stored_key)} and {len(credential.server_key)} bytes;"
            f" {mechanism.sasl_name} needs {size}"
        )


def credential_record(key: ScramKey, credential: ScramCredential | None) -> pb.MetadataRecord:
    """Return the record that sets a credential, or deletes it if `credential` is None."""
    record = pb.MetadataRecord()
    if credential is None:
        fill_key(record.remove_scram_credential, key)
    else:
        fill_credential(record.scram_credential, key, credential)
    return record


def fill_key(message: pb.ScramCredentialKey, key: ScramKey) -> None:
    """Set the fields of an empty message from a key."""
    message.user, mechanism = key
    message.mechanism = int(mechanism)  # type: ignore[assignment]


def fill_credential(
    message: pb.ScramCredentialRecord, key: ScramKey, credential: ScramCredential
) -> None:
    """Set the fields of an empty message from a credential."""
    fill_key(message.credential, key)
    message.salt = credential.salt
    message.iterations = credential.iterations
    message.stored_key = credential.stored_key
    message.server_key = credential.server_key


def credential_of(message: pb.ScramCredentialRecord) -> ScramCredential:
    """Return the credential of a message, not checked."""
    return ScramCredential(
        salt=message.salt,
        iterations=message.iterations,
        stored_key=message.stored_key,
        server_key=message.server_key,
    )


def scram_key_of(message: pb.ScramCredentialKey) -> ScramKey:
    """Return the key of a message; raise UnsupportedSaslMechanism."""
    return message.user, mechanism_of(message.mechanism)
