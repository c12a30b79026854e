"""Every transcript equals the current output, and the runner reports differences."""

import subprocess
import sys
from pathlib import Path

import pytest

from .transcript import FOLDER, commands, difference, replay, transcripts

README = (FOLDER.parent / "README.md").read_text()


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_the_transcript_equals_the_output(path: Path) -> None:
    text = difference(path)
    assert not text, f"\n{text}"


def test_every_transcript_is_listed_once() -> None:
    listed = [line.split("`")[1] for line in README.splitlines() if line.startswith("| `")]
    named = [each.removeprefix("raft/") for each in listed if each.endswith(".txt")]
    assert sorted(named) == [path.name for path in transcripts()]


def test_every_command_is_explained() -> None:
    explained = {line.split("`")[1].split()[0] for line in README.splitlines() if "| `" in line}
    assert set(commands()) - explained == set()


def test_a_wrong_line_is_a_readable_difference(tmp_path: Path) -> None:
    path = tmp_path / "lone.txt"
    path.write_text(replay("> nodes 1\n> settle\n> log\n"))
    assert not difference(path)
    path.write_text(path.read_text().replace("| nothing", "| something"))
    text = difference(path)
    assert "--- lone.txt as written" in text
    assert [line for line in text.splitlines() if line.startswith(("- ", "-1"))]


def test_missing_and_superfluous_lines_are_differences(tmp_path: Path) -> None:
    path = tmp_path / "lone.txt"
    for text in ("> nodes 1\n> state\n", "> nodes 1\n> heal\n1: heals\n"):
        path.write_text(text)
        assert difference(path)


@pytest.mark.slow
def test_only_the_option_rewrites_a_transcript(tmp_path: Path) -> None:
    path = tmp_path / "lone.txt"
    path.write_text("# who?\n> nodes 1\n> state\n\n")
    before = path.read_text()
    command = [sys.executable, "-m", "tests.scenarios.transcript", str(path)]
    root = FOLDER.parents[2]
    assert subprocess.run(command, cwd=root, capture_output=True).returncode == 1
    assert path.read_text() == before
    assert subprocess.run([*command, "--rewrite"], cwd=root).returncode == 0
    after = path.read_text()
    assert after.startswith("# who?\n> nodes 1\n")
    assert "1: leader" in after or "1: unattached" in after
    assert subprocess.run(command, cwd=root).returncode == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("> levitate 1\n", "no command 'levitate'"),
        ("1: leads\n", "line 1 is no command"),
        ("> nodes 2\n> deliver 1 -> 2 append\n", "nothing in flight is '1 -> 2 append'"),
        ("> nodes 2\n> drop 1\n", "which messages are '1'?"),
    ],
)
def test_a_mistake_in_a_transcript_is_named(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("?", r"\?")):
        replay(text)
