"""The fallbacks for missing Linux calls pass the tests of the calls that they replace."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHER_SYSTEM = str(Path(__file__).with_name("emulated_platform.py"))
WAIT_S = 240

pytestmark = pytest.mark.slow


def run_as(
    system: str, program: str, *arguments: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end as on another system."""
    return subprocess.run(
        [sys.executable, OTHER_SYSTEM, system, program, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


@contextmanager
def node(system: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Start a node as on another system; kill it at the end."""
    command = [sys.executable, OTHER_SYSTEM, system, "quorumlog", "dev", "--output", "json"]
    command += ["--data-dir", str(folder), "--grpc-port", "0", "--controller-port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ready(process: "subprocess.Popen[str]") -> str:
    """Wait for the ready line; return the address for clients."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    return str(json.loads(line)["grpc"])


STAND_INS = """
import asyncio
from quorumlog.runtime import system
from quorumlog.runtime.byte_network import IOVEC_MAX
from quorumlog.runtime.real import new_loop
loop = new_loop()
calls = system.read_at, system.write_at, system.sync_data
print(system.CAN_PROBE, *(call.__name__ for call in calls), system.sendfile is None, IOVEC_MAX,
      isinstance(loop, asyncio.SelectorEventLoop))
loop.close()
"""


@pytest.mark.parametrize(
    ("system", "chosen"),
    [
        ("macos", "False pread _write_each _full_sync False 64 False"),
        ("windows", "False _seek_and_read _write_each fsync True 1 True"),
    ],
)
def test_the_fallbacks_are_selected(system: str, chosen: str) -> None:
    done = run_as(system, STAND_INS)
    assert (done.returncode, done.stdout.strip()) == (0, chosen), done.stderr


FULL_SYNCS = """
import sys
asked = []
sys.addaudithook(lambda event, given: asked.append(given[1]) if event == "fcntl.fcntl" else None)
from quorumlog.runtime.files import RealFiles
files = RealFiles()
file = files.open(sys.argv[1] + "/file", create=True)
file.write(0, [b"bytes"])
file.sync()
files.sync_folder(sys.argv[1])
file.close()
print(asked)
"""


def test_macos_syncs_bytes_and_names_to_the_medium(tmp_path: Path) -> None:
    """fsync on macOS stops at the drive's cache, for folders too; 51 is its F_FULLFSYNC."""
    done = run_as("macos", FULL_SYNCS, str(tmp_path))
    assert (done.returncode, done.stdout.strip()) == (0, "[51, 51]"), done.stderr


@pytest.mark.long
@pytest.mark.parametrize("system", ["macos", "windows"])
def test_files_and_connections_pass_the_tests_of_the_ports(system: str) -> None:
    done = run_as(
        system,
        *("pytest", "-q", "-p", "no:cacheprovider", "-k", "real"),
        *("tests/unit/runtime/test_files.py", "tests/unit/runtime/test_bytes.py"),
    )
    assert done.returncode == 0, done.stdout + done.stderr


CLIENT = """
import sys
import quorumlog
with quorumlog.connect(sys.argv[1]) as log:
    log.admin.create_topic("flights", partitions=2)
    with log.producer() as producer:
        for number in range(1000):
            producer.send("flights", key=b"%d" % number, value=b"x" * 1000)
    print(sum(1 for _ in log.consumer("flights", until_end=True)))
"""


@pytest.mark.long
@pytest.mark.parametrize("system", ["macos", "windows"])
def test_a_node_locks_serves_and_stops_in_order(system: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with node(system, folder) as process:
        address = ready(process)
        done = run_as(system, CLIENT, address)
        assert (done.returncode, done.stdout.strip()) == (0, "1000"), done.stderr
        with node(system, folder) as second:
            assert second.wait(WAIT_S) == 1
            assert second.stderr is not None
            assert str(folder) in second.stderr.read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert (folder / ".kafka_cleanshutdown").exists()


@pytest.mark.long
def test_the_loop_is_the_one_asked_for() -> None:
    code = "from quorumlog.runtime.real import run\nimport asyncio\n"
    code += "async def main(runtime): print(type(asyncio.get_running_loop()).__module__)\nrun(main)"
    for wanted, module in (
        ("asyncio", "asyncio.unix_events"),
        ("uvloop", "uvloop"),
        ("", "uvloop"),
    ):
        done = run_as("macos", code, QUORUMLOG_LOOP=wanted)
        assert done.stdout.strip() == module, done.stderr


@pytest.mark.long
def test_a_missing_loop_is_rejected_with_a_message() -> None:
    for wanted, said in (("uvloop", "uvloop is not installed"), ("trio", "use uvloop or asyncio")):
        done = run_as("windows", "quorumlog", "topics", "list", QUORUMLOG_LOOP=wanted)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr
