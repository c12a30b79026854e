"""A broker without groups imports no group machinery."""

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
def test_group_machinery_is_imported_with_the_first_group() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout == "[] False\n"
