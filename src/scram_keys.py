"""The salted keys of a password (RFC 5802 section 3), for clients that set one and for brokers that
check one. Pure."""

import hashlib
import hmac
from typing import Final, NamedTuple

from .errors import UnacceptableCredential

ITERATIONS_DEFAULT: Final = 4_096
"""Rounds of PBKDF2 of a new password."""

SALT_BYTES: Final = 20
"""The length of a new salt, in bytes."""

PASSWORD_MAX: Final = 255
"""The maximum length of a password, in characters: its preparation takes quadratic time."""


class ScramKeys(NamedTuple):
    """The keys of a password."""

    stored: bytes  # verifies the client's proof
    server: bytes  # signs the server's answer


def keys_of_password(hash_name: str, password: str, *, salt: bytes, iterations: int) -> ScramKeys:
    """Return the keys of a password, which is prepared as RFC 4013 says. Takes milliseconds; raises
    UnacceptableCredential for an empty or too long password and for prohibited characters."""
    from scramp import ScramException
    from scramp.utils import saslprep  # needed by few processes

    if not 1 <= len(password) <= PASSWORD_MAX:
        raise UnacceptableCredential(
            f"the password has {len(password)} characters; give 1..{PASSWORD_MAX}"
        )
    try:
        prepared: str = saslprep(password)
    except ScramException as error:
        raise UnacceptableCredential(
            "the password has characters that RFC 4013 prohibits"
        ) from error
    if not prepared:
        raise UnacceptableCredential("the password is empty after its preparation by RFC 4013")
    salted = hashlib.pbkdf2_hmac(hash_name, prepared.encode(), salt, iterations)
    return keys_of_salted(hash_name, salted)


def keys_of_salted(hash_name: str, salted: bytes) -> ScramKeys:
    """Return the keys of a salted password."""
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    return ScramKeys(
        stored=hashlib.new(hash_name, client_key).digest(),
        server=hmac.digest(salted, b"Server Key", hash_name),
    )
