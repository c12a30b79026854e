"""The client of this process for each cluster, for writes: those of the sink, and dead letters.

Spark reuses and forks its worker processes, so clients are module-level state as in `broker_calls`,
and stay open for later tasks; a fork gets clients of its own.
"""

import os
from typing import Final

import quorumlog
from quorumlog.spark.cluster_access import ClusterAccess

CALL_TIMEOUT_MS: Final = 120_000
"""Time limit of a call with its retries, as that of a record: an executor without network for a
minute continues."""

_clients: dict[tuple[int, ClusterAccess], quorumlog.Log] = {}


def client_of(access: ClusterAccess, *, connect_timeout_ms: int = CALL_TIMEOUT_MS) -> quorumlog.Log:
    """Return this process's client of a cluster; connect at the first call."""
    key = (os.getpid(), access)
    if key not in _clients:
        _clients[key] = quorumlog.connect(
            ",".join(access.bootstrap),
            tls=access.tls,
            credentials=access.credentials,
            connect_timeout_ms=connect_timeout_ms,
            call_timeout_ms=CALL_TIMEOUT_MS,
        )
    return _clients[key]
