"""A broker without groups starts without what they need."""

import subprocess
import sys

import pytest

CODE = """
import sys
import quorumlog.server.main, quorumlog.server.node
late = ("classic", "consumer", "formats", "records", "requests", "shard", "shell.term")
found = [each for each in late if f"quorumlog.broker.groups.{each}" in sys.modules]
print(found, "re2" in sys.modules)
"""


@pytest.mark.slow
def test_no_machine_of_groups_is_imported_before_a_group_is_there() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout == "[] False\n"
