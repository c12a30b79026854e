"""Names of other clients in the output of commands cannot control a terminal."""

import json

import pytest

from quorumlog.cli import doctor, explain
from quorumlog.cli.consume.writers import for_terminal, json_line_for_terminal, value_line
from quorumlog.cli.failures import print_error
from quorumlog.cli.output import echo, print_entry, print_event, print_json, print_table
from quorumlog.clients.admin.findings import Finding
from quorumlog.clients.admin.transactions import TransactionalId
from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.errors import InvalidRequest

EVIL = "g\x1b]0;owned\x07\n\u009b2J\u202e\u200b\U000e0041"
SHOWN = "g\\x1b]0;owned\\x07\\n\\x9b2J\\u202e\\u200b\\U000e0041"
FINDING = Finding(what=EVIL, why=f"group {EVIL} has no members", remedy=f"delete '{EVIL}'")


def test_every_line_of_text_shows_hidden_characters_as_escapes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    echo(f"Group {EVIL}")
    print_entry(EVIL, EVIL)
    print_event(EVIL, is_json=False)
    print_error(InvalidRequest(EVIL), as_json=False)
    print_table(("group",), [(EVIL,), ((EVIL, "x"),), ({EVIL: EVIL},)], empty="")
    doctor._print(EVIL, [doctor.Diagnosis(doctor.Urgency.WARNING, FINDING)])
    explain._print([FINDING], "", None)
    found = capsys.readouterr()
    printed = found.out + found.err
    assert (printed + "\n").replace("\n", "").isprintable()
    assert f"Group {SHOWN}\n" in found.out
    assert f"\n{SHOWN}: group {SHOWN} has no members. delete '{SHOWN}'.\n" in found.out


def test_json_has_hidden_characters_as_escapes_of_the_same_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json({"group": EVIL, EVIL: ["ü", "\ud800"]})
    print_error(InvalidRequest(EVIL), as_json=True)
    found = capsys.readouterr()
    assert found.out[:-1].isprintable()
    assert found.err[:-1].isprintable()
    assert "ü" in found.out
    assert json.loads(found.out) == {"group": EVIL, EVIL: ["ü", "\ud800"]}
    assert json.loads(found.err)["message"] == EVIL


def test_records_on_a_terminal_have_no_hidden_characters() -> None:
    record = ConsumerRecord(
        topic="t", partition=0, offset=0, timestamp_ms=0, key=None, value=EVIL.encode(), headers=()
    )
    line = json_line_for_terminal(record).decode()
    assert line[:-1].isprintable()
    assert json.loads(line)["value"] == EVIL
    assert for_terminal(value_line)(record).decode() == SHOWN.replace("\\n", "\n") + "\n"


def test_suggested_command_quotes_a_transactional_id_for_the_shell() -> None:
    opened = TransactionalId(
        name="x; reboot $(id)",
        state="Ongoing",
        producer_id=1,
        producer_epoch=0,
        timeout_ms=60_000,
        started_ms=0,
        coordinator=1,
        partitions=(),
    )
    (found,) = doctor.transactions([opened], now_ms=doctor.OPEN_WARNING_MS * 2)
    assert "`quorumlog transactions abort 'x; reboot $(id)'`" in found.finding.remedy
