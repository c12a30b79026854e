"""`quorumlog groups`, `consume --group` and `explain lag`: output, changes and refusals."""

import json
import time
from pathlib import Path

import pytest
from tests.kit.command import invoke, json_lines, succeed

import quorumlog


@pytest.fixture
def group(address: str, topic: str) -> str:
    """A group that has read a topic of two partitions; the first has ten records."""
    succeed("topics", "create", topic, "-p", "2", address=address)
    lines = "".join(f'{{"value": "{number}", "partition": 0}}\n' for number in range(10))
    succeed("produce", topic, "--format", "json", address=address, stdin=lines)
    read = ("consume", topic, "--group", topic, "--max", "10", "-o", "json")
    assert len(json_lines(succeed(*read, address=address))) == 10
    return topic


def test_group_is_listed_described_reset_and_deleted(address: str, group: str) -> None:
    listed = json.loads(succeed("groups", "list", "-o", "json", address=address))
    mine = {"group": group, "type": "consumer", "state": "Empty", "protocol_type": "consumer"}
    assert {**mine, "coordinator": 1} in listed
    reset = ("groups", "reset-offsets", group)
    dry = json.loads(succeed(*reset, "--shift", "-3", "--dry-run", "-o", "json", address=address))
    assert dry["dry_run"]
    assert dry["offsets"][0] == {"topic": group, "partition": 0, "before": 10, "after": 7}
    assert described(address, group) == [(0, 10, 0), (1, 0, 0)]
    succeed(*reset, "--to", "-4", "--topic", group, "-p", "0", address=address)
    assert described(address, group) == [(0, 6, 4), (1, 0, 0)]
    output = succeed("explain", "lag", group, "--for", "0", address=address)
    assert output.startswith(f"{group}-0: lag 4; group {group} has no members")
    assert succeed("groups", "delete", group, "--yes", address=address) == (
        f"Group {group} is deleted.\n"
    )
    assert "does not exist" in invoke("groups", "describe", group, address=address).output


def test_unknown_group_is_reported_with_the_nearest_name_by_every_command(
    address: str, group: str
) -> None:
    for arguments in (
        ("describe", f"{group}s"),
        ("reset-offsets", f"{group}s", "--to", "-5"),
        ("reset-offsets", f"{group}s", "--to", "earliest"),
        ("delete", f"{group}s", "--yes"),
    ):
        result = invoke("groups", *arguments, address=address)
        assert result.exit_code == 1
        assert f"did you mean {group}" in result.output, arguments


def test_records_in_a_file_of_columns_are_committed_once_it_is_closed(
    address: str, group: str, tmp_path: Path
) -> None:
    succeed("groups", "reset-offsets", group, "--to", "earliest", "--yes", address=address)
    file = str(tmp_path / "some.parquet")
    into = ("consume", group, "--group", group, "--to-file")
    succeed(*into, file, "--max", "4", address=address)
    assert described(address, group)[0] == (0, 4, 6)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_records_that_could_not_be_written_to_a_file_are_not_committed(
    address: str, group: str, tmp_path: Path, ending: str
) -> None:
    succeed("groups", "reset-offsets", group, "--to", "earliest", "--yes", address=address)
    file = tmp_path / f"full.{ending}"
    file.symlink_to("/dev/full")
    into = ("consume", group, "--group", group, "--overwrite", "--to-file", str(file))
    result = invoke(*into, "--max", "4", address=address)
    assert (result.exit_code, "No space left" in result.output) == (1, True)
    assert described(address, group)[0] == (0, 0, 10)


def described(address: str, group: str) -> list[tuple[int, int, int]]:
    found = json.loads(succeed("groups", "describe", group, "-o", "json", address=address))
    return [(each["partition"], each["committed"], each["lag"]) for each in found["offsets"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("groups", "reset-offsets", "g"), "--to and --shift"),
        (("groups", "reset-offsets", "g", "--to", "0", "-p", "1"), "--topic"),
        (("consume", "t", "--group", "g", "--until-end"), "remove --until-end"),
        (("consume", "t", "--group", "g", "-p", "0"), "remove --partition"),
    ],
)
def test_contradictory_options_are_refused(
    address: str, arguments: tuple[str, ...], said: str
) -> None:
    result = invoke(*arguments, address=address)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


def test_member_is_described_with_its_last_heartbeat(address: str, group: str) -> None:
    with quorumlog.connect(address) as log, log.group_consumer(f"{group}-heard", group):
        found = json.loads(
            succeed("groups", "describe", f"{group}-heard", "-o", "json", address=address)
        )
        output = succeed("groups", "describe", f"{group}-heard", address=address)
    (member,) = found["members"]
    assert member["client"] == "quorumlog"
    assert 0 <= member["heard_ms_ago"] < 10_000
    assert "heard (ms ago)" in output


def test_active_and_expired_holds_have_their_own_texts(address: str, group: str) -> None:
    now_ms = round(time.time() * 1000)
    holds = f"retention.holds={group}@{now_ms - 5}/5,{group}@{now_ms + 3_600_000}/7"
    succeed("configs", "alter", group, "--set", holds, address=address)
    output = succeed("groups", "describe", group, address=address)
    assert f"It held its unread records of {group} until " in output
    assert f"It holds its unread records of {group} until " in output
