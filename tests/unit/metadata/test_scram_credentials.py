"""SCRAM credentials in the metadata: keys, checks, changes, and that keys are not shown."""

import base64
import hashlib
import hmac

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import (
    CorruptionError,
    DuplicateResource,
    QuorumlogError,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from quorumlog.metadata import AlterScramCredentials, ScramCredentialsAltered
from quorumlog.metadata.acls import (
    Acl,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
    acl_message,
)
from quorumlog.metadata.decisions import scram_credentials
from quorumlog.metadata.scram_credentials import (
    ScramCredential,
    ScramKey,
    ScramMechanism,
    check_credential,
    check_user,
    credential_of_salted,
    credential_record,
    mechanism_of,
)
from quorumlog.metadata.snapshots import image_of, image_slices
from quorumlog.proto import metadata_records_pb2 as records_pb

SHA_256, SHA_512 = ScramMechanism
ALICE: ScramKey = ("alice", SHA_256)


def credential_of(password: str, salt: bytes) -> ScramCredential:
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 4_096)
    return credential_of_salted(SHA_256, salted, salt=salt, iterations=4_096)


CREDENTIAL = credential_of("secret", b"salt of bytes")


def alter(cluster: Cluster, command: AlterScramCredentials) -> dict[str, QuorumlogError | None]:
    reply = cluster.do(command).reply
    assert isinstance(reply, ScramCredentialsAltered)
    return {each.user: each.error for each in reply.outcomes}


def test_keys_verify_the_proof_of_the_rfc_example() -> None:
    """RFC 7677 section 3: user "user", password "pencil"."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = credential_of("pencil", salt)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    first = "n=user,r=rOprNGfwEbeRWgbNEkqO"
    second = f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    message = f"{first},{second},c=biws,r={nonce}".encode()
    signature = hmac.digest(credential.stored_key, message, "sha256")
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key
    server_signature = hmac.digest(credential.server_key, message, "sha256")
    assert base64.b64encode(server_signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_mechanisms_have_names_and_numbers() -> None:
    assert mechanism_of(2) is SHA_512
    with pytest.raises(UnsupportedSaslMechanism, match=r"SCRAM-SHA-256.*SCRAM-SHA-512"):
        mechanism_of(3)


@pytest.mark.parametrize("user", ["", "x" * 256, "a\x00b"])
def test_invalid_user_name_is_rejected(user: str) -> None:
    with pytest.raises(UnacceptableCredential):
        check_user(user)


def changed(**values: object) -> ScramCredential:
    fields = {name: getattr(CREDENTIAL, name) for name in ScramCredential.__struct_fields__}
    return ScramCredential(**{**fields, **values})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (changed(iterations=4_095), r"4095; give 4096\.\.16384"),
        (changed(iterations=16_385), "16385"),
        (changed(salt=bytes(11)), "11 bytes"),
        (changed(salt=bytes(257)), "257 bytes"),
        (changed(stored_key=b"short"), "SCRAM-SHA-256 needs 32"),
        (changed(server_key=bytes(64)), "SCRAM-SHA-256 needs 32"),
    ],
)
def test_invalid_credential_is_rejected(wrong: ScramCredential, message: str) -> None:
    check_credential(SHA_256, CREDENTIAL)
    with pytest.raises(UnacceptableCredential, match=message):
        check_credential(SHA_256, wrong)


def test_users_succeed_or_fail_independently(cluster: Cluster) -> None:
    weak = changed(iterations=1)
    errors = alter(
        cluster,
        AlterScramCredentials(
            deletions=(("nobody", SHA_256),),
            upsertions=(
                (ALICE, CREDENTIAL),
                (("bob", SHA_256), CREDENTIAL),
                (("bob", SHA_512), weak),
                (("carol", SHA_256), CREDENTIAL),
                (("carol", SHA_256), CREDENTIAL),
            ),
        ),
    )
    assert errors["alice"] is None
    assert isinstance(errors["nobody"], ResourceNotFound)
    assert isinstance(errors["bob"], UnacceptableCredential)
    assert isinstance(errors["carol"], DuplicateResource)
    assert dict(cluster.image.scram_credentials) == {ALICE: CREDENTIAL}


def test_credential_is_replaced_and_deleted(cluster: Cluster) -> None:
    other = changed(salt=b"another salt")
    alter(cluster, AlterScramCredentials(upsertions=((ALICE, CREDENTIAL),)))
    alter(cluster, AlterScramCredentials(upsertions=((ALICE, other),)))
    assert cluster.image.scram_credentials[ALICE] == other
    assert alter(cluster, AlterScramCredentials(deletions=(ALICE,))) == {"alice": None}
    assert not cluster.image.scram_credentials


def test_credentials_beyond_the_limit_are_rejected(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scram_credentials, "CREDENTIALS_MAX", 1)
    bob: ScramKey = ("bob", SHA_256)
    errors = alter(
        cluster, AlterScramCredentials(upsertions=((ALICE, CREDENTIAL), (bob, CREDENTIAL)))
    )
    assert errors["alice"] is None
    assert "limit of 1 credentials" in str(errors["bob"])
    replaced = AlterScramCredentials(upsertions=((ALICE, changed(salt=b"one more salt")),))
    assert alter(cluster, replaced) == {"alice": None}


def test_snapshot_contains_the_credentials(cluster: Cluster) -> None:
    alter(cluster, AlterScramCredentials(upsertions=((ALICE, CREDENTIAL),)))
    values = [value for part in image_slices(cluster.image) for value in part]
    end_offset = cluster.image.offset + 1
    assert image_of(values, end_offset=end_offset, epoch=1) == cluster.image


def test_image_has_the_offset_of_the_newest_change_of_rights_or_an_upper_bound(
    cluster: Cluster,
) -> None:
    assert cluster.image.security_offset == -1
    pattern = ResourcePattern(AclResourceType.TOPIC, "t", AclPatternType.LITERAL)
    acl = Acl(pattern, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
    message = acl_message(acl)
    for record in (
        records_pb.MetadataRecord(acl=message),
        records_pb.MetadataRecord(remove_acl=message),
        credential_record(ALICE, CREDENTIAL),
        credential_record(ALICE, None),
    ):
        cluster.replay((record,))
        changed = cluster.image.offset
        assert cluster.image.security_offset == changed
        other = records_pb.FeatureLevelRecord(name="f", level=1)
        cluster.replay((records_pb.MetadataRecord(feature_level=other),))
        assert cluster.image.security_offset == changed
    values = [value for part in image_slices(cluster.image) for value in part]
    loaded = image_of(values, end_offset=50, epoch=1)
    assert loaded.security_offset == 49


def test_deletion_of_an_absent_credential_stops_the_replay(cluster: Cluster) -> None:
    with pytest.raises(CorruptionError, match="does not exist"):
        cluster.replay((credential_record(ALICE, None),))


def test_text_of_a_credential_has_no_keys() -> None:
    assert repr(CREDENTIAL) == "ScramCredential(iterations=4096, keys hidden)"
    assert "secret" not in repr(AlterScramCredentials(upsertions=((ALICE, CREDENTIAL),)))
