"""A node process: its ready line, its orderly stop, and the errors of a failed start."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from quorumlog.errors import DirectoryMismatch
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Channel, Runtime, real
from quorumlog.server.main import format_storage, load_config
from quorumlog.services import ADMIN_CREATE_TOPIC, LOG_FETCH, LOG_PRODUCE

WAIT_MS = 60_000
DEADLINE_S = 120.0
CLEAN_MARKER = ".kafka_cleanshutdown"

DEV = """
import sys
from quorumlog.server.main import DevOptions, dev
grpc_port, controller_port = int(sys.argv[2]), int(sys.argv[3])
options = DevOptions(data_dir=sys.argv[1], grpc_port=grpc_port, controller_port=controller_port)
sys.exit(dev(options, as_json=True))
"""
SERVE = """
import sys
from quorumlog.server.main import serve
sys.exit(serve(sys.argv[1], as_json=True))
"""


class Process:
    """A node process under test."""

    def __init__(self, code: str, *arguments: str) -> None:
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> dict[str, object]:
        """Wait for the ready line and return it."""
        assert self._process.stdout is not None
        seen, _, _ = select.select([self._process.stdout], [], [], DEADLINE_S)
        assert seen, f"no ready line within {DEADLINE_S} s"
        line = self._process.stdout.readline()
        assert line, f"exit code {self._process.wait()}: {self.complaint()}"
        answer: dict[str, object] = json.loads(line)
        return answer

    def complaint(self) -> str:
        """Wait for the end of the process and return its stderr."""
        return self._process.communicate(timeout=DEADLINE_S)[1]

    def refusal(self) -> str:
        """Wait for a failed start; return its error line."""
        out, error = self._process.communicate(timeout=DEADLINE_S)
        assert self._process.returncode == 1, (self._process.returncode, out, error)
        assert out == ""
        assert error.startswith("quorumlog: "), error
        assert error.count("\n") == 1, error
        return error

    def send(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait, and return the exit code."""
        self.send(number)
        self._process.communicate(timeout=DEADLINE_S)
        return self._process.returncode

    def end(self) -> None:
        """Kill the process and close its pipes."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def process(code: str, *arguments: str) -> Iterator[Process]:
    running = Process(code, *arguments)
    try:
        yield running
    finally:
        running.end()


@contextmanager
def dev(folder: Path, grpc_port: int = 0, controller_port: int = 0) -> Iterator[Process]:
    with process(DEV, str(folder), str(grpc_port), str(controller_port)) as running:
        yield running


async def fetched(channel: Channel) -> bytes:
    request = log_pb2.FetchRequest()
    request.partitions.add(topic="t", partition=0, offset=0)
    response = await channel.call(LOG_FETCH, request, timeout_ms=WAIT_MS)
    return response.results[0].records


def produce_and_fetch(address: str) -> bytes:
    """Create a topic, write one record, return the partition's bytes."""

    async def main(runtime: Runtime) -> bytes:
        channel = runtime.network.channel(address)
        await channel.call(
            ADMIN_CREATE_TOPIC, admin_pb2.CreateTopicRequest(name="t"), timeout_ms=WAIT_MS
        )
        stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
        request = log_pb2.ProduceRequest()
        batch = encode_batch([Record(0, 1, b"k", b"v")])
        request.partitions.add(topic="t", partition=0, records=batch)
        await stream.send(request)
        await stream.finish()
        response = await stream.receive()
        assert response is not None
        assert not response.results[0].HasField("error"), response
        return await fetched(channel)

    return real.run(main)


def fetch_again(address: str) -> bytes:
    async def main(runtime: Runtime) -> bytes:
        return await fetched(runtime.network.channel(address))

    return real.run(main)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_orderly_stop_leaves_the_clean_marker_and_keeps_the_records(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "data"
    with dev(folder) as first:
        line = first.ready()
        print(f"ready after {time.monotonic() - first.started:.2f} s")
        assert line["ready"] is True
        assert str(line["kafka"]).startswith("127.0.0.1:")
        with urlopen(f"http://{line['http']}/ready") as answer:
            assert json.load(answer)["ready"] is True
        assert (line["pid"], line["data_dir"]) == (first.pid, str(folder))
        assert str(line["grpc"]).startswith("127.0.0.1:")
        assert str(line["controller"]).startswith("127.0.0.1:")
        stored = produce_and_fetch(str(line["grpc"]))
        assert not (folder / CLEAN_MARKER).exists()
        assert first.stop(number) == 0
        assert (folder / CLEAN_MARKER).exists()
    with dev(folder) as second:
        assert fetch_again(str(second.ready()["grpc"])) == stored


@pytest.mark.slow
def test_a_kill_leaves_no_marker_and_the_next_start_recovers(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with dev(folder) as first:
        stored = produce_and_fetch(str(first.ready()["grpc"]))
        assert first.stop(signal.SIGKILL) == -signal.SIGKILL
        assert not (folder / CLEAN_MARKER).exists()
    with dev(folder) as second:
        assert fetch_again(str(second.ready()["grpc"])) == stored


@pytest.mark.slow
def test_a_second_process_on_the_directory_is_refused_and_the_first_continues(
    tmp_path: Path,
) -> None:
    with dev(tmp_path / "data") as first:
        address = str(first.ready()["grpc"])
        with dev(tmp_path / "data") as second:
            sentence = second.refusal()
        assert str(tmp_path / "data") in sentence
        assert "another process" in sentence
        assert produce_and_fetch(address)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["grpc", "controller"])
def test_a_port_in_use_is_refused_and_leaves_a_valid_directory(tmp_path: Path, which: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = {"grpc_port": port} if which == "grpc" else {"controller_port": port}
        with dev(tmp_path / "data", **ports) as running:
            sentence = running.refusal()
        assert f"127.0.0.1:{port}" in sentence
        assert (tmp_path / "data" / CLEAN_MARKER).exists()
    with dev(tmp_path / "data") as again:
        assert again.ready()["ready"] is True


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_directory_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with dev(tmp_path / "data") as running:
        sentence = running.refusal()
    tmp_path.chmod(0o700)
    assert str(tmp_path / "data") in sentence


@pytest.mark.slow
def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    with dev(tmp_path / "data") as running:
        assert str(tmp_path / "data") in running.refusal()
    assert (tmp_path / "data").read_text() == "not a folder"


@pytest.mark.slow
def test_a_file_system_that_is_read_only_is_refused() -> None:
    with dev(Path("/proc/quorumlog-data")) as running:
        assert "/proc/quorumlog-data" in running.refusal()


def settings(folder: Path, **more: str) -> str:
    lines = {
        "data.dir": str(folder),
        "listeners.grpc": "127.0.0.1:0",
        "listeners.controller": "127.0.0.1:0",
    }
    return "".join(f'{name} = "{value}"\n' for name, value in (lines | more).items())


@pytest.mark.slow
def test_a_server_needs_a_formatted_directory_of_its_own_cluster(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(settings(tmp_path / "data"))
    with process(SERVE, str(file)) as running:
        assert "storage format" in running.refusal()
    assert not (tmp_path / "data").exists()
    meta = format_storage(load_config(str(file)))
    with process(SERVE, str(file)) as running:
        assert running.ready()["ready"] is True
        assert running.stop() == 0
    file.write_text(settings(tmp_path / "data", **{"cluster.id": "A" * 22}))
    with process(SERVE, str(file)) as running:
        sentence = running.refusal()
    assert meta.cluster_id in sentence
    assert "A" * 22 in sentence
    with pytest.raises(DirectoryMismatch):
        format_storage(load_config(str(file)))


@pytest.mark.slow
def test_dev_rejects_a_listener_that_it_cannot_advertise(tmp_path: Path) -> None:
    code = DEV.replace("data_dir=sys.argv[1]", 'data_dir=sys.argv[1], host="0.0.0.0"')
    with process(code, str(tmp_path / "data"), "0", "0") as running:
        assert "0.0.0.0: every interface cannot be advertised" in running.refusal()
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_wrong_setting_prints_one_line(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(settings(tmp_path / "data") + 'listener.grpc = "127.0.0.1:1"\n')
    with process(SERVE, str(file)) as running:
        sentence = running.refusal()
    assert "did you mean listeners.grpc?" in sentence
    with process(SERVE, str(tmp_path / "absent.toml")) as running:
        assert "absent.toml cannot be read" in running.refusal()


@pytest.mark.slow
def test_a_node_imports_no_heavy_module_before_its_ready_line(tmp_path: Path) -> None:
    code = DEV.replace(
        "sys.exit(",
        "import atexit\n"
        "atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))\n"
        "sys.exit(",
    )
    with process(code, str(tmp_path / "data"), "0", "0") as running:
        running.ready()
        running.send(signal.SIGTERM)
        loaded = set(running.complaint().split())
    assert "quorumlog.server.node" in loaded
    heavy = {"pyarrow", "pyspark", "numpy", "pandas", "rich", "typer", "tomllib", "hypothesis"}
    heavy |= {"kio", "kio.index", "kio.serial", "kio.schema"}  # at the first Kafka request
    assert not loaded & heavy
