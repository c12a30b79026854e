"""Salted keys of users' passwords in a backup, encrypted with a passphrase.

The key of AES-256-GCM comes from scrypt (RFC 7914) with constant parameters: a manifest cannot make
a restore spend more. The backup id, users, ACLs and quotas are authenticated, too; in seals of
version 1, by earlier releases, the id alone. A seal does not open under another version.
"""

import os
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from ..clients.admin.security import UserKeys
from ..errors import BackupDamaged, InvalidConfig
from .manifest import SEAL_VERSION, BackupAccess, Name, SealedKeys

SCRYPT_N: Final = 2**15  # with R, 32 MiB and about 0.1 s
SCRYPT_R: Final = 8
SCRYPT_P: Final = 1
PASSPHRASE_MIN: Final = 8  # characters


class _Keys(Struct, frozen=True, forbid_unknown_fields=True):
    """The salted keys of one user and mechanism; bytes are base64 in JSON."""

    user: Name
    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
    salt: Annotated[bytes, Meta(min_length=1, max_length=1_024)]
    iterations: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    stored_key: Annotated[bytes, Meta(min_length=32, max_length=64)]
    server_key: Annotated[bytes, Meta(min_length=32, max_length=64)]


def check_passphrase(passphrase: str) -> None:
    """Raise InvalidConfig for a passphrase that is too short."""
    if len(passphrase) < PASSPHRASE_MIN:
        raise InvalidConfig(
            f"the passphrase has {len(passphrase)} characters; give {PASSPHRASE_MIN} or more"
        )


def seal_keys(
    found: Sequence[UserKeys], passphrase: str, *, backup: str, access: BackupAccess
) -> SealedKeys:
    """Encrypt salted keys, and authenticate the rest of `access`; takes about 0.1 s. Raises
    InvalidConfig for a short passphrase."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    check_passphrase(passphrase)
    salt, nonce = os.urandom(16), os.urandom(12)
    content = msgspec.json.encode(
        [
            _Keys(
                user=each.user,
                mechanism=each.mechanism,  # type: ignore[arg-type] # checked when it is decoded
                salt=each.salt,
                iterations=each.iterations,
                stored_key=each.stored_key,
                server_key=each.server_key,
            )
            for each in found
        ]
    )
    covered = _covered(SEAL_VERSION, backup, access)
    sealed = AESGCM(_key(passphrase, salt)).encrypt(nonce, content, covered)
    return SealedKeys(salt.hex(), nonce.hex(), sealed.hex(), SEAL_VERSION)


def open_keys(access: BackupAccess, passphrase: str, *, backup: str) -> list[UserKeys]:
    """Decrypt the salted keys of `access`, which has some; takes about 0.1 s. Raises BackupDamaged
    for another passphrase, and for users, ACLs and quotas that are not those of the backup."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    sealed = access.keys
    assert sealed is not None, backup
    key = _key(passphrase, bytes.fromhex(sealed.salt))
    nonce, content = bytes.fromhex(sealed.nonce), bytes.fromhex(sealed.content)
    try:
        covered = _covered(sealed.version, backup, access)
        opened = AESGCM(key).decrypt(nonce, content, covered)
        found = msgspec.json.decode(opened, type=list[_Keys])
    except (InvalidTag, ValueError, msgspec.MsgspecError):
        raise BackupDamaged(
            f"backup {backup}: the keys of its users cannot be decrypted: the passphrase is"
            " another one, or the manifest is damaged, or its users, ACLs or quotas were changed"
        ) from None
    return [
        UserKeys(
            user=each.user,
            mechanism=each.mechanism,
            salt=each.salt,
            iterations=each.iterations,
            stored_key=each.stored_key,
            server_key=each.server_key,
        )
        for each in found
    ]


def _covered(version: int, backup: str, access: BackupAccess) -> bytes:
    """Return the data that a seal authenticates."""
    if version < SEAL_VERSION:
        return backup.encode()
    # Decoded once more, values have the form that they have after a restore reads the manifest.
    read = msgspec.json.decode(msgspec.json.encode(access), type=BackupAccess)
    return msgspec.json.encode([version, backup, read.users, read.acls, read.quotas])


def _key(passphrase: str, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=32, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P).derive(
        passphrase.encode()
    )
