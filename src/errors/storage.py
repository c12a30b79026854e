"""Errors of disks and data directories."""

from .base import QuorumlogError


class DiskFailed(
    QuorumlogError, code=56, name="STORAGE_ERROR", status="UNAVAILABLE", retriable=True
):
    """A disk write, read or sync failed; the log accepts no more appends. Repair the disk and
    restart the node."""


class DiskFull(
    QuorumlogError, code=56, name="DISK_FULL", status="RESOURCE_EXHAUSTED", retriable=True
):
    """No disk space is left; nothing was stored and the log stays usable. Free space and retry."""


class DirectoryInUse(QuorumlogError, name="DIRECTORY_IN_USE", status="FAILED_PRECONDITION"):
    """Another process has the data directory's lock. Stop that node, or use another folder."""


class DirectoryNotFormatted(
    QuorumlogError, name="DIRECTORY_NOT_FORMATTED", status="FAILED_PRECONDITION"
):
    """The data directory has no meta.properties. Run `quorumlog storage format` first."""


class DirectoryMismatch(QuorumlogError, name="DIRECTORY_MISMATCH", status="FAILED_PRECONDITION"):
    """The data directory belongs to another cluster or node. Use the right one, or format an empty
    folder."""


class DirectoryUnusable(QuorumlogError, name="DIRECTORY_UNUSABLE", status="PERMISSION_DENIED"):
    """The data directory cannot be created, read or written; the message has the reason. Correct
    its permissions, or use another folder."""
