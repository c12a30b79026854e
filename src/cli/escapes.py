"""How bytes that a command line cannot carry are written on it: \\n, \\t, \\0, \\xHH."""

import re

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def unescape(text: str) -> str:
    r"""Return text with \n, \t, \r, \0, \\ and \xHH as the characters that they stand for; raises
    ValueError for another escape. \xHH above 7F is that byte, as `encode_escaped` writes it."""

    def character(match: re.Match[str]) -> str:
        name = match[1]
        if len(name) == 3:
            code = int(name[1:], 16)
            return chr(code) if code < 0x80 else chr(0xDC00 + code)
        if name not in _NAMED:
            raise ValueError(f"\\{name} is no escape: there are \\n \\t \\r \\0 \\\\ \\xHH")
        return _NAMED[name]

    return _ESCAPE.sub(character, text)


def encode_escaped(text: str) -> bytes:
    """Return the bytes of a text that `unescape` made."""
    return text.encode("utf-8", "surrogateescape")
