"""The gRPC front door: handler tables for the services `Log`, `Admin`, `Mirror`, `Quorum`
and `Transactions`.

Handlers are transport-neutral (`runtime.Handler`): this room imports no grpc, and the simulation
runs it as it is.
"""

from .admin_service import AdminService
from .configs import NodeSetting
from .log_service import LogLimits, LogService
from .mirror_service import MirrorService
from .quorum_service import QuorumMember, QuorumService
from .transactions_service import TransactionsService

__all__ = [
    "AdminService",
    "LogLimits",
    "LogService",
    "MirrorService",
    "NodeSetting",
    "QuorumMember",
    "QuorumService",
    "TransactionsService",
]
