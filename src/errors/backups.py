"""Errors of backups and their stores."""

from .base import QuorumlogError, RetriableError


class BackupNotFound(QuorumlogError, name="BACKUP_NOT_FOUND", status="NOT_FOUND"):
    """The store has no such backup, or no backup at all. List its backups with `quorumlog backup
    list`."""


class BackupDamaged(QuorumlogError, name="BACKUP_DAMAGED", status="DATA_LOSS"):
    """An object of a backup is missing, damaged or malformed. Restore another backup, and find the
    damage with `quorumlog backup verify`."""


class BackupIncomplete(QuorumlogError, name="BACKUP_INCOMPLETE", status="FAILED_PRECONDITION"):
    """A backup lacks topics, or a restore could not restore everything; the message has what is
    missing, and the reason."""


class StoreUnavailable(RetriableError, name="STORE_UNAVAILABLE", status="UNAVAILABLE"):
    """The store of backups cannot be reached, or refused the request; the message has the reason.
    Correct it and run the command again: a backup continues from the objects that are stored."""
