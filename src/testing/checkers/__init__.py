"""Checkers of clients' histories, for simulations and real processes. Pure.

A `Ledger` is the view of one application, compared with the stored records at the end. A `History`
is the ordered list of operations of many producers and consumers with their results, compared with
a complete read at the end (`check`). Values are unique in a run.

Anomalies have the names of the field: *lost write* (acknowledged, and neither stored nor read
although later offsets were read), *unseen* (acknowledged, and no consumer has read that far),
*vanished* (read by a consumer and not stored), *inconsistent offset* (one offset with two values),
*duplicate* (one value at two offsets, or stored more often than it was sent), *aborted read* (a
record that failed definitely was read), *phantom* (never sent), *gap* (offsets are not contiguous),
*reordered* (records of one producer and partition are not in the order of sending), *skipped poll*
(a consumer skipped a record), *nonmonotonic poll* (a consumer was returned a record again).

A `TransactionHistory` adds transactions and the offsets that they commit: *torn transaction* (a
part of it is visible), *changed outcome* (commit and abort were both acknowledged), *precommitted
read* (a reader of committed data was returned a record before its commit was requested), *read
cycle* (transactions read each other's records), *processed twice* and *not processed* (input of a
group), *lost offset* (an older offset was returned after a newer one was committed), *uncommitted
offset* (an offset that no transaction had committed was returned), *wrong offset* (the final one
disagrees with the visible output).
"""

from .anomalies import Anomaly, AnomalyKind, check, describe
from .history import History, Poll, Send, SendOutcome, merge
from .ledger import ANOMALIES_SHOWN, Ledger, Place, Stored, anomalies, report
from .transactions import (
    GroupPlace,
    OffsetRead,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
    check_transactions,
)

__all__ = [
    "ANOMALIES_SHOWN",
    "Anomaly",
    "AnomalyKind",
    "GroupPlace",
    "History",
    "OffsetRead",
    "Ledger",
    "SendOutcome",
    "Place",
    "Poll",
    "Send",
    "Stored",
    "Transaction",
    "TransactionHistory",
    "TransactionOutcome",
    "anomalies",
    "check",
    "check_transactions",
    "describe",
    "merge",
    "report",
]
