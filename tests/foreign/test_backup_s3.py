"""Backups in an S3-compatible store: versitygw (github.com/versity/versitygw), built with Go."""

import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.kit.command import invoke, json_lines, succeed

import quorumlog
from quorumlog.testing import Broker

MODULE: Final = "github.com/versity/versitygw/cmd/versitygw"
VERSION: Final = "v1.8.0"
BUILD: Final = Path(__file__).parents[2] / "build" / "versitygw"
BUILD_S: Final = 500
START_S: Final = 60
ACCESS, SECRET = "backup-user", "backup-secret"

pytestmark = pytest.mark.long  # they build the gateway


@pytest.fixture(scope="session")
def gateway_program() -> Path:
    """Build the program, once for each version, and return its path. Skip the test without Go or
    its modules."""
    pytest.importorskip("obstore")
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not on the PATH")
    program = BUILD / VERSION / "versitygw"
    program.parent.mkdir(parents=True, exist_ok=True)
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process builds
        if not program.exists():
            try:
                done = subprocess.run(
                    [go, "install", f"{MODULE}@{VERSION}"],
                    env={**os.environ, "GOBIN": str(program.parent), "GOFLAGS": ""},
                    capture_output=True,
                    text=True,
                    timeout=BUILD_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                pytest.skip(f"go did not build versitygw within {BUILD_S} s")
            if done.returncode:
                pytest.skip(f"go cannot build versitygw: {done.stderr[-600:]}")
    return program


@pytest.fixture
def endpoint(gateway_program: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of a running server with the bucket `backups`."""
    (tmp_path / "s3" / "backups").mkdir(parents=True)
    (tmp_path / "sidecar").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(gateway_program), "--access", ACCESS, "--secret", SECRET]
    command += ["--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(tmp_path / "sidecar")]
    with (tmp_path / "gateway.log").open("wb") as log:
        process = subprocess.Popen([*command, str(tmp_path / "s3")], stdout=log, stderr=log)
    try:
        until_s = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "gateway.log").read_text()
                assert time.monotonic() < until_s, "the server does not listen"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def run(*words: str, address: str = "") -> tuple[int, Any]:
    result = invoke("backup", *words, "-o", "json", address=address)
    assert result.stdout or result.stderr, result.output
    lines = (
        result.stderr if result.exit_code and not result.stdout else result.stdout
    ).splitlines()
    return result.exit_code, json_lines(lines[-1])[0]


def test_a_backup_in_a_bucket_is_restored(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "secret"
    key.write_text(SECRET + "\n")
    key.chmod(0o600)
    monkeypatch.setenv("ACCESS", ACCESS)
    place = ["--endpoint", endpoint, "--region", "us-east-1"]
    place += ["--access-key", "env:ACCESS", "--secret-key", f"file:{key}"]
    url = "s3://backups/prod"
    with Broker() as source, Broker() as target:
        topic = source.create_topic(partitions=2)
        with source.connect() as log, log.producer(compression="none") as producer:
            for _ in range(10):  # so that there are several objects
                for partition in range(2):
                    producer.send_many(topic, [os.urandom(1 << 16)] * 32, partition=partition)
                producer.flush()
        code, made = run("create", "--to", url, *place, address=source.grpc)
        assert code == 0, made
        assert made["objects_stored"] >= 4
        code, again = run("create", "--to", url, *place, address=source.grpc)
        assert (code, again["bytes_stored"]) == (0, 0), again
        listed = json_lines(
            succeed("backup", "list", "--from", url, *place, "-o", "json", address="")
        )
        assert len(listed[0]) == 2  # a list of backups
        code, said = run("restore", "--from", url, *place, address=target.grpc)
        assert code == 0, said
        assert contents(source, topic) == contents(target, topic)
        damage_one(tmp_path / "s3" / "backups" / "prod" / "data")
        code, said = run("verify", "--from", url, *place)
        assert (code, said["damaged"]) == (1, 1), said
        code, said = run("delete", "--from", url, "--keep", "1", "--yes", *place)
        assert (code, len(said["deleted"]), said["objects"]) == (0, 1, 0)


def test_a_store_that_rejects_or_is_down_is_a_typed_error(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    code, said = run("list", "--from", "s3://backups/prod", "--endpoint", endpoint)
    assert (code, said["error"]) == (1, "STORE_UNAVAILABLE"), said
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        code, said = run("list", "--from", "s3://backups/prod", "--endpoint", address)
    assert (code, said["error"]) == (1, "STORE_UNAVAILABLE"), said


def contents(broker: Broker, topic: str) -> list[tuple[int, int, bytes | None]]:
    """Return the records of a topic by partition and offset."""
    with quorumlog.connect(broker.grpc) as log, log.consumer(topic, until_end=True) as consumer:
        return sorted((each.partition, each.offset, each.value) for each in consumer)


def damage_one(folder: Path) -> None:
    """Change a byte of one object."""
    path = next(path for path in sorted(folder.rglob("*")) if path.is_file())
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
