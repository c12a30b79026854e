"""Reads a file of settings: the only disk access of this package."""

from collections.abc import Callable

from ..errors import InvalidConfig


def read_settings(
    path: str, *, named_by: str = "", check: Callable[[str, int], None] | None = None
) -> str:
    """Return the text of a file, without a byte order mark.

    `check` is called with the path and the open descriptor before the file is read, and may raise
    InvalidConfig. Raises InvalidConfig with the file, the setting that names it, and the remedy.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            if check is not None:
                check(path, file.fileno())
            return file.read()
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError:
        why = "it is not UTF-8 text"
    source = f" (named by {named_by})" if named_by else ""
    raise InvalidConfig(f"{path or repr(path)}{source} cannot be read: {why}; name a TOML file")
