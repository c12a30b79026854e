"""A crash or an error at any file operation of a repair loses no record.

A record is kept if a start of the node keeps it or if the copy of the cut part has it. A repair
that starts again must complete.
"""

import errno
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from quorumlog.errors import CorruptionError
from quorumlog.records.batch import HEADER_SIZE
from quorumlog.records.codec import decode_all
from quorumlog.runtime import Files
from quorumlog.simulation import SimWorld
from quorumlog.simulation.crash_states import Recording, content_digest, crash_states
from quorumlog.simulation.disk import Disk
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.files import Device
from quorumlog.storage import FlushPolicy, LogConfig
from quorumlog.storage.checkpoints import decode_offsets
from quorumlog.storage.inspect.directory_check import check
from quorumlog.storage.inspect.findings import Severity
from quorumlog.storage.inspect.repair import repair
from quorumlog.storage.inspect.scan import ValidBatch, scan
from quorumlog.storage.recovery import Recovery, recover

from .conftest import DATA, Contents, Tree

FIRST = f"{DATA}/t-0/00000000000000000000.log"
MIDDLE = f"{DATA}/t-0/00000000000000000007.log"
LAST = f"{DATA}/t-0/00000000000000000012.log"
POINTS = f"{DATA}/recovery-point-offset-checkpoint"


def damaged(content: bytes) -> bytes:
    """Flip a byte in the body of the first batch."""
    at = HEADER_SIZE + 1
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


def cases(contents: Contents) -> dict[str, Contents]:
    """Return the directories to repair."""
    return {
        "damage": contents | {MIDDLE: damaged(contents[MIDDLE])},
        "damage in the last segment": contents | {LAST: damaged(contents[LAST])},
        "a torn tail": contents | {LAST: contents[LAST][:-5], POINTS: b"0\n2\nc 0 31\nt 0 12\n"},
        "a short log": contents | {POINTS: b"0\n2\nc 0 31\nt 0 20\n"},
        "a swap": {path: content for path, content in contents.items() if path != FIRST}
        | {
            f"{DATA}/t-0/00000000000000000000-7.log.swap": contents[FIRST],
            f"{FIRST}.deleted": contents[FIRST],
        },
        "damage and a swap": {path: content for path, content in contents.items() if path != MIDDLE}
        | {f"{DATA}/t-0/00000000000000000007-12.log.swap": damaged(contents[MIDDLE])},
        "small files": contents
        | {
            f"{DATA}/t-0/leader-epoch-checkpoint": b"0\n1\n3 0\n",
            f"{DATA}/t-0/00000000000000000007.index": b"12345678",
            f"{DATA}/replication-offset-checkpoint": b"0\n2\nc 0 99\nt 0 99\n",
            f"{DATA}/t-0/00000000000000000012.snapshot": b"torn",
        },
    }


CASES = tuple(cases({MIDDLE: bytes(99), LAST: bytes(99), FIRST: b""}))


@contextmanager
def machine(disk: Disk | None = None) -> Iterator[tuple[Device, Files]]:
    """A simulated machine with this disk."""
    with SimWorld(0) as world:
        node = world.node("node")
        if disk is not None:
            node.device.disk = disk
        node.start_process()
        yield node.device, node.runtime().files


def disk_with(contents: Contents) -> Disk:
    """Return a disk on which these contents are durable."""
    with machine() as (device, files):
        files.make_folder(DATA)
        Tree(files, contents)
        device.disk.settle(lambda: True)
        return device.disk


def good_values(files: Files, folder: str) -> Counter[bytes | None]:
    """Count the values of all valid batches in the .log files of a folder, under any name."""
    found: Counter[bytes | None] = Counter()
    if not files.exists(folder):
        return found
    for name in files.names(folder):
        if ".log" not in name or name.endswith(".deleted"):
            continue
        file = files.open_readonly(f"{folder}/{name}")
        for piece in scan(file, 0, file.size(), next_offset=0):
            if isinstance(piece, ValidBatch):
                batch = piece.content[piece.at : piece.at + piece.header.size]
                found.update(record.value for record in decode_all(batch))
        file.close()
    return found


def start(files: Files) -> None:
    """Open t-0 as a start of the node does; damage stays in place."""
    is_clean = files.exists(f"{DATA}/.kafka_cleanshutdown")

    def offset(name: str) -> int:
        path = f"{DATA}/{name}"
        if not files.exists(path):
            return 0
        return decode_offsets(Tree(files, {}).read(path)).get("t-0", 0)

    with suppress(CorruptionError):
        recover(
            files,
            Recovery(
                folder=f"{DATA}/t-0",
                config=LogConfig(flush_policy=FlushPolicy.FSYNC, index_interval_bytes=0),
                is_clean=is_clean,
                recovery_point=offset("recovery-point-offset-checkpoint"),
                log_start_offset=offset("log-start-offset-checkpoint"),
                torn_bytes_max=2_097_176,
                wall_ms=0,
            ),
        )


def problems(files: Files) -> Counter[str]:
    found = check(files, DATA).all_findings()
    return Counter(one.kind for one in found if one.severity is Severity.PROBLEM)


def check_after_crash(
    disk: Disk, owed: Counter[bytes | None], before: Counter[str], why: str
) -> None:
    """Check that a crash caused no new problem, lost no owed value, and left a repairable
    directory."""
    with machine(disk.clone()) as (_, files):
        worse = problems(files) - before
        assert not worse, f"{why}: check finds {worse}"
        report = repair(files, DATA, cut_to="/again")
        assert report.is_ok, f"{why}: {report.as_dict()}"
        assert not repair(files, DATA, cut_to="/never").done, why
    with machine(disk) as (_, files):
        start(files)
        there = good_values(files, f"{DATA}/t-0")
        aside = good_values(files, "/kept/aside/t-0")
        for value, count in owed.items():
            assert there[value] + aside[value] >= count, f"{why}: {value!r} is lost"


@pytest.mark.long
@pytest.mark.parametrize("is_closed", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("case", CASES)
def test_a_crash_at_any_operation_of_a_repair_loses_nothing(
    closed_contents: Contents, killed_contents: Contents, case: str, is_closed: bool
) -> None:
    disk = disk_with(cases(closed_contents if is_closed else killed_contents)[case])
    with machine(disk.clone()) as (_, files):
        before = problems(files)
        start(files)
        owed = good_values(files, f"{DATA}/t-0")
    with machine(disk) as (device, files):
        recording = Recording.attach(device)
        assert repair(files, DATA, cut_to="/kept/aside").is_ok
        recording.stop()
    seen = set()
    for operation in recording.operations:
        drawn = SimEntropy(f"{operation.number}")
        for wreck in crash_states(operation.disk, drawn, draws=1, choices_max=4):
            digest = content_digest(wreck.disk)
            if digest not in seen:
                seen.add(digest)
                check_after_crash(wreck.disk, owed, before, f"{wreck.name} after {operation}")


@pytest.mark.long
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("case", CASES)
def test_an_error_at_any_operation_of_a_repair_loses_nothing(
    killed_contents: Contents, case: str, number: int
) -> None:
    disk = disk_with(cases(killed_contents)[case])
    with machine(disk.clone()) as (device, files):
        before = problems(files)
        recording = Recording.attach(device)
        repair(files, DATA, cut_to="/kept/aside")
        count = len(recording.operations)
    with machine(disk.clone()) as (_, files):
        start(files)
        owed = good_values(files, f"{DATA}/t-0")
    for at in range(1, count):
        hindered = disk.clone()
        with machine(hindered) as (device, files):
            device.faults_at = {device.operations + at: number}
            with suppress(OSError):
                report = repair(files, DATA, cut_to="/kept/aside")
                assert report.is_ok or report.failed is not None
        check_after_crash(hindered, owed, before, f"error at operation {at}")


def test_failed_copy_on_a_full_disk_changes_nothing(killed_contents: Contents) -> None:
    disk = disk_with(cases(killed_contents)["damage"])
    with machine(disk) as (device, files):
        tree = Tree(files, {})
        before = tree.all_contents()
        device.fail("write", errno.ENOSPC, path_part="/kept")
        report = repair(files, DATA, cut_to="/kept/aside")
        assert report.failed is not None
        assert {path: tree.read(path) for path in before} == before
        assert "No space left" in report.failed[1]
        assert not files.exists("/kept/aside/t-0")
