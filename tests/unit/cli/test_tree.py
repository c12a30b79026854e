"""The table of commands, and the commands that it lists."""

import subprocess
import sys

import pytest

from quorumlog.cli.main import ENTRIES, SECTIONS, LazyCommands
from quorumlog.cli.pages import cli_page


@pytest.mark.parametrize("name", ENTRIES)
def test_entry_loads_a_command_with_its_name_and_help(name: str) -> None:
    command = LazyCommands()[name]
    assert command.name == name
    assert command.short_help == ENTRIES[name].line
    assert ENTRIES[name].section in SECTIONS


def test_unknown_name_loads_nothing() -> None:
    with pytest.raises(KeyError):
        LazyCommands()["topic"]


@pytest.mark.slow
def test_help_imports_no_commands_module() -> None:
    code = (
        "import sys\n"
        "from quorumlog.cli.main import ENTRIES, app\n"
        "app(['--help'], standalone_mode=False)\n"
        "homes = {'quorumlog.cli.' + entry.module for entry in ENTRIES.values()}\n"
        "print(sorted(homes & set(sys.modules)))\n"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said.splitlines()[-1] == "[]"


def test_help_of_each_command_with_a_confirmation_says_when_it_asks() -> None:
    asking = [text for text in cli_page().split("\n## ") if "--yes " in text]
    assert len(asking) > 10
    for text in asking:
        assert "sks for confirmation on a terminal" in " ".join(text.split()), text
