"""The next controller that a broker contacts."""

import pytest

from quorumlog.errors import NotController
from quorumlog.ids import NodeId
from quorumlog.metadata.shell import ControllerLocator

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ALL = {ONE: "h:1", TWO: "h:2", THREE: "h:3"}


def test_without_a_leader_controllers_are_tried_in_turn() -> None:
    controllers = ControllerLocator.fixed(ALL)
    asked = []
    for _ in range(4):
        node, address = controllers.choose()
        assert address == ALL[node]
        asked.append(node)
        controllers.failed(node)
    assert asked == [1, 2, 3, 1]


def test_failing_leader_is_tried_every_other_time_and_the_others_in_turn() -> None:
    controllers = ControllerLocator(lambda: ALL, leader=lambda: TWO)
    asked = []
    for _ in range(8):
        node, _ = controllers.choose()
        asked.append(node)
        controllers.failed(node)
    assert asked == [2, 3, 2, 1, 2, 3, 2, 1]


def test_leader_named_by_a_controller_counts_for_one_attempt() -> None:
    controllers = ControllerLocator(lambda: ALL, leader=lambda: ONE)
    controllers.failed(ONE, hint=THREE)
    assert controllers.choose() == (THREE, "h:3")
    controllers.failed(THREE)
    assert controllers.choose() == (ONE, "h:1")


def test_leader_that_is_no_longer_a_voter_is_not_tried() -> None:
    voters = dict(ALL)
    controllers = ControllerLocator(lambda: voters, leader=lambda: THREE)
    del voters[THREE]
    assert controllers.choose() == (ONE, "h:1")
    controllers.failed(ONE, hint=THREE)
    assert controllers.choose() == (TWO, "h:2")


def test_missing_controller_is_reported() -> None:
    controllers = ControllerLocator.fixed({ONE: ""})
    controllers.failed(ONE)
    with pytest.raises(NotController, match="no controller is known"):
        controllers.choose()
