"""The gRPC front end: handler tables for the services `Log`, `Admin`, `Groups`, `Mirror`, `Quorum`,
`Transactions` and `StagedCommits`.

Handlers are independent of the transport (`runtime.Handler`): this package does not import grpc,
and the simulation runs it unchanged.
"""

from .admin_service import AdminService
from .groups_service import GroupsService
from .log_service import LogService
from .mirror_service import MirrorService
from .quorum_service import QuorumClient, QuorumService
from .transactions_service import StagedCommitsService, TransactionsService

__all__ = [
    "AdminService",
    "GroupsService",
    "LogService",
    "MirrorService",
    "QuorumClient",
    "QuorumService",
    "StagedCommitsService",
    "TransactionsService",
]
