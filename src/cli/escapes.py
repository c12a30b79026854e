"""Escapes for bytes in command-line arguments: \\n, \\t, \\r, \\0, \\\\, \\xHH."""

import re

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def unescape(text: str) -> str:
    r"""Return the text with \n, \t, \r, \0, \\ and \xHH replaced by their characters. Raise
    ValueError for another escape. `encode_escaped` encodes \xHH above 7F as that single byte."""

    def character(match: re.Match[str]) -> str:
        name = match[1]
        if len(name) == 3:
            code = int(name[1:], 16)
            return chr(code) if code < 0x80 else chr(0xDC00 + code)
        if name not in _NAMED:
            raise ValueError(
                f"\\{name} is not an escape; valid escapes are \\n \\t \\r \\0 \\\\ \\xHH"
            )
        return _NAMED[name]

    return _ESCAPE.sub(character, text)


def encode_escaped(text: str) -> bytes:
    """Return the bytes of a text that `unescape` returned."""
    return text.encode("utf-8", "surrogateescape")
