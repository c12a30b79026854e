"""How much of the broker each client may use, and how long one that took more has to wait.

`rules` says which quotas count for a client, `allowance` how a rate is kept, `throttling` charges
clients and says what follows. Pure: what is charged, and who waits, is the front door's.
"""

from .allowance import BURST_MS, WAIT_MS_MAX, Allowance
from .rules import QuotaRules, Share
from .throttling import CLIENTS_MAX, Throttled, Throttling

__all__ = [
    "Allowance",
    "BURST_MS",
    "CLIENTS_MAX",
    "QuotaRules",
    "Share",
    "Throttled",
    "Throttling",
    "WAIT_MS_MAX",
]
