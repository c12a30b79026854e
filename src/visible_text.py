"""Text for people: control characters, directions of writing and invisible characters as escapes.

Names and records come from any client. Unescaped they could move a terminal's cursor, or show
another order of characters than the stored one.
"""

import json
import re
import shlex
from typing import Final

_HIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # no glyph
    "\ud800-\udfff"  # surrogates: bytes that were not UTF-8
    "\U000e0000-\U000e0fff]"  # tags and selectors
)
_NAMED: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


def visible(text: str) -> str:
    """Return the text with each hidden character as an escape: \\n, \\x1b, \\u202e."""
    return _HIDDEN.sub(_escape, text)


def visible_json(text: str) -> str:
    """Return a line of JSON with each hidden character as an escape of JSON: the same value."""
    return _HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def shell_word(text: str) -> str:
    """Return the text as one word of a command for bash or zsh, each hidden character as an escape
    of $'...': the command can be pasted, and means the same name."""
    if _HIDDEN.search(text) is None:
        return shlex.quote(text)
    plain = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_HIDDEN.sub(_escape_of_shell, plain)}'"


def _escape_of_shell(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"  # \x80 would be a byte


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def count_text(count: int, noun: str) -> str:
    """Return "1 record", "2,000 records"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration_text(ms: float) -> str:
    """Return a duration in its largest two units: "850 ms", "1 h 34 min"."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = int(ms // 1000)
    if seconds < 60:
        return f"{seconds} s"
    for high, low, unit_s in (("d", "h", 86_400), ("h", "min", 3_600), ("min", "s", 60)):
        if seconds >= unit_s:
            below = {"d": 3_600, "h": 60, "min": 1}[high]
            rest = seconds % unit_s // below
            return f"{seconds // unit_s:,} {high}" + (f" {rest} {low}" if rest else "")
    raise AssertionError("unreachable")
