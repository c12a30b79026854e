"""Kafka's dump tool reads a node's data directory: each file, each record."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records import Codec, encode_batch
from quorumlog.records.control import MarkerType, encode_marker
from quorumlog.runtime import Runtime, real
from quorumlog.runtime.files import RealFiles
from quorumlog.storage import AppendOrigin, LogConfig
from quorumlog.storage.inspect.dump import dump_file
from quorumlog.storage.shell import Appended, DataDirectory

from .kafka_process import dump
from .kafka_topics import T0, rows, unusual_records

pytestmark = pytest.mark.slow

TOPIC_ID = TopicId(bytes(range(16)))
CONFIG = LogConfig(segment_bytes=60_000, index_interval_bytes=1000)
SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
COMPLAINTS = re.compile(r"ismatch|rror|xception|orrupt|out of order|nvalid|Could not")
RECORD = re.compile(r"\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+)")
BATCH = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*?producerId: (-?\d+) "
    r"producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) "
    r"isTransactional: (\w+) isControl: (\w+) .*?compresscodec: (\w+) .*?isvalid: (\w+)"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two logs: all codecs and edge cases over several segments and epochs; producers and
    transactions."""
    data = tmp_path_factory.mktemp("ours") / "data"

    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(
            runtime, str(data), cluster_id=ClusterId("c" * 22), node_id=NodeId(1)
        )
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, str(data))
            try:
                await _write_plainly(directory)
                await _write_transactions(directory)
                await directory.close()
            finally:
                scope.cancel()

    real.run(main)
    return data


async def _write_plainly(directory: DataDirectory) -> None:
    log = await directory.open_log("plain-0", CONFIG, topic_id=TOPIC_ID)
    for epoch in (0, 3, 7):
        for codec in Codec:
            for items in (unusual_records(), rows(300)):
                batch = encode_batch(items, codec=codec)
                await directory.append(
                    log, batch, leader_epoch=epoch, origin=AppendOrigin.CLIENT, flush=False
                )
    stamped = await directory.open_log(
        "stamped-0", replace(CONFIG, log_append_time=True), topic_id=TopicId(bytes(16))
    )
    for _ in range(5):
        await directory.append(
            stamped, encode_batch(rows(50)), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
        )


async def _write_transactions(directory: DataDirectory) -> None:
    log = await directory.open_log("transactions-0", CONFIG, topic_id=TopicId(bytes(range(16, 32))))

    async def append(batch: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> Appended:
        return await directory.append(log, batch, leader_epoch=0, origin=origin, flush=True)

    for sequence in range(0, 700, 100):  # more batches than are kept of a producer
        items = rows(100)
        await append(encode_batch(items, producer_id=7, producer_epoch=2, base_sequence=sequence))
    for round_, kind in enumerate((MarkerType.COMMIT, MarkerType.ABORT, MarkerType.ABORT)):
        await append(
            encode_batch(
                rows(10),
                producer_id=8,
                producer_epoch=1,
                base_sequence=10 * round_,
                is_transactional=True,
            )
        )
        marker = encode_marker(
            producer_id=8, producer_epoch=1, kind=kind, coordinator_epoch=5, timestamp_ms=T0
        )
        await append(marker, AppendOrigin.INTERNAL)
    await append(  # an open transaction
        encode_batch(
            rows(5), producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
        )
    )


def files_of(folder: Path, log: str, suffix: str) -> list[Path]:
    found = sorted((folder / log).glob(f"*{suffix}"))
    assert found, f"no {suffix} in {log}"
    return found


@dataclass(frozen=True)
class Said:
    """The output of Kafka's tool for each file, from one run: a run takes a second per hundred
    files."""

    deep: dict[Path, str]  # every record; every index entry compared with the log
    sane: dict[Path, str]  # of indexes: the result of its sanity check

    def of(self, paths: list[Path]) -> str:
        text = "".join(self.deep[path] for path in paths)
        assert COMPLAINTS.findall(text) == []
        return text


@pytest.fixture(scope="module")
def said(folder: Path) -> Said:
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)
    indexes = [path for path in files if path.suffix.endswith("index") and "txn" not in path.suffix]
    deep = by_file(dump(*files))
    assert set(deep) == set(files)
    return Said(deep, by_file(dump(*indexes, deep=False, sanity=True)))


def by_file(output: str) -> dict[Path, str]:
    _, *parts = re.split(r"^Dumping (\S+)$", output, flags=re.MULTILINE)
    return {Path(path): text for path, text in zip(parts[::2], parts[1::2], strict=True)}


def rows_of(paths: list[Path], *, records: bool = False) -> list[dict[str, object]]:
    """Return the rows of quorumlog's own dump of the same files."""
    return [row for path in paths for row in dump_file(RealFiles(), str(path), records=records)]


def size(content: object) -> int:
    return -1 if content is None else len(str(content).encode())


@pytest.mark.long
@pytest.mark.parametrize("log", ["plain-0", "stamped-0", "transactions-0"])
def test_kafkas_tool_reads_every_batch_and_record(folder: Path, said: Said, log: str) -> None:
    paths = files_of(folder, log, ".log")
    assert len(paths) > 1 or log != "plain-0"
    text = said.of(paths)
    ours = rows_of(paths, records=True)
    batches = [row for row in ours if "base_offset" in row]
    assert [
        (int(base), int(last), int(count), int(producer), int(epoch), int(leader),
         transactional == "true", control == "true", codec, valid)
        for base, last, count, producer, epoch, leader, transactional, control, codec, valid
        in BATCH.findall(text)
    ] == [
        (row["base_offset"], row["last_offset"], row["count"], row["producer_id"],
         row["producer_epoch"], row["leader_epoch"], row["transactional"], row["control"],
         row["codec"], "true")
        for row in batches
    ]  # fmt: skip
    records = [row for row in ours if "offset" in row]
    seen = [tuple(map(int, fields)) for fields in RECORD.findall(text)]
    assert [(offset, time) for offset, time, *_ in seen] == [
        (row["offset"], row["timestamp"]) for row in records
    ]
    if log != "transactions-0":  # of a marker's bytes our dump prints another text
        assert seen == [
            (row["offset"], row["timestamp"], size(row["key"]), size(row["value"]))
            for row in records
        ]


@pytest.mark.parametrize("log", ["plain-0", "stamped-0", "transactions-0"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_kafkas_tool_finds_no_error_in_the_indexes(
    folder: Path, said: Said, log: str, suffix: str
) -> None:
    paths = files_of(folder, log, suffix)
    entries = [
        tuple(map(int, pair))
        for pair in re.findall(r"^\w+: (\d+) \w+: (\d+)$", said.of(paths), re.MULTILINE)
    ]
    assert [entry for entry in entries if entry != (0, 0)] == [
        tuple(row.values()) for row in rows_of(paths)
    ]
    assert len(entries) >= len(paths), "the indexes have entries"
    for path in paths:
        assert "passed sanity check" in said.sane[path]


def test_kafkas_tool_reads_the_snapshots_of_producers(folder: Path, said: Said) -> None:
    paths = files_of(folder, "transactions-0", ".snapshot")
    text = said.of(paths[-1:])
    states = {
        int(producer): (int(epoch), start, int(last))
        for producer, epoch, start, last in re.findall(
            r"producerId: (\d+) producerEpoch: (\d+) .*?currentTxnFirstOffset: (\S+) .*?"
            r"lastSequence: (-?\d+)",
            text,
        )
    }
    assert states == {
        7: (2, "OptionalLong.empty", 699),
        8: (1, "OptionalLong.empty", 29),
        9: (0, "OptionalLong[733]", 4),
    }, text


def test_kafkas_tool_reads_the_index_of_aborted_transactions(folder: Path, said: Said) -> None:
    paths = files_of(folder, "transactions-0", ".txnindex")
    text = said.of(paths)
    assert re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+)", text) == [
        ("8", "711", "721"),
        ("8", "722", "732"),
    ], text


def test_kafkas_tool_reports_damage(folder: Path, tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    damaged = tmp_path / "00000000000000000000.log"
    content = bytearray(files_of(folder, "stamped-0", ".log")[0].read_bytes())
    content[70] ^= 1
    damaged.write_bytes(content)
    assert "isvalid: false" in dump(damaged, deep=False)
