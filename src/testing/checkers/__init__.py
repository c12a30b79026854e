"""What clients may see of a log, judged after the fact. Pure; for simulations and real processes.

Two kinds of books are judged. A `Ledger` is one application's word, held against what is stored in
the end; a `History` is what many producers and consumers did and were told, in order, with a read
of everything as its end (`check`). Values are unique over a run.

Anomalies go by the names that the field gives them: *lost write* (acknowledged, and not there or
passed over by everybody), *unseen* (acknowledged, and no reader has got so far), *vanished* (seen
by a consumer and not there), *inconsistent offset* (one offset with two values), *duplicate* (one
value at two offsets, or stored more often than it was sent), *aborted read* (a record that failed
for good was seen), *phantom* (never sent), *gap* (offsets are not contiguous), *reordered* (one
producer's records of a partition in another order than it sent them), *skipped poll* (a consumer
jumped over a record), *nonmonotonic poll* (it was given again what it had).
"""

from .anomalies import Anomaly, AnomalyKind, check, describe
from .history import History, Outcome, Poll, Send, merge
from .ledger import ANOMALIES_SHOWN, Ledger, Place, Stored, anomalies, report

__all__ = [
    "ANOMALIES_SHOWN",
    "Anomaly",
    "AnomalyKind",
    "History",
    "Ledger",
    "Outcome",
    "Place",
    "Poll",
    "Send",
    "Stored",
    "anomalies",
    "check",
    "describe",
    "merge",
    "report",
]
