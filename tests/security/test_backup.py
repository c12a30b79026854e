"""Backups of secure clusters: users with their passwords, ACLs and quotas, and the rights that a
backup needs."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.kit.command import COMMAND

import quorumlog
from quorumlog.clients.admin.security import AclFilter
from quorumlog.errors import ClusterAuthorizationFailed
from quorumlog.records.checksum import crc32c
from quorumlog.testing import Broker

pytest.importorskip("obstore")

TOPIC = "orders"
PASSPHRASE = "correct horse"
WITHIN_S = 120


def backup(
    broker: Broker,
    *words: str,
    user: str = "admin",
    password: str = "",
    passphrase: str = PASSPHRASE,
) -> tuple[int, dict[str, Any]]:
    """Run `quorumlog backup` as a user; return the exit code and the result or error."""
    done = subprocess.run(
        [*COMMAND, "backup", *words, "-o", "json"],
        env={
            **os.environ,
            "QUORUMLOG_BOOTSTRAP": broker.grpc,
            "QUORUMLOG_SECURITY_PROTOCOL": "SASL_SSL",
            "QUORUMLOG_TLS_CA_FILE": broker.ca_file,
            "QUORUMLOG_SASL_USER": user,
            "QUORUMLOG_SASL_PASSWORD": "env:PASSWORD",
            "PASSWORD": password or broker.password,
            "PASSPHRASE": passphrase,
        },
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    lines = (done.stderr if done.returncode else done.stdout).splitlines()
    found: dict[str, Any] = json.loads(lines[-1])
    return done.returncode, found


def allow(broker: Broker, user: str, operation: str, kind: str, name: str) -> None:
    """Permit an operation to a user."""
    acl = quorumlog.Acl(
        principal=f"User:{user}", operation=operation, resource_type=kind, resource=name
    )
    with broker.connect() as log:
        log.admin.create_acls([acl])


def with_foreign_acl(content: bytes, *, is_stripped: bool) -> bytes:
    """A manifest with an ACL that the cluster did not have, and without keys if `is_stripped`."""
    manifest = json.loads(content)["manifest"]
    access = manifest["access"]
    access["acls"].append({**access["acls"][0], "principal": "User:mallory"})
    if is_stripped:
        access["keys"] = None
    raw = json.dumps(manifest).encode()
    return b'{"crc32c":%d,"manifest":%s}' % (crc32c(raw), raw)


@pytest.mark.long
def test_users_acls_and_quotas_are_restored_and_keys_are_encrypted(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    secrets = ("--include-secrets", "--passphrase", "env:PASSPHRASE")
    with Broker(secure=True) as source, Broker(secure=True) as target:
        with source.connect() as log:
            log.admin.create_topic(TOPIC)
            log.admin.set_password("alice", "secret")
            log.admin.alter_quotas({"user": "alice"}, {"producer_byte_rate": 1000.0})
        allow(source, "alice", "All", "Topic", TOPIC)
        code, made = backup(source, "create", "--to", store, *secrets)
        assert code == 0, made
        with source.connect() as log:
            keys = log.admin.describe_scram_keys()
        content = (tmp_path / "store" / "manifests" / f"{made['backup']}.json").read_bytes()
        for each in keys:
            for form in (each.stored_key.hex().encode(), each.stored_key):
                assert form not in content
        words = ("restore", "--from", store, "--access")
        code, said = backup(target, *words)
        assert (code, said["error"]) == (1, "INVALID_CONFIG")
        code, said = backup(target, *words, *secrets[1:], passphrase="another one")
        assert (code, said["error"]) == (1, "BACKUP_DAMAGED")
        path = tmp_path / "store" / "manifests" / f"{made['backup']}.json"
        for is_stripped, error in ((False, "BACKUP_DAMAGED"), (True, "INVALID_CONFIG")):
            path.write_bytes(with_foreign_acl(content, is_stripped=is_stripped))
            code, said = backup(target, *words, "--yes", *secrets[1:])
            assert (code, said["error"]) == (1, error), said
        with target.connect() as log:
            assert log.admin.describe_acls(AclFilter(principal="User:mallory")) == []
        path.write_bytes(content)
        code, said = backup(target, *words, *secrets[1:])
        assert code == 0, said
        assert (said["users"], said["quotas"]) == (1, 1)
        alice = quorumlog.SCRAM(user="alice", password="secret")
        with target.connect(credentials=alice) as log, log.producer() as producer:
            producer.send(TOPIC, b"value").result()
        with source.connect() as there, target.connect() as log:
            condition = AclFilter(principal="User:alice")
            assert log.admin.describe_acls(condition) == there.admin.describe_acls(condition)
            assert log.admin.describe_quotas() == there.admin.describe_quotas()


@pytest.mark.long
def test_keys_need_the_right_to_set_passwords(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with Broker(secure=True) as broker:
        with broker.connect() as log:
            log.admin.create_topic(TOPIC)
            log.admin.set_password("backup", "secret")
        words = ("create", "--to", store)
        code, said = backup(broker, *words, "--no-access", user="backup", password="secret")
        assert code == 0, said
        assert said["topics"] == 0  # a topic that a user may not describe is not listed
        for operation in ("Read", "DescribeConfigs"):
            allow(broker, "backup", operation, "Topic", TOPIC)
        code, said = backup(broker, *words, user="backup", password="secret")
        assert (code, said["error"]) == (1, "CLUSTER_AUTHORIZATION_FAILED")
        for operation in ("Describe", "DescribeConfigs"):
            allow(broker, "backup", operation, "Cluster", "kafka-cluster")
        code, said = backup(broker, *words, user="backup", password="secret")
        assert (code, said["topics"]) == (0, 1), said
        own = quorumlog.SCRAM(user="backup", password="secret")
        with broker.connect(credentials=own) as log, pytest.raises(ClusterAuthorizationFailed):
            log.admin.describe_scram_keys()
        allow(broker, "backup", "Alter", "Cluster", "kafka-cluster")
        with broker.connect(credentials=own) as log:
            assert {each.user for each in log.admin.describe_scram_keys()} == {"admin", "backup"}
