"""The pictures of docs/raft.md are what the simulator draws now, and all show what they should."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from tests.simulation.levels.core.trace import (
    Crashed,
    Delivered,
    RoleTaken,
    Sent,
    Started,
    TraceEvent,
)
from tests.simulation.pictures import staged_commit, transaction
from tests.simulation.pictures.layout import lay_out
from tests.simulation.pictures.scripts import DIAGRAMS, DiagramSpec, play_diagram
from tests.simulation.pictures.svg import draw

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.mark.parametrize("story", DIAGRAMS, ids=lambda story: story.name)
def test_the_picture_is_what_the_simulator_draws_now(story: DiagramSpec) -> None:
    trace, nodes = play_diagram(story)
    drawn = draw(lay_out(trace, nodes=nodes), title=story.title)
    assert (PICTURES / f"{story.name}.svg").read_text() == drawn, "run `make pictures`"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "script", "play"),
    [
        ("transaction", transaction, transaction.play_transaction),
        ("staged_commit", staged_commit, staged_commit.play_staged_commit),
    ],
)
def test_the_picture_of_whole_nodes_has_the_messages_of_a_run_now(
    name: str, script: ModuleType, play: Callable[[], tuple[list[TraceEvent], list[int]]]
) -> None:
    """Whole nodes run: their times depend on every message since their start."""
    trace, columns = play()
    diagram = lay_out(trace, nodes=columns, heads=script.HEADS)
    assert script.TITLE in draw(diagram, title=script.TITLE)
    drawn = sorted(arrow.words for arrow in diagram.arrows)
    assert sorted(texts_of(name, "message")) == drawn, "run `make pictures`"


def test_the_staged_commit_shows_its_decision_before_the_markers() -> None:
    words = words_of("staged_commit")
    assert words.count("Begin") == words.count("Seal") == words.count("WriteMarkers") == 2
    steps = ("2 sealed", "2 committing", "batch 0 complete")
    assert sorted(steps, key=words.index) == list(steps)
    assert "end 1, LSO 0" in words


def test_the_transaction_shows_every_state_and_a_marker_for_each_partition() -> None:
    words = words_of("transaction")
    states = [word for word in words if word in ("Ongoing", "PrepareCommit", "CompleteCommit")]
    assert states == ["Ongoing", "PrepareCommit", "CompleteCommit"]
    assert words.count("WriteMarkers") == 2
    assert words.index("offset pending") < words.index("offset committed")


def test_the_election_shows_pre_votes_before_votes_and_one_leader() -> None:
    words = words_of("election")
    assert words.index("pre-vote request · 0") < words.index("vote request · 1")
    assert sum(1 for word in words if word == "leader · epoch 1") == 1


def test_the_partition_shows_the_cut_and_both_leaders() -> None:
    words = words_of("partition")
    assert any(word.startswith("cut: ") for word in words)
    assert "leader · epoch 1" in words
    assert "leader · epoch 2" in words


def test_the_membership_shows_each_voter_set() -> None:
    words = words_of("membership")
    assert "voters 1, 2, 3, 4" in words
    assert any(word.startswith("voters ") and len(word.split(",")) == 3 for word in words)


def test_a_lost_message_ends_half_way_and_a_dead_process_has_no_band() -> None:
    trace: list[TraceEvent] = [
        Started(at_us=0, node=1),
        Started(at_us=0, node=2),
        RoleTaken(at_us=1_000, node=1, role="candidate", epoch=1),
        Sent(
            at_us=1_000, number=1, sender=1, receiver=2, message="VoteRequest", detail="", epoch=1
        ),
        Sent(at_us=2_000, number=2, sender=1, receiver=2, message="Heartbeat", detail="", epoch=1),
        Delivered(at_us=3_000, number=2),
        Crashed(at_us=4_000, node=2),
    ]
    diagram = lay_out(trace, nodes=[1, 2])
    lost, heartbeat = diagram.arrows
    assert lost.is_lost
    assert abs(lost.x2 - lost.x1) < abs(heartbeat.x2 - heartbeat.x1)
    assert heartbeat.is_quiet
    assert not heartbeat.words
    assert [band.role for band in diagram.bands if band.x == heartbeat.x2] == ["unattached", "down"]


def words_of(name: str) -> list[str]:
    """Every text of a picture, from its start to its end."""
    return texts_of(name, "")


def texts_of(name: str, kind: str) -> list[str]:
    """Every text of one kind of a picture; "": of every kind."""
    root = ElementTree.fromstring((PICTURES / f"{name}.svg").read_text())
    texts = (each for each in root.iter("{http://www.w3.org/2000/svg}text"))
    kinds = ((each.text or "", each.get("class", "")) for each in texts)
    return [text for text, each in kinds if "halo" not in each and kind in each]
