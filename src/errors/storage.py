"""Errors of disks and data directories."""

from .base import RetriableError, StorageError


class DiskFailed(StorageError, RetriableError, code=56, name="STORAGE_ERROR", status="UNAVAILABLE"):
    """A disk write, read or sync failed; the log accepts no more appends. Repair the disk and
    restart the node."""


class DiskFull(
    StorageError, RetriableError, code=56, name="DISK_FULL", status="RESOURCE_EXHAUSTED"
):
    """No disk space is left; nothing was stored and the log stays usable. Free space and retry."""


class DirectoryInUse(StorageError, name="DIRECTORY_IN_USE", status="FAILED_PRECONDITION"):
    """Another process has the data directory's lock. Stop that node, or use another folder."""


class DirectoryNotFormatted(
    StorageError, name="DIRECTORY_NOT_FORMATTED", status="FAILED_PRECONDITION"
):
    """The data directory has no meta.properties. Run `quorumlog storage format` first."""


class DirectoryMismatch(StorageError, name="DIRECTORY_MISMATCH", status="FAILED_PRECONDITION"):
    """The data directory belongs to another cluster or node. Use the right one, or format an empty
    folder."""


class DirectoryUnusable(StorageError, name="DIRECTORY_UNUSABLE", status="PERMISSION_DENIED"):
    """The data directory cannot be created, read or written; the message has the reason. Correct
    its permissions, or use another folder."""
