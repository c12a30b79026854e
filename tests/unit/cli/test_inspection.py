"""`check`, `diff` and `log dump` on real folders: output and exit codes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from quorumlog.cli.check import known_topics
from quorumlog.cli.main import app
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime, real
from quorumlog.runtime.files import RealFiles
from quorumlog.storage import AppendOrigin, LogConfig
from quorumlog.storage.shell import DataDirectory

LOG = "flights-0/00000000000000000000.log"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def invoke_json(*arguments: str) -> Any:
    return json.loads(invoke(*arguments, "-o", "json").stdout)


async def fill(runtime: Runtime, path: str) -> None:
    """Format a directory and append ten records."""
    await DataDirectory.format(runtime, path, cluster_id=ClusterId("c" * 22), node_id=NodeId(1))
    async with runtime.tasks.scope("life") as scope:
        directory = await DataDirectory.open(runtime, scope, path)
        log = await directory.open_log("flights-0", LogConfig(), topic_id=TopicId(bytes(16)))
        for number in range(5):
            records = [Record(0, 1_000, b"k", b"%d" % at) for at in (number, number)]
            await directory.append(
                log, encode_batch(records), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
            )
        await directory.close()
        scope.cancel()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory after a clean stop."""
    path = tmp_path / "data"
    real.run(lambda runtime: fill(runtime, str(path)))
    return path


def damage(path: Path) -> None:
    """Flip the last byte of a file."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    path.write_bytes(content)


def test_an_intact_directory_is_ok(data: Path) -> None:
    result = invoke("check", str(data))
    assert result.exit_code == 0
    assert "ok, 0 notes. The last stop was clean." in result.stdout
    report = invoke_json("check", str(data))
    assert (report["ok"], report["clean"], report["findings"]) == (True, True, [])
    assert report["logs"][0]["records"] == 10


def test_damage_is_reported_with_file_position_offset_and_remedy(data: Path) -> None:
    damage(data / LOG)
    result = invoke("check", str(data))
    assert result.exit_code == 1
    assert "problem: batch-damaged" in result.stdout
    assert "offset 8: its CRC-32C is" in result.stdout
    assert "--cut-damage" in result.stdout
    (finding, *_) = invoke_json("check", str(data))["logs"][0]["findings"]
    assert finding["kind"] == "batch-damaged"
    assert finding["offset"] == 8
    assert finding["file"].endswith(LOG)


def test_repair_reports_its_steps_and_truncates_damage_on_request(
    data: Path, tmp_path: Path
) -> None:
    (data / "flights-0/leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    result = invoke("check", str(data), "--repair")
    assert result.exit_code == 0
    assert "done: flights-0: write leader-epoch-checkpoint from the batches" in result.stdout
    assert "Nothing to repair." in invoke("check", str(data), "--repair").stdout
    damage(data / LOG)
    refused = invoke("check", str(data), "--repair")
    assert refused.exit_code == 1
    assert "refused: flights-0 is damaged and stays unchanged" in refused.stdout
    aside = tmp_path / "aside"
    cut = invoke_json("check", str(data), "--repair", "--cut-damage", str(aside))
    assert cut["ok"]
    assert any("truncate offsets [8, 10)" in done for done in cut["done"])
    assert len(list((aside / "flights-0").iterdir())) == 1
    assert invoke_json("check", str(data))["logs"][0]["log_end_offset"] == 8


@pytest.mark.parametrize(
    ("arguments", "exit_code", "sentence"),
    [
        (["check", "{data}", "--cut-damage", "x"], 2, "--cut-damage requires --repair"),
        (["check", "{data}/none"], 1, "is not a folder"),
        (["check", "{data}/flights-0", "--repair"], 1, "is not a data directory"),
        (["check", "{data}", "--repair", "--cut-damage", "{data}/x"], 1, "is inside"),
        (["check", "{data}", "--repair", "--cut-damage", "{data}/../data/x"], 1, "is inside"),
        (["diff", "{data}", "{data}/flights-0"], 1, "differ in kind"),
        (["diff", "{data}", "{data}/none"], 1, "is not a folder"),
    ],
)
def test_invalid_requests_are_refused_in_a_sentence(
    data: Path, arguments: list[str], exit_code: int, sentence: str
) -> None:
    result = invoke(*(argument.format(data=data) for argument in arguments))
    assert result.exit_code == exit_code
    assert sentence in " ".join(result.stderr.split())


def test_copies_are_compared_record_by_record(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    assert "The copies are equal." in invoke("diff", str(data), str(copy)).stdout
    damage(copy / LOG)
    result = invoke("diff", str(data), str(copy))
    assert result.exit_code == 1
    assert "flights-0 offsets 8 to 9: 2 records only in A" in result.stdout
    found = invoke_json("diff", str(data / "flights-0"), str(copy / "flights-0"))
    assert not found["same"]
    assert found["logs"][0]["equal_records"] == 8


def test_every_file_of_a_directory_can_be_dumped(data: Path) -> None:
    dumped = {path.name for path in data.rglob("*") if path.is_file() and path.name != ".lock"}
    assert {".kafka_cleanshutdown", "meta.properties"} <= dumped
    for path in data.rglob("*"):
        if path.is_file() and path.name != ".lock":
            assert invoke("log", "dump", str(path)).exit_code == 0, path
    aside = data / "flights-0" / "00000000000000000000.log.deleted"
    shutil.copy(data / LOG, aside)
    rows = invoke("log", "dump", str(aside), "-o", "json").stdout.splitlines()
    assert [json.loads(row)["base_offset"] for row in rows] == [0, 2, 4, 6, 8]


def test_copies_of_damage_are_kept_out_of_the_directory_by_any_path(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    result = invoke("check", ".", "--repair", "--cut-damage", "aside")
    assert result.exit_code == 1
    assert "is inside ." in result.stderr
    (data.parent / "link").symlink_to(data)
    result = invoke("check", str(data), "--repair", "--cut-damage", "../link/aside")
    assert "give a folder outside of it" in " ".join(result.stderr.split())


def metadata_log(data: Path) -> Path:
    """Write a metadata log in which the topic flights is compacted."""
    topic = pb.TopicRecord(name="flights", topic_id=bytes(16))
    config = pb.TopicConfigRecord(topic_id=bytes(16), name="cleanup.policy", value="compact")
    changes = [pb.MetadataRecord(topic=topic), pb.MetadataRecord(topic_config=config)]
    folder = data / "__cluster_metadata-0"
    folder.mkdir()
    path = folder / "00000000000000000000.log"
    path.write_bytes(
        b"".join(
            encode_batch(
                [Record(0, 1, None, change.SerializeToString())], base_offset=at, leader_epoch=0
            )
            for at, change in enumerate(changes)
        )
    )
    return path


@pytest.mark.parametrize("torn", [b"", b"torn"])
def test_metadata_log_with_a_torn_end_still_lists_the_compacted_topics(
    data: Path, torn: bytes
) -> None:
    log = metadata_log(data)
    log.write_bytes(log.read_bytes() + torn)
    known = known_topics(RealFiles(), str(data), frozenset())
    assert known.is_compacted("flights-0", {})
    assert (known.topics is None) == bool(torn)


def test_dump_may_be_closed_after_any_row(data: Path) -> None:
    """As `head` does. This must not be reported as an error of the file."""

    command = [sys.executable, "-m", "quorumlog.cli", "log", "dump", str(data / LOG), "--records"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
