"""docs/raft.md matches the code: role transitions, invariants, quorum-state."""

import re
from pathlib import Path

from quorumlog.ids import DirectoryId, Epoch, NodeId
from quorumlog.raftlog import HardState, Voter
from quorumlog.raftlog.hard_state import encode_hard_state
from quorumlog.raftlog.roles import TRANSITIONS, RoleName, Trigger

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "raft.md").read_text()
CORE = ROOT / "src" / "raftlog"


def transition_table() -> str:
    """Return the table of transitions in the form of the page: triggers by roles."""
    lines = [
        "| " + " | ".join(["trigger", *RoleName]) + " |",
        "|" + "---|" * (len(RoleName) + 1),
    ]
    for trigger in Trigger:
        after = [TRANSITIONS.get((role, trigger), "") for role in RoleName]
        lines.append("| " + " | ".join([trigger, *after]) + " |")
    return "\n".join(lines)


def test_the_page_has_the_table_of_transitions() -> None:
    table = transition_table()
    assert f"\n\n{table}\n\n" in PAGE, f"docs/raft.md needs:\n{table}"


def test_the_page_explains_every_role() -> None:
    rows = re.findall(r"^\| (\w+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert set(RoleName) <= set(rows)


def test_the_page_numbers_the_invariants_as_the_code_does() -> None:
    asserted: set[int] = set()
    for path in CORE.glob("*.py"):
        checks = path.read_text().partition("def check_invariants")[2]
        asserted |= {int(number) for number in re.findall(r"^ +# (\d+)\. ", checks, re.MULTILINE)}
    section = PAGE.partition("## Invariants")[2].partition("\n## ")[0]
    assert asserted, "the core has no numbered invariants"
    listed = [int(number) for number in re.findall(r"^(\d+)\. ", section, re.MULTILINE)]
    assert listed == sorted(asserted)


def test_the_page_shows_a_quorum_state_that_the_encoder_makes() -> None:
    voter = Voter(NodeId(5), DirectoryId(bytes(range(16))))
    content = encode_hard_state(HardState(Epoch(9), voter)).decode()
    assert f"```json\n{content}\n```" in PAGE
