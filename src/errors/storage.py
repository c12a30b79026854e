"""What a disk and a data directory can say."""

from .base import QuorumlogError


class StorageError(
    QuorumlogError, code=56, name="STORAGE_ERROR", status="UNAVAILABLE", retriable=True
):
    """The disk refused a write, a read or a sync; the log takes no more appends here. Mend the
    disk and restart the node."""


class DiskFull(
    QuorumlogError, code=56, name="DISK_FULL", status="RESOURCE_EXHAUSTED", retriable=True
):
    """No space is left; nothing was stored and the log stays usable. Free space and repeat."""


class DirectoryInUse(QuorumlogError, name="DIRECTORY_IN_USE", status="FAILED_PRECONDITION"):
    """Another process holds the data directory's lock. Stop that node, or name another folder."""


class DirectoryNotFormatted(
    QuorumlogError, name="DIRECTORY_NOT_FORMATTED", status="FAILED_PRECONDITION"
):
    """The data directory has no meta.properties. Run `quorumlog storage format` first."""


class DirectoryMismatch(QuorumlogError, name="DIRECTORY_MISMATCH", status="FAILED_PRECONDITION"):
    """The data directory belongs to another cluster or node. Name the right one; an empty folder
    can be formatted."""


class DirectoryUnusable(QuorumlogError, name="DIRECTORY_UNUSABLE", status="PERMISSION_DENIED"):
    """The data directory cannot be created, read or written; says why. Mend its permissions, or
    name another folder."""
