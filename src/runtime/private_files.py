"""Files and folders that other users of this machine must not change: owner, mode, replacement."""

import os
import stat
from pathlib import Path

from ..errors import DirectoryUnusable

FOLDER_MODE = 0o755
FILE_MODE = 0o644


def foreign_owner(*statuses: os.stat_result) -> int | None:
    """Return the first owner, a user id, that is neither root nor the user of this process.

    None: there is none, or the system has no user ids (Windows).
    """
    if not hasattr(os, "geteuid"):
        return None
    own = (0, os.geteuid())
    return next((status.st_uid for status in statuses if status.st_uid not in own), None)


def is_writable_by_others(status: os.stat_result) -> bool:
    """Return True if the group or every user can write. Always False without user ids."""
    return hasattr(os, "geteuid") and bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def check_owner(path: str) -> None:
    """Raise DirectoryUnusable if a folder, or the link at its path, belongs to another user than
    root and the user of this process. A missing folder is accepted."""
    try:
        owner = foreign_owner(os.lstat(path), os.stat(path))
    except FileNotFoundError:
        return
    if owner is not None:
        raise _foreign(path, owner)


def check_private(path: str, opened: os.stat_result | None = None) -> None:
    """Raise DirectoryUnusable for a file or folder that another user owns or can write to.

    `opened` is the status of an open file of this path; a check by the path alone could see another
    file than the later open. Raises FileNotFoundError.
    """
    status = os.stat(path) if opened is None else opened
    owner = foreign_owner(os.lstat(path), status)
    if owner is not None:
        raise _foreign(path, owner)
    if is_writable_by_others(status):
        raise DirectoryUnusable(
            f"{path}: other users can write to it (mode {stat.S_IMODE(status.st_mode):o}); run:"
            f" chmod -R go-w {path}"
        )


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Replace a file at once, with these permissions from its creation. A link is replaced, not
    followed. Raises OSError."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(path)
    except OSError:  # such as a full disk
        temporary.unlink(missing_ok=True)
        raise


def _foreign(path: str, owner: int) -> DirectoryUnusable:
    return DirectoryUnusable(
        f"{path}: it belongs to {_user_text(owner)}, and this process runs as"
        f" {_user_text(os.geteuid())}; use another path, run the command as its owner, or change"
        f" the owner if you trust the content: chown -Rh {os.geteuid()} {path}"
    )


def _user_text(user_id: int) -> str:
    """Return "user NAME (ID)", or "user ID" if the id has no name."""
    import pwd  # not on Windows

    try:
        return f"user {pwd.getpwuid(user_id).pw_name} ({user_id})"
    except KeyError:
        return f"user {user_id}"
