"""A quarter of a minute of the soak test of a data directory, and the faults that it detects; `make
soak` runs it for ten minutes."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quorumlog.ids import ClusterId, NodeId
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime, real
from quorumlog.storage import AppendOrigin, Log, LogConfig
from quorumlog.storage.shell import DataDirectory

from . import storage_soak
from .storage_soak import HAPPEN, ILL, LOGS_A_KIND, TOPICS, Storage


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_quarter_of_a_minute_loses_no_record_and_does_not_grow(
    tmp_path: Path,
) -> None:
    report = real.run(lambda runtime: storage_soak.soak(runtime, str(tmp_path), 15.0, more_s=300.0))
    print(json.dumps(report, indent=2))
    lasting = [
        each
        for each in report["problems"]
        if not each.startswith("the process") and not each.endswith("no segment went")
    ]
    assert lasting == [], "only the long run detects slower growth"


Plant = Callable[[Storage, Log, Path], None]


def judged(path: Path, plant: Plant) -> list[str]:
    """Return the problems of a directory with one record in each log and a planted fault."""

    async def main(runtime: Runtime) -> list[str]:
        folder = str(path)
        await DataDirectory.format(runtime, folder, cluster_id=ClusterId("soak"), node_id=NodeId(1))
        rows = [{"at": at, "rss_kib": 1, "fds": 1, "threads": 1} for at in range(9)]
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, folder)
            did = Counter(dict.fromkeys(HAPPEN, 1))
            storage = Storage(directory, ends_s=0, did=did, samples=rows)
            logs = []
            for kind in storage_soak.KINDS:
                for number in range(LOGS_A_KIND):
                    log = await directory.open_log(
                        f"{kind}-{number}", LogConfig(), topic_id=TOPICS[kind]
                    )
                    logs.append(log)
                    await put(directory, log)
            kept = next(log for log in logs if log.name == "kept-0")
            storage.newest[kept.name] = {b"0": 0}
            plant(storage, kept, path)
            await storage_soak.judge_keys(storage, kept)
            storage_soak.judge_aborts(storage, kept)
            await directory.close()
            scope.cancel()
        if plant is flipped:
            flip(path / "kept-0")
        found: list[str] = storage_soak.report(storage, folder)["problems"]
        return [each for each in found if not each.endswith("no segment went")]

    return real.run(main)


async def put(directory: DataDirectory, log: Log) -> None:
    batch = encode_batch([Record(0, 1, b"0", b"value", ())])
    await directory.append(log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True)
    log.note_high_watermark(1)


def nothing(storage: Storage, log: Log, path: Path) -> None:
    """Plant no fault."""


def key(storage: Storage, log: Log, path: Path) -> None:
    storage.newest[log.name][b"1"] = 7


def abort(storage: Storage, log: Log, path: Path) -> None:
    storage.aborted[log.name] = [(3, 5)]


def ill(storage: Storage, log: Log, path: Path) -> None:
    storage.did[ILL[0]] = 2


def idle(storage: Storage, log: Log, path: Path) -> None:
    del storage.did["storage.cleaned"]


def growth(storage: Storage, log: Log, path: Path) -> None:
    rows: list[dict[str, Any]] = storage.samples
    rows[:] = [row | {"fds": int(row["at"]) * 9} for row in rows]


def flipped(storage: Storage, log: Log, path: Path) -> None:
    """Mark that a flipped bit is planted after the close."""


def flip(folder: Path) -> None:
    segment = next(folder.glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[-2] ^= 1
    segment.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (nothing, None),
        (key, "1 keys have lost"),
        (abort, "1 aborted transactions are not known"),
        (ill, "2 times storage.set_aside"),
        (idle, "no storage.cleaned"),
        (growth, "descriptors"),
        (flipped, "the check"),
    ],
)
def test_exactly_the_planted_fault_is_found(plant: Plant, said: str | None, tmp_path: Path) -> None:
    problems = judged(tmp_path, plant)
    if said is None:
        assert problems == []
    else:
        assert len(problems) == 1, problems
        assert said in problems[0]


@pytest.mark.slow
def test_a_log_that_never_gets_smaller_is_found(tmp_path: Path) -> None:
    report = real.run(lambda runtime: storage_soak.soak(runtime, str(tmp_path), 0.2))
    assert any(each.endswith("no segment went") for each in report["problems"])
