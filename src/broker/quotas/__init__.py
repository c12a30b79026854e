"""Quotas of clients: the broker's share of each, and the throttle time after an excess.

`rules` selects the quotas of a client, `allowance` implements a rate limit, `throttling` charges
clients. Pure: the front end measures the cost of requests and delays clients.
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
