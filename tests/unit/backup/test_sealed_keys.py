"""The passphrase of a backup authenticates its users, ACLs and quotas."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.backup.samples import BACKUP, manifest

from quorumlog.backup.manifest import (
    BackupAccess,
    BackupAcl,
    BackupQuotas,
    SealedKeys,
    decode_manifest,
    encode_manifest,
)
from quorumlog.backup.sealed_keys import open_keys, seal_keys
from quorumlog.clients.admin.security import UserKeys
from quorumlog.errors import BackupDamaged

PASSPHRASE = "correct horse"
KEYS = [
    UserKeys(
        user="alice",
        mechanism="SCRAM-SHA-256",
        salt=b"salt",
        iterations=4_096,
        stored_key=bytes(32),
        server_key=bytes(32),
    )
]
V1_SALT, V1_NONCE = "170ed1fc084e806d2c6360006bb97be0", "936af7117f6e370e8f318b78"
V1_CONTENT = (
    "fa684a0c47839ccbe726ea4147f87946657a2d363e6a449a6e98021e28e801e68cdfc203817d9328"
    "b68c416528260f9674692192fe4b9f13ec2516b3918df5b757115b1ef642bcbacbede79baeda17fb"
    "a66df1f6a114522b52d1a8ba8b44d8d66fd8c399814c27e7d9869c7dff092fffa5327b5f08299512"
    "a27b6c57cec0f95c469f1b2e7f63fdda2ec8c23039d0682a3095531a94aee080bf9bc416c3316cb4"
    "d6232d0c4435df4e8ca2e3a38bbc544e3fbc4de638241d0eaa2fb0847bd8e905645124103d73d26d"
    "1e8640baf9a347994a5295c96df9d9ac830b"
)


def acl(user: str) -> BackupAcl:
    return BackupAcl(
        principal=f"User:{user}",
        operation="All",
        resource_type="Cluster",
        resource="kafka-cluster",
        pattern="Literal",
        permission="Allow",
        host="*",
    )


PLAIN = BackupAccess(
    users=["alice"],
    acls=[acl("alice")],
    quotas=[BackupQuotas({"user": "alice", "client_id": None}, {"producer_byte_rate": 1_000})],
)


def stored(access: BackupAccess) -> BackupAccess:
    """The access part after a manifest is written and read."""
    content = encode_manifest(replace(manifest(), access=access))
    found = decode_manifest(content, BACKUP).access
    assert found is not None
    return found


@pytest.fixture(scope="module")
def sealed() -> BackupAccess:
    """The access part of a backup that has keys."""
    keys = seal_keys(KEYS, PASSPHRASE, backup=BACKUP, access=PLAIN)
    return stored(replace(PLAIN, keys=keys))


def test_keys_of_an_unchanged_backup_are_opened(sealed: BackupAccess) -> None:
    assert sealed.is_authenticated
    assert open_keys(sealed, PASSPHRASE, backup=BACKUP) == KEYS


@pytest.mark.parametrize(
    "changed",
    [
        {"acls": [acl("alice"), acl("mallory")]},
        {"acls": []},
        {"users": ["alice", "mallory"]},
        {"quotas": []},
        {"quotas": [BackupQuotas({"user": "alice"}, {"producer_byte_rate": 1e12})]},
    ],
)
def test_changed_users_acls_and_quotas_are_refused(
    changed: dict[str, object], sealed: BackupAccess
) -> None:
    access = stored(replace(sealed, **changed))
    with pytest.raises(BackupDamaged, match="users, ACLs or quotas were changed"):
        open_keys(access, PASSPHRASE, backup=BACKUP)


def test_another_version_or_backup_does_not_open_a_seal(sealed: BackupAccess) -> None:
    keys = sealed.keys
    assert keys is not None
    older = replace(sealed, keys=replace(keys, version=1), acls=[acl("mallory")])
    assert not older.is_authenticated
    with pytest.raises(BackupDamaged):
        open_keys(older, PASSPHRASE, backup=BACKUP)
    with pytest.raises(BackupDamaged):
        open_keys(sealed, PASSPHRASE, backup=BACKUP[:-1] + "2")


def test_seal_of_an_earlier_release_opens_and_authenticates_nothing() -> None:
    raw = msgspec.json.encode({"salt": V1_SALT, "nonce": V1_NONCE, "content": V1_CONTENT})
    keys = msgspec.json.decode(raw, type=SealedKeys)
    access = stored(replace(PLAIN, keys=keys, acls=[acl("mallory")]))
    assert not access.is_authenticated
    assert open_keys(access, PASSPHRASE, backup=BACKUP) == KEYS
