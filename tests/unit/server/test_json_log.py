"""The log in JSON format: named fields of events, with nothing lost."""

import json
import logging
import sys
from typing import Any

import pytest

from quorumlog.server.json_log import JsonFormatter, fields_of


def written(form: object, *arguments: Any, level: int = logging.INFO, **extra: Any) -> Any:
    record = logging.LogRecord(
        "quorumlog.raftlog", level, "f.py", 1, form, arguments, extra.get("exc_info")
    )
    record.created = 1_700_000_000.0624
    line = JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line)


def test_an_event_has_its_fields_by_name_and_numbers_stay_numbers() -> None:
    assert written("raft.became_%s node=%d epoch=%d reason=%s", "leader", 1, 7, "votes") == {
        "time": "2023-11-14T22:13:20.062Z",
        "level": "INFO",
        "logger": "quorumlog.raftlog",
        "event": "raft.became_leader",
        "node": 1,
        "epoch": 7,
        "reason": "votes",
        "message": "raft.became_leader node=1 epoch=7 reason=votes",
    }


@pytest.mark.parametrize(
    ("form", "arguments", "event"),
    [
        ("node.not_let_go node=%d: it stops all the same", (1,), "node.not_let_go"),
        ("clients.io_thread_failed", (), "clients.io_thread_failed"),
        ("broker.session_ended id=%d: %s", (1, "gone"), "broker.session_ended"),
    ],
)
def test_event_name_ends_before_its_fields_or_a_sentence(
    form: str, arguments: tuple[Any, ...], event: str
) -> None:
    assert written(form, *arguments)["event"] == event


def test_log_line_of_a_library_is_a_message_without_an_event() -> None:
    line = written("e.g. something %s happened", "odd")
    assert "event" not in line
    assert line["message"] == "e.g. something odd happened"


@pytest.mark.parametrize(
    ("form", "arguments", "fields"),
    [
        ("a.b x=%d y=%r", (1, "z"), {"x": 1, "y": "'z'"}),
        ("a.b %s x=%.1f share=%d%%", ("skipped", 1.25, 50), {"x": 1.25, "share": "50%"}),
        ("a.b offsets=%d-%d node=%d: it (%s) ends", (1, 2, 3, "x"), {"offsets": "1-2", "node": 3}),
        ("a.b reason=disk_full", (), {"reason": "disk_full"}),
        ("a.b error=%s: %s", (ValueError("no"), "more"), {"error": "no"}),
        ("a.b x=%s", (None,), {"x": None}),
        ("a.b level=%s", ("mine",), {}),
        ("a.b x=%d", (), {}),
        ("a.b", ({"x": 1},), {}),
    ],
)
def test_fields_are_parsed_from_the_format(
    form: str, arguments: tuple[Any, ...], fields: dict[str, Any]
) -> None:
    assert fields_of(form, arguments) == fields


def test_exception_has_its_traceback_in_the_same_line() -> None:
    try:
        raise RuntimeError("a bug\nover two lines")
    except RuntimeError:
        line = written("grpc.handler_failed method=%s", "/x", exc_info=sys.exc_info())
    assert "RuntimeError: a bug\nover two lines" in line["traceback"]
    assert (line["event"], line["method"]) == ("grpc.handler_failed", "/x")
