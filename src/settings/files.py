"""Reading a file of settings: the only part of this room that waits for a disk."""

from ..errors import InvalidConfig


def read_settings(path: str, *, named_by: str = "") -> str:
    """Return the text of a file, without the mark that some editors put before it; raises
    InvalidConfig naming the file, who named it, and the remedy."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError:
        why = "it is not UTF-8 text"
    who = f" (named by {named_by})" if named_by else ""
    raise InvalidConfig(f"{path or repr(path)}{who} cannot be read: {why}; name a TOML file")
