"""A second checker of transactional histories: each anomaly is a query over relations.

Its author had the definitions (docs/testing.md, docs/transactions.md; Adya 1999, section 4.2, for
aborted reads and cycles; the Kafka workload of Jepsen), and not the source of `check_transactions`.
It favours clarity over speed. `judged` runs both checkers, which must find the same kinds.
"""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

from quorumlog.testing.checkers import (
    Anomaly,
    GroupPlace,
    Place,
    Stored,
    TransactionHistory,
    check_transactions,
)

from .violation import Violation

RELATIONS: Final = """
CREATE TABLE send (value, place, producer, number, tx, outcome, offset);
CREATE TABLE tx (name, requested, ended, outcome, is_aborted);
CREATE TABLE got (value, place, offset, at, consumer, tx, number, is_first);
CREATE TABLE stored (place, offset, value);
CREATE TABLE work (tx, team, place, first_offset, end_offset);
CREATE TABLE fetched (team, place, offset, asked, answered);
CREATE TABLE final_offset (team, place, offset);
CREATE TABLE complete (place);
CREATE TABLE processed (team, place);
CREATE TABLE conflict (text);

CREATE INDEX send_value ON send (value);
CREATE INDEX send_tx ON send (tx);
CREATE INDEX send_position ON send (place, offset);
CREATE INDEX got_value ON got (value);
CREATE INDEX got_position ON got (place, offset);
CREATE INDEX stored_value ON stored (value);
CREATE INDEX stored_position ON stored (place, offset);

-- What readers of committed data were returned, during the run and at its end.
CREATE VIEW shown AS
SELECT value, place, offset FROM got UNION SELECT value, place, offset FROM stored;

-- The records that a consumer was returned, each with the offset of the record before it.
CREATE VIEW step AS
SELECT place, offset, is_first,
  LAG(offset) OVER (PARTITION BY consumer, place ORDER BY number) AS before
FROM got WHERE tx IS NULL;

-- The records with their final outcomes: an acknowledged commit acknowledges those of its
-- transaction, except failed ones.
CREATE VIEW record AS
SELECT value, place, producer, number, tx, offset,
  CASE
    WHEN send.outcome = 'failed' OR is_aborted THEN 'failed'
    WHEN tx IS NULL THEN send.outcome
    WHEN tx.outcome = 'committed' THEN 'ok'
    ELSE 'unknown'
  END AS outcome
FROM send LEFT JOIN tx ON tx.name = send.tx;

-- The records that a transaction must show if it is committed: none that something removes.
CREATE VIEW part AS
SELECT tx, value, place, value IN (SELECT value FROM shown) AS is_shown
FROM record WHERE tx IS NOT NULL AND outcome != 'failed' AND place IN complete;

-- The offsets of records, as acknowledged or returned.
CREATE VIEW position AS
SELECT place, offset, value FROM shown UNION
SELECT place, offset, value FROM send WHERE offset >= 0;

-- A transaction is effective if its commit was acknowledged or a record of it was returned.
CREATE TABLE effective (name PRIMARY KEY);
-- A transaction is possible if neither is the case and no record is missing.
CREATE TABLE possible (name PRIMARY KEY);
-- Committed records in the ranges that groups process.
CREATE TABLE input (place, offset, value);
"""

DERIVED: Final = """
INSERT INTO effective
SELECT name FROM tx WHERE NOT is_aborted AND (
  outcome = 'committed'
  OR EXISTS (SELECT 1 FROM send JOIN shown USING (value) WHERE send.tx = tx.name));

INSERT INTO possible
SELECT name FROM tx
WHERE NOT is_aborted AND name NOT IN effective
AND NOT EXISTS (SELECT 1 FROM part WHERE part.tx = tx.name AND NOT is_shown);

INSERT INTO input
SELECT place, offset, value FROM stored
WHERE place IN (SELECT place FROM work UNION SELECT place FROM processed);
"""

QUERIES: Final = {
    "lost write": """
        SELECT place, value FROM record
        WHERE outcome = 'ok' AND place IN complete AND NOT EXISTS (
          SELECT 1 FROM shown WHERE shown.place = record.place AND shown.value = record.value)""",
    "torn transaction": """
        SELECT part.place, tx FROM part JOIN effective ON effective.name = part.tx
        WHERE NOT is_shown""",
    "changed outcome": "SELECT '', text FROM conflict",
    "inconsistent offset": """
        SELECT place, offset FROM position
        GROUP BY place, offset HAVING COUNT(DISTINCT value) > 1""",
    "vanished": """
        SELECT place, offset FROM got
        WHERE place IN complete AND NOT EXISTS (
          SELECT 1 FROM stored WHERE stored.place = got.place AND stored.offset = got.offset
          AND stored.value = got.value)""",
    "aborted read": """
        SELECT place, value FROM shown JOIN record USING (place, value)
        WHERE outcome = 'failed'""",
    "precommitted read": """
        SELECT got.place, value FROM got JOIN send USING (value) JOIN tx ON tx.name = send.tx
        WHERE got.at < tx.requested OR (got.at IS NOT NULL AND tx.requested < 0)""",
    "read cycle": """
        WITH RECURSIVE
        before (writer, reader) AS (
          SELECT DISTINCT send.tx, got.tx FROM got JOIN send USING (value)
          WHERE send.tx IS NOT NULL AND got.tx IS NOT NULL),
        path (first, last) AS (
          SELECT writer, reader FROM before UNION
          SELECT first, reader FROM path JOIN before ON last = writer)
        SELECT '', first FROM path WHERE first = last""",
    "processed twice": """
        SELECT team, early.first_offset FROM work early JOIN work late USING (team, place)
        WHERE early.tx != late.tx AND early.tx IN effective AND late.tx IN effective
        AND MAX(early.first_offset, late.first_offset)
          < MIN(early.end_offset, late.end_offset)""",
    "not processed": """
        WITH taken AS (
          SELECT * FROM work WHERE tx IN effective OR tx IN possible),
        span AS (
          SELECT team, place, MIN(first_offset) AS first_offset, MAX(end_offset) AS end_offset
          FROM work
          WHERE tx IN effective GROUP BY team, place UNION ALL
          SELECT team, place, 0, 1 << 62 FROM processed)
        SELECT span.team, input.offset FROM span JOIN input USING (place)
        WHERE input.offset >= span.first_offset AND input.offset < span.end_offset
        AND NOT EXISTS (
          SELECT 1 FROM taken WHERE taken.team = span.team AND taken.place = input.place
          AND input.offset >= taken.first_offset AND input.offset < taken.end_offset
          AND EXISTS (
            SELECT 1 FROM got WHERE got.tx = taken.tx AND got.place = input.place
            AND got.offset = input.offset))""",
    "lost offset": """
        SELECT fetched.place, fetched.offset FROM fetched JOIN work USING (team, place)
        JOIN tx ON tx.name = work.tx
        WHERE tx.outcome = 'committed' AND NOT tx.is_aborted AND tx.ended <= asked
        AND fetched.offset < work.end_offset
        UNION
        SELECT late.place, late.offset FROM fetched late JOIN fetched early USING (team, place)
        WHERE early.answered <= late.asked AND late.offset < early.offset """,
    "uncommitted offset": """
        SELECT fetched.place, fetched.offset FROM fetched
        WHERE offset >= 0 AND NOT EXISTS (
          SELECT 1 FROM work JOIN tx ON tx.name = work.tx
          WHERE work.team = fetched.team AND work.place = fetched.place
          AND work.end_offset = fetched.offset AND tx.requested <= fetched.answered
          AND NOT tx.is_aborted)""",
    "wrong offset": """
        SELECT place, final_offset.offset FROM final_offset
        WHERE offset != (
          SELECT COALESCE(MAX(end_offset), -1) FROM work WHERE work.team = final_offset.team
          AND work.place = final_offset.place AND tx IN effective)
        AND NOT EXISTS (
          SELECT 1 FROM work WHERE work.team = final_offset.team
          AND work.place = final_offset.place
          AND work.end_offset = final_offset.offset AND tx IN possible)""",
    "phantom": """
        SELECT place, value FROM shown
        WHERE NOT EXISTS (
          SELECT 1 FROM send WHERE send.value = shown.value AND send.place = shown.place)""",
    "duplicate": """
        SELECT place, value FROM shown
        GROUP BY value, place IN complete HAVING COUNT(DISTINCT place || '@' || offset) > 1""",
    "reordered": """
        WITH first_copy AS (
          SELECT record.place, producer, number, MIN(position.offset) AS offset
          FROM record JOIN position ON position.place = record.place
            AND position.value = record.value
          WHERE outcome = 'ok' OR record.offset >= 0 GROUP BY record.value)
        SELECT place, offset FROM (
          SELECT place, offset, number, LAG(number) OVER (
            PARTITION BY place, producer ORDER BY offset, number) AS before
          FROM first_copy)
        WHERE number < before""",
    "nonmonotonic poll": """
        SELECT place, offset FROM step WHERE NOT is_first AND offset <= before""",
    "skipped poll": """
        WITH visible AS (
          SELECT place, offset FROM shown UNION
          SELECT place, offset FROM record WHERE outcome = 'ok' AND offset >= 0)
        SELECT step.place, visible.offset FROM step JOIN visible ON visible.place = step.place
        AND visible.offset > before AND visible.offset < step.offset
        WHERE NOT is_first AND step.place IN complete""",
}
"""By kind: the places where the anomaly occurs, each with a detail.

A *gap* cannot be judged, since markers and aborted records leave gaps. No record is *unseen*, since
the last read is complete.
"""


def related_anomalies(
    history: TransactionHistory,
    final: Stored,
    committed: Mapping[GroupPlace, int],
    *,
    incomplete: Collection[Place] = (),
    processed: Mapping[str, Collection[Place]] | None = None,
) -> set[tuple[str, str, str]]:
    """Return kind, place and detail of each anomaly. The arguments are those of
    `check_transactions`."""
    with closing(sqlite3.connect(":memory:")) as base:
        base.executescript(RELATIONS)
        tables: dict[str, Iterable[tuple[Any, ...]]] = {
            "send": _sends(history),
            "tx": (
                (one.name, one.commit_requested_at, one.ended_at, one.outcome, one.is_aborted)
                for one in history.transactions.values()
            ),
            "got": _got(history),
            "stored": ((_name(at), *record) for at, found in final.items() for record in found),
            "work": (
                (one.name, group, _name(place), *span)
                for one in history.transactions.values()
                for (group, place), span in one.offsets.items()
            ),
            "fetched": (
                (one.group, _name(one.place), one.offset, one.asked_at, one.answered_at)
                for one in history.offset_reads
            ),
            "final_offset": (
                (group, _name(place), offset) for (group, place), offset in committed.items()
            ),
            "complete": ((_name(place),) for place in final if place not in incomplete),
            "processed": (
                (group, _name(place))
                for group, places in (processed or {}).items()
                for place in places
            ),
            "conflict": ((text,) for text in history.conflicts),
        }
        for table, rows in tables.items():
            for row in rows:
                marks = ", ".join("?" * len(row))
                base.execute(f"INSERT INTO {table} VALUES ({marks})", row)
        base.executescript(DERIVED)
        return {
            (kind, str(place), str(detail))
            for kind, query in QUERIES.items()
            for place, detail in base.execute(query)
        }


def judged(
    history: TransactionHistory,
    final: Stored,
    committed: Mapping[GroupPlace, int],
    *,
    incomplete: Collection[Place] = (),
    processed: Mapping[str, Collection[Place]] | None = None,
) -> list[Anomaly]:
    """Return the anomalies that `check_transactions` finds; raise Violation if this checker finds
    other kinds."""
    ours = check_transactions(history, final, committed, incomplete=incomplete, processed=processed)
    related = related_anomalies(
        history, final, committed, incomplete=incomplete, processed=processed
    )
    if {str(one.kind) for one in ours} != {kind for kind, _, _ in related}:
        lines = [*(f"  check_transactions: {one}" for one in ours)]
        lines += [f"  relations: {': '.join(one)}" for one in sorted(related)]
        raise Violation("Judges", "\n".join(["the two checkers disagree:", *lines]))
    return ours


def _sends(history: TransactionHistory) -> Iterator[tuple[Any, ...]]:
    """Yield the sends, in order."""
    of_value = {value: one.name for one in history.transactions.values() for value in one.sends}
    for number, send in enumerate(history.records.sends.values()):
        yield (
            send.value,
            _name(send.place),
            send.producer,
            number,
            of_value.get(send.value),
            send.outcome,
            send.offset,
        )


def _got(history: TransactionHistory) -> Iterator[tuple[Any, ...]]:
    """Yield the records that consumers and transactions were returned."""
    first: set[tuple[str, Place]] = set()  # positioned, and nothing returned yet
    number = 0
    for poll in history.records.polls:
        reader = poll.consumer, poll.place
        if poll.is_first:
            first.add(reader)
        for offset, value in poll.records:
            is_first = reader in first
            first.discard(reader)
            number += 1
            yield (
                value,
                _name(poll.place),
                offset,
                poll.at,
                poll.consumer,
                None,
                number,
                is_first,
            )
    for one in history.transactions.values():
        for place, offset, value in one.reads:
            yield value, _name(place), offset, None, None, one.name, None, None


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
