"""`quorumlog backup` with real nodes: create, list, verify, restore, delete, refusals."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.kit.command import answer_prompt, dev_node, invoke, json_lines, succeed

import quorumlog
from quorumlog.cli.failures import print_error
from quorumlog.cli.output import print_event
from quorumlog.errors import BackupDamaged
from quorumlog.records.checksum import crc32c

pytestmark = pytest.mark.slow

MANY = 4_000


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The gRPC address of another cluster."""
    with dev_node(tmp_path_factory.mktemp("restored") / "data") as addresses:
        yield addresses["grpc"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A directory for backups."""
    return tmp_path / "store"


def run(*words: str, address: str = "") -> tuple[int, Any]:
    """Run `quorumlog backup ... -o json`. Return the exit code and the result or error."""
    result = invoke("backup", *words, "-o", "json", address=address)
    if result.exit_code:
        return result.exit_code, json.loads(result.stderr.splitlines()[-1])
    return 0, json.loads(result.stdout.splitlines()[-1])


def create(address: str, store: Path, topic: str, *more: str) -> Any:
    code, said = run("create", "--to", str(store), "--topics", topic, *more, address=address)
    assert code == 0, said
    return said


def restore(address: str, store: Path, *more: str) -> tuple[int, Any]:
    return run("restore", "--from", str(store), *more, address=address)


def rows(address: str, topic: str) -> list[dict[str, object]]:
    """Return every record of a topic with its offset, time, key and headers."""
    read = succeed("consume", topic, "--until-end", "-o", "json", address=address)
    found = [{**row, "topic": ""} for row in json_lines(read)]
    return sorted(found, key=lambda row: (str(row["partition"]), int(str(row["offset"]))))


def objects(store: Path) -> list[Path]:
    return sorted(path for path in (store / "data").rglob("*") if path.is_file())


def write(address: str, topic: str, count: int, *, size: int = 100) -> None:
    lines = "".join(f'{{"key": "k{n}", "value": "{n:0{size}}"}}\n' for n in range(count))
    succeed("produce", topic, "--format", "json", address=address, stdin=lines)


@pytest.mark.long
def test_backup_has_records_offsets_configs_and_groups(
    address: str, target: str, topic: str, store: Path
) -> None:
    succeed(
        *("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=86400000"),
        *("--config", "segment.bytes=1048576"),
        address=address,
    )
    write(address, topic, 300)
    with quorumlog.connect(address) as log:
        with log.producer(transactional_id=f"t-{topic}") as producer:
            with producer.transaction():
                producer.send(topic, b"committed", key=b"1")
            with suppress(KeyError), producer.transaction():
                producer.send(topic, b"aborted", key=b"1")
                raise KeyError
            with producer.transaction():
                producer.send(topic, b"after", key=b"1")
        log.admin.delete_records(topic, {0: 20})
    group = ("consume", topic, "--group", f"g-{topic}", "--timeout", "30")
    succeed(*group, "--max", "100", address=address)
    made = create(address, store, topic)
    assert (made["topics"], made["groups"], made["records"]) == (1, 1, 302), made
    code, said = restore(target, store)
    assert code == 0, said
    assert rows(target, topic) == rows(address, topic)
    assert len(rows(target, topic)) == 302 - 20
    with quorumlog.connect(address) as source, quorumlog.connect(target) as log:
        for at in ("earliest", "latest"):
            expected = source.list_offsets(topic, at=at, isolation_level="read_committed")
            assert log.list_offsets(topic, at=at) == expected
        assert log.admin.describe_topic(topic).configs == source.admin.describe_topic(topic).configs
        committed = [
            {
                each.partition: each.committed
                for each in one.admin.describe_group(f"g-{topic}").offsets
            }
            for one in (source, log)
        ]
        assert committed[0] == committed[1]
    write(target, topic, 10)  # producers may write after the restore
    rest = succeed(*group, "--max", f"{302 - 20 - 100 + 10}", address=target)
    assert len(rest.splitlines()) == 302 - 20 - 100 + 10
    (listed,) = json.loads(
        succeed("backup", "list", "--from", str(store), "-o", "json", address="")
    )
    assert (listed["topics"], listed["records"]) == (1, 302)
    assert made["backup"] in succeed("backup", "list", "--from", str(store), address="")


def test_a_second_backup_stores_new_records_only(
    address: str, target: str, topic: str, store: Path
) -> None:
    succeed("topics", "create", topic, "--partitions", "2", address=address)
    write(address, topic, MANY)
    first = create(address, store, topic)
    assert first["bytes_stored"] == first["bytes"] > 0
    assert create(address, store, topic)["bytes_stored"] == 0
    write(address, topic, 10)
    third = create(address, store, topic)
    assert 0 < third["bytes_stored"] < first["bytes"] / 10
    assert third["records"] == MANY + 10
    code, said = restore(target, store)
    assert code == 0, said
    assert rows(target, topic) == rows(address, topic)
    code, said = run("delete", "--from", str(store), "--keep", "1", "--yes")
    assert (code, len(said["deleted"]), said["objects"]) == (0, 2, 0)
    assert run("verify", "--from", str(store))[1]["damaged"] == 0
    succeed("topics", "delete", topic, "--yes", address=address)
    succeed("topics", "create", topic, "--partitions", "2", address=address)
    create(address, store, topic)
    code, said = run("delete", "--from", str(store), "--keep", "1", "--yes")
    assert (code, said["bytes"]) == (0, third["bytes"])
    assert objects(store) == []


@pytest.mark.long
def test_compaction_between_backups_restores_no_deleted_key(
    address: str, target: str, topic: str, store: Path
) -> None:
    """The first backup's object has the record; the log has neither it nor its tombstone."""
    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "0",
        "segment.bytes": "16384",
        "max.compaction.lag.ms": "1",
    }
    given = [word for name, value in configs.items() for word in ("--config", f"{name}={value}")]
    succeed("topics", "create", topic, "--partitions", "1", *given, address=address)
    with quorumlog.connect(address) as log, log.producer() as producer:
        producer.send(topic, b"value", key=b"gone")
        producer.flush()
        create(address, store, topic)
        producer.send(topic, None, key=b"gone")
        producer.flush()
        for number in range(100_000):
            producer.send(topic, b"x" * 512, key=b"filler")
            if number % 200 == 0:
                producer.flush()
                found = (
                    {row["key"] for row in rows(address, topic)}
                    if number % 2_000 == 0
                    else {"gone"}
                )
                if "gone" not in found:
                    break
        else:
            pytest.fail("the log was not compacted")
    create(address, store, topic)
    code, said = restore(target, store)
    assert code == 0, said
    assert "gone" not in {row["key"] for row in rows(target, topic)}


def test_damage_is_found_and_partial_restores_are_reported(
    address: str, target: str, topic: str, store: Path
) -> None:
    succeed("topics", "create", topic, "--partitions", "2", address=address)
    write(address, topic, MANY)
    made = create(address, store, topic)
    assert run("verify", "--from", str(store))[0] == 0
    damaged, missing = objects(store)
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    held = missing.read_bytes()
    missing.unlink()
    found = invoke("backup", "verify", made["backup"], "--from", str(store))
    assert found.exit_code == 1
    assert str(damaged.relative_to(store)) in found.output
    assert f"{missing.relative_to(store)}: missing" in found.output
    code, said = restore(target, store)
    assert (code, said["error"]) == (1, "BACKUP_DAMAGED")
    assert invoke("topics", "describe", topic, address=target).exit_code != 0  # nothing was created
    missing.write_bytes(held)
    code, said = restore(target, store)
    assert (code, said["error"]) == (1, "BACKUP_DAMAGED")
    assert damaged.name in said["message"]
    refused = invoke("produce", topic, address=target, stdin="x\n")
    assert refused.exit_code != 0
    assert made["backup"] in refused.output  # the topic is partly restored
    damaged.write_bytes(content)
    code, said = restore(target, store)
    assert (code, said["error"]) == (1, "TOPIC_ALREADY_EXISTS")
    assert "half restored" in said["message"]
    code, said = restore(target, store, "--resume")
    assert code == 0, said
    assert rows(target, topic) == rows(address, topic)
    code, said = restore(target, store, "--resume")  # everything is restored already
    assert (code, said["topics_restored"]) == (0, 1), said


def test_existing_topics_are_refused_and_other_names_are_possible(
    address: str, target: str, topic: str, store: Path
) -> None:
    succeed("topics", "create", topic, "--partitions", "1", address=address)
    write(address, topic, 50)
    create(address, store, topic)
    code, said = restore(address, store)
    assert (code, said["error"]) == (1, "TOPIC_ALREADY_EXISTS")
    succeed("topics", "create", topic, "--partitions", "1", address=target)
    write(target, topic, 60, size=50)
    code, said = restore(target, store, "--resume")
    assert (code, said["error"]) == (1, "TOPIC_ALREADY_EXISTS")
    assert "does not have the last record" in said["message"]
    code, said = restore(address, store, "--as", f"{topic}.old", "--dry-run")
    assert (code, said["topics"][0]["restored_as"]) == (0, f"{topic}.old")
    assert invoke("topics", "describe", f"{topic}.old", address=address).exit_code != 0
    code, said = restore(address, store, "--as", f"{topic}.old", "--config", "retention.ms=-1")
    assert code == 0, said
    assert rows(address, f"{topic}.old") == rows(address, topic)
    with quorumlog.connect(address) as log:
        configs = log.admin.describe_topic(f"{topic}.old").configs
        assert configs == {"retention.ms": "-1"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_a_backup_continues_after_a_full_disk(address: str, topic: str, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a tmpfs")
    try:
        succeed("topics", "create", topic, "--partitions", "1", address=address)
        with quorumlog.connect(address) as log, log.producer() as producer:
            for _ in range(40):
                producer.send_many(topic, [os.urandom(1 << 16) for _ in range(16)])
                producer.flush()
        words = ("create", "--to", str(folder / "store"), "--topics", topic)
        code, said = run(*words, address=address)
        assert (code, said["error"]) == (1, "DISK_FULL"), said
        assert "No backups." in succeed(
            "backup", "list", "--from", str(folder / "store"), address=""
        )
        subprocess.run(["mount", "-o", "remount,size=100m", str(folder)], check=True)
        code, said = run("delete", "--from", str(folder / "store"), "--keep", "1", "--yes")
        assert (code, said["error"]) == (1, "BACKUP_INCOMPLETE")  # its objects are still used
        code, said = run(*words, address=address)
        assert code == 0, said
        assert 0 < said["bytes_stored"] < said["bytes"]
        assert run("verify", "--from", str(folder / "store"))[1]["damaged"] == 0
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    code, said = run("list", "--from", str(store))
    assert (code, said["error"]) == (1, "ENVIRONMENT_UNUSABLE")
    assert "quorumlog[backup]" in said["message"]


def test_stores_and_backups_that_do_not_exist_are_refused(address: str, store: Path) -> None:
    assert run("list", "--from", str(store))[1]["error"] == "BACKUP_NOT_FOUND"
    assert run("list", "--from", "ftp://x/y")[1]["error"] == "INVALID_CONFIG"
    store.mkdir()
    assert restore(address, store)[1]["error"] == "BACKUP_NOT_FOUND"
    assert restore(address, store, "../../etc/passwd")[1]["error"] == "BACKUP_NOT_FOUND"
    made = create(address, store, "no-such-topic")
    (path,) = (store / "manifests").iterdir()
    shutil.copy(path, path.with_name("20200101T000000000Z-00000000.json"))
    code, said = run("verify", "--from", str(store))
    assert code == 1, said
    assert restore(address, store, "20200101T000000000Z-00000000")[1]["error"] == "BACKUP_DAMAGED"
    assert made["topics"] == 0
    refused = invoke("backup", "create", "--to", str(store), "--include-secrets", address=address)
    assert refused.exit_code == 2


def test_restored_keys_need_an_encrypted_connection_and_options_that_fit(store: Path) -> None:
    words = ("--passphrase", "env:HOME")
    code, said = restore("192.0.2.1:9094", store, "--access", *words)
    assert (code, said["error"]) == (1, "INVALID_CONFIG")
    assert "need an encrypted connection" in said["message"]
    wrong = [words, ("--as", "x", "--prefix", "y")]
    for each in wrong:
        refused = invoke("backup", "restore", "--from", str(store), *each, address="127.0.0.1:1")
        assert refused.exit_code == 2, refused.output


def test_users_acls_and_quotas_without_a_passphrase_are_shown_and_confirmed(
    address: str, target: str, topic: str, store: Path
) -> None:
    """The owner of a store adds an ACL and a quota to a manifest."""
    succeed("topics", "create", topic, "--partitions", "1", address=address)
    create(address, store, topic)
    (path,) = (store / "manifests").iterdir()
    manifest = json.loads(path.read_bytes())["manifest"]
    acl = {
        **{"principal": "User:mallory", "operation": "All", "resource_type": "Cluster"},
        **{"resource": "kafka-cluster", "pattern": "Literal", "permission": "Allow", "host": "*"},
    }
    quota = {"entity": {"user": "mallory"}, "quotas": {"producer_byte_rate": 1e9}}
    manifest["access"].update(acls=[acl], quotas=[quota])
    raw = json.dumps(manifest).encode()
    path.write_bytes(b'{"crc32c":%d,"manifest":%s}' % (crc32c(raw), raw))
    words = ("backup", "restore", "--from", str(store), "--access")
    code, said = restore(target, store, "--access")
    assert (code, said["error"]) == (1, "INVALID_REQUEST"), said
    assert "1 ACL and 1 quota are not authenticated" in said["message"]
    found = invoke(*words, "--dry-run", address=target)
    assert found.exit_code == 0, found.output
    assert "Allow User:mallory All Cluster kafka-cluster" in found.stderr
    code, text = answer_prompt(b"n\n", *words, address=target)
    assert (code, "{'user': 'mallory'}" in text) == (1, True), text
    assert invoke("topics", "describe", topic, address=target).exit_code != 0
    code, said = restore(target, store, "--access", "--passphrase", "env:HOME", "--yes")
    assert (code, said["error"]) == (1, "INVALID_CONFIG"), said
    assert "no encrypted passwords" in said["message"]
    done = invoke(*words, "--yes", "-o", "json", address=target)
    assert "ACLs are not restored" in done.output  # the target has no authorizer
    assert "mallory" in succeed("quotas", "describe", address=target)


def test_backup_without_users_acls_and_quotas_is_refused_with_a_passphrase(
    address: str, target: str, topic: str, store: Path
) -> None:
    succeed("topics", "create", topic, "--partitions", "1", address=address)
    create(address, store, topic, "--no-access")
    words = ("--access", "--passphrase", "env:HOME", "--yes")
    code, said = restore(target, store, *words)
    assert (code, said["error"]) == (1, "INVALID_CONFIG"), said
    assert "no encrypted passwords" in said["message"]
    assert invoke("topics", "describe", topic, address=target).exit_code != 0
    done = invoke("backup", "restore", "--from", str(store), "--access", address=target)
    assert done.exit_code == 0, done.output
    assert "has no users, ACLs and quotas" in done.output


def test_stray_files_and_damaged_marks_block_no_command(address: str, store: Path) -> None:
    made = create(address, store, "no-such-topic")["backup"]
    (manifest,) = (store / "manifests").iterdir()
    (store / "manifests" / "sub").mkdir()
    shutil.copy(manifest, store / "manifests" / "sub" / manifest.name)
    (store / "manifests" / "20200101T000000000Z-00000000").write_bytes(b"stray")
    other = "20200101T000000000Z-11111111"
    (store / "running").mkdir(exist_ok=True)
    (store / "running" / f"{other}.json").write_bytes(bytes(1 << 20))
    (store / "manifests" / "x.json#1").write_bytes(b"of a killed process")
    code, said = run("list", "--from", str(store))
    assert code == 0, said
    assert [(each["backup"], each.get("running")) for each in said] == [(made, None), (other, True)]
    code, said = run("delete", "--from", str(store), made)
    assert (code, said["error"]) == (1, "BACKUP_INCOMPLETE")
    code, said = run("delete", "--from", str(store), made, "--force")
    assert (code, said["deleted"]) == (0, [made])
    assert not (store / "manifests" / "x.json#1").exists()
    assert not list((store / "running").iterdir())


def test_a_torn_object_of_an_interrupted_backup_is_stored_again(
    address: str, topic: str, store: Path
) -> None:
    succeed("topics", "create", topic, "--partitions", "1", address=address)
    with quorumlog.connect(address) as log, log.producer() as producer:
        for _ in range(3):  # batches
            producer.send_many(topic, [bytes(100)] * 10, partition=0)
            producer.flush()
    create(address, store, topic)
    (manifest,) = (store / "manifests").iterdir()
    manifest.unlink()
    (data,) = objects(store)
    content = bytearray(data.read_bytes())
    content[70] ^= 1
    data.write_bytes(content)
    create(address, store, topic)
    assert run("verify", "--from", str(store))[1]["damaged"] == 0


def test_a_forced_deletion_asks_if_no_backup_is_deleted(address: str, store: Path) -> None:
    create(address, store, "no-such-topic")
    mark = store / "running" / "20200101T000000000Z-11111111.json"
    mark.write_bytes(b"{}")
    words = ("backup", "delete", "--from", str(store), "--keep", "1", "--force")
    code, said = answer_prompt(b"n\n", *words, address="")
    assert (code, mark.exists()) == (1, True), said
    assert "Delete the data of interrupted backups?" in said


def test_events_and_errors_show_hidden_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Texts of a manifest are untrusted."""
    print_event("first\x1b[2J", is_json=False)
    print_error(BackupDamaged("second\u202e\nthird"), as_json=False)
    assert capsys.readouterr().err == "first\\x1b[2J\nquorumlog: second\\u202e\\nthird\n"
