"""A data folder of Apache Kafka, opened by quorumlog's storage: every record, index and lookup.

Kafka runs once: a public client writes to it, it stops in order (`clean`), starts, gets more
records and is killed (`killed`). Each test reads a copy of its folder.
"""

import asyncio
import copy
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.kit.node_process import NodeProcess

import quorumlog
from quorumlog.records import Codec, Record, decode_all, encode_batch, iterate_batches
from quorumlog.records.arrow import decode_arrow
from quorumlog.runtime.files import RealFiles
from quorumlog.storage import AppendOrigin
from quorumlog.storage.checkpoints import encode_id
from quorumlog.storage.index import SegmentIndex
from quorumlog.storage.inspect.directory_check import KnownMetadata, check
from quorumlog.storage.inspect.dump import dump_file
from quorumlog.storage.inspect.findings import Severity
from quorumlog.storage.producer_snapshot import decode_snapshot
from quorumlog.storage.segment import build_index, read_index
from quorumlog.storage.shell import DataDirectory

from .kafka_process import Kafka
from .kafka_topics import T0, Written, consuming, log_names, read_all, write_everything, write_more
from .our_reading import content, open_log, opened

pytestmark = pytest.mark.long  # each needs a run of Kafka

INTERVAL_BYTES = 4096
METADATA_LOG = "__cluster_metadata-0"  # Kafka reads it again at every start
REGISTRATION = "CONTROLLER_REGISTRATION"  # Kafka's controller logs an error if its own is late
LIVES = ("clean", "killed")
SMALL_FILES = ("meta.properties", "partition.metadata", ".kafka_cleanshutdown")


@dataclass(frozen=True)
class Life:
    """The data folder of a stopped Kafka, and the lookups before."""

    data: Path
    written: Written
    kafka: Kafka  # which is down
    is_one_life: bool


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Life]:
    """Return Kafka's folder after an orderly stop, and after a kill."""
    folder = tmp_path_factory.mktemp("kafka")
    with Kafka(folder / "node") as kafka:
        written = asyncio.run(write_everything(kafka.address, kafka.data))
        kafka.stop()
        shutil.copytree(kafka.data, folder / "clean")
        clean = Life(folder / "clean", copy.deepcopy(written), kafka, True)
        kafka.start()
        asyncio.run(write_more(kafka.address, written))
        kafka.kill()
        shutil.copytree(kafka.data, folder / "killed")
    return {"clean": clean, "killed": Life(folder / "killed", written, kafka, False)}


@pytest.fixture(params=LIVES)
def life(request: pytest.FixtureRequest, lives: dict[str, Life], tmp_path: Path) -> Iterator[Life]:
    """Yield a copy of one of the folders, which the test may change."""
    found = lives[request.param]
    shutil.copytree(found.data, tmp_path / "data")
    yield replace(found, data=tmp_path / "data")
    shutil.rmtree(tmp_path / "data")


def test_every_record_of_kafka_is_read(life: Life) -> None:
    async def read(directory: DataDirectory) -> dict[str, tuple[int, int, bytes]]:
        found = {}
        for name in log_names():
            log = await open_log(directory, name)
            found[name] = (
                log.log_start_offset,
                log.log_end_offset,
                await content(directory, log),
            )
        return found

    written = life.written
    found = opened(life.data, read)
    assert {name: (start, end) for name, (start, end, _) in found.items()} == {
        name: (written.starts[name], written.ends[name]) for name in log_names()
    }
    for name, (start, _, batches) in found.items():
        kept = written.kept(name)
        assert decode_all(batches, start_offset=start) == kept, name
        table = decode_arrow(
            batches, start_offset=start, columns=("offset", "key", "value", "timestamp")
        )
        assert table.column("offset").to_pylist() == [record.offset for record in kept], name
        assert table.column("key").to_pylist() == [record.key for record in kept], name
        assert table.column("value").to_pylist() == [record.value for record in kept], name
        times = table.column("timestamp").cast(pa.int64()).to_pylist()
        assert times == [record.timestamp_ms * 1000 for record in kept], name


def test_kafka_wrote_the_features_under_test(lives: dict[str, Life]) -> None:
    """Otherwise the other tests would pass on a folder without codecs, markers, gaps and closed
    segments."""
    data = lives["clean"].data

    def headers(name: str) -> list[tuple[int, bool, bool, bool, int]]:
        found = []
        for path in sorted((data / name).glob("*.log")):
            for _, header in iterate_batches(path.read_bytes()):
                found.append(
                    (
                        header.codec.value,
                        header.is_control,
                        header.is_transactional,
                        header.log_append_time,
                        header.producer_id,
                    )
                )
        return found

    for number, codec in enumerate(("gzip", "snappy", "lz4", "zstd"), start=1):
        assert number in {codec for codec, *_ in headers(f"codec.{codec}-0")}, codec
    assert {codec for codec, *_ in headers("repacked-0")} == {4}
    assert {stamped for _, _, _, stamped, _ in headers("stamped-0")} == {True}
    assert all(producer >= 0 for *_, producer in headers("idempotent-0"))
    assert [control for _, control, *_ in headers("transactions-0")].count(True) == 4
    assert len(list((data / "segments-0").glob("*.log"))) > 2
    assert len(lives["clean"].written.records["compacted-0"]) < 320
    assert (data / ".kafka_cleanshutdown").exists()
    assert not (lives["killed"].data / ".kafka_cleanshutdown").exists()


def test_the_index_files_of_closed_segments_are_used_and_equal_ours(life: Life) -> None:
    """Except in segments that Kafka wrote before and after a restart: there it begins to count
    bytes again."""
    files = RealFiles()
    closed = sorted((life.data / "segments-0").glob("*.log"))[:-1]
    assert len(closed) >= 2
    for path in closed:
        base, size = int(path.stem), path.stat().st_size
        theirs = read_index(
            files, str(path), base_offset=base, size=size, interval_bytes=INTERVAL_BYTES
        )
        assert theirs is not None, path
        file = files.open_readonly(str(path))
        ours = build_index(file, base_offset=base, end=size, interval_bytes=INTERVAL_BYTES)
        file.close()
        ours.seal()
        if life.is_one_life:
            assert entries(theirs) == entries(ours), path
        places = {
            (header.last_offset, position)
            for position, header in iterate_batches(path.read_bytes())
        }
        assert places.issuperset(theirs.entries()), path


def entries(index: SegmentIndex) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    return index.entries(), index.time_entries()


def test_lookups_by_time_agree_with_kafkas(life: Life) -> None:
    async def ask(directory: DataDirectory) -> dict[str, dict[int, tuple[int, int] | None]]:
        answers: dict[str, dict[int, tuple[int, int] | None]] = {}
        for name in log_names():
            log = await open_log(directory, name)
            answers[name] = {}
            for timestamp in life.written.times[name]:
                found = await directory.reader.offset_for_time(log, timestamp)
                answers[name][timestamp] = (
                    None if found is None else (found.offset, found.timestamp)
                )
        return answers

    written = life.written
    expected = dict(written.times)
    # Kafka takes the modification time of an emptied segment's file for a record's, and finds
    # nothing.
    expected["compacted-0"] = {
        timestamp: next(
            (
                (record.offset, record.timestamp_ms)
                for record in written.kept("compacted-0")
                if record.timestamp_ms >= timestamp
            ),
            None,
        )
        for timestamp in written.times["compacted-0"]
    }
    assert opened(life.data, ask) == expected


def test_aborted_transactions_are_those_of_kafka(life: Life) -> None:
    """By .txnindex and .snapshot after a clean stop, by the log itself after a kill."""

    async def ask(directory: DataDirectory) -> tuple[list[Record], int]:
        log = await open_log(directory, "transactions-0")
        log.note_high_watermark(log.log_end_offset)
        aborted = log.aborted_transactions(0, log.log_end_offset)
        kept = []
        for position, header in iterate_batches(batches := await content(directory, log)):
            is_aborted = any(
                item.producer_id == header.producer_id
                and item.first_offset <= header.base_offset <= item.last_offset
                for item in aborted
            )
            if not is_aborted:
                kept += decode_all(batches[position : position + header.size])
        return kept, log.last_stable_offset

    kept, stable_end = opened(life.data, ask)
    assert kept == life.written.committed["transactions-0"]
    assert stable_end == life.written.stable_ends["transactions-0"]
    assert 0 < len(kept) < len(life.written.records["transactions-0"])


def test_producer_states_are_those_of_kafka(lives: dict[str, Life]) -> None:
    snapshots = sorted((lives["clean"].data / "idempotent-0").glob("*.snapshot"))
    found = decode_snapshot(snapshots[-1].read_bytes(), str(snapshots[-1]), end_offset=350)
    [(_, entry)] = found.entries
    assert entry.batches[-1].last_offset == 349
    assert entry.batches[-1].last_sequence == 349


def test_a_check_finds_no_problem_in_any_log(life: Life) -> None:
    """The metadata log is excluded: Kafka's records differ from ours, and it has no recovery
    point."""
    known = KnownMetadata(compacted=frozenset({"compacted", "__transaction_state"}))
    report = check(RealFiles(), str(life.data), known=known)
    checked = {log.name: log.is_ok for log in report.logs if log.name != METADATA_LOG}
    assert set(log_names()) <= set(checked)
    problems = [
        finding.as_dict()
        for log in report.logs
        for finding in log.findings
        if finding.severity is Severity.PROBLEM and log.name != METADATA_LOG
    ]
    assert problems == []


def test_every_kind_of_file_is_dumped(life: Life) -> None:
    kinds = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    seen = set()
    for path in sorted(life.data.rglob("*")):
        name = path.name
        is_small = name in SMALL_FILES or name.endswith("-checkpoint")
        if path.is_dir() or not (path.suffix in kinds or is_small):
            continue
        rows = list(dump_file(RealFiles(), str(path), records=path.suffix == ".log"))
        assert not [row for row in rows if "error" in row], f"{path}: {rows[-1]}"
        seen.add(path.suffix or name)
    assert seen >= kinds | {"leader-epoch-checkpoint", "recovery-point-offset-checkpoint"}


def test_kafka_continues_in_its_folder_after_our_appends(
    lives: dict[str, Life], tmp_path: Path
) -> None:
    """In both directions: each opens it after a clean stop, and repairs nothing."""
    written = copy.deepcopy(lives["clean"].written)
    more = [Record(0, T0 + 10**7 + i, b"ours", b"%d" % i, (("by", None),)) for i in range(500)]

    async def append(directory: DataDirectory) -> None:
        assert directory.was_clean
        for name in ("plain-0", "segments-0", "codec.zstd-0", "empty-0"):
            log = await open_log(directory, name)
            for start in range(0, len(more), 100):
                batch = encode_batch(more[start : start + 100], codec=Codec.LZ4)
                done = await directory.append(
                    log,
                    batch,
                    leader_epoch=max(0, log.epochs.latest),
                    origin=AppendOrigin.CLIENT,
                    flush=False,
                )
                written.records[name] += [
                    replace(record, offset=done.base_offset + index)
                    for index, record in enumerate(more[start : start + 100])
                ]

    kafka = lives["clean"].kafka
    shutil.rmtree(kafka.data)
    shutil.copytree(lives["clean"].data, kafka.data)
    opened(kafka.data, append)
    assert (kafka.data / ".kafka_cleanshutdown").exists()
    said_before = len(kafka.said())
    with kafka:
        seen = asyncio.run(everything(kafka.address))
        kafka.stop()
    for name in log_names():
        if not name.startswith("compacted"):
            assert seen[name] == written.kept(name), name
    said = [
        line
        for line in kafka.said()[said_before:].splitlines()
        if METADATA_LOG not in line and REGISTRATION not in line
    ]
    assert any("plain-0" in line for line in said), "Kafka's log file mentions its logs"
    for complaint in ("ERROR", "orrupt", "Recovering", "Rebuilding", "not found"):
        assert [line for line in said if complaint in line] == []


def test_a_node_serves_a_partition_of_kafka(lives: dict[str, Life], tmp_path: Path) -> None:
    """The steps of docs/kafka_folders.md: a topic with the name, its id in the folder, then the
    files."""
    topic, kept = "plain", lives["clean"].written.kept("plain-2")
    with NodeProcess(tmp_path / "node") as node:
        with quorumlog.connect(node.address) as log:
            log.admin.create_topic(topic)
            topic_id = log.admin.describe_topic(topic).topic_id
        node.stop()
        folder = tmp_path / "node" / "data" / f"{topic}-0"
        shutil.copytree(lives["clean"].data / "plain-2", folder)
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {encode_id(topic_id)}\n")
        node.start()
        with quorumlog.connect(node.address) as log:
            assert values(log, topic) == [record.value for record in kept]
            with log.producer() as producer:
                assert producer.send(topic, b"ours").result().offset == len(kept)
            assert values(log, topic) == [*(record.value for record in kept), b"ours"]
        node.stop()


def values(log: quorumlog.Log, topic: str) -> list[bytes | None]:
    with log.consumer(topic, until_end=True) as consumer:
        return [record.value for record in consumer]


async def everything(address: str) -> dict[str, list[Record]]:
    """Return all records that Kafka's consumer reads, of every log."""
    async with consuming(address, log_names()) as consumer:
        found = await consumer.end_offsets(consumer.assignment())
        ends = {f"{where.topic}-{where.partition}": end for where, end in found.items()}
        return await read_all(consumer, ends)
