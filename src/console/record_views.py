"""Contents of records as text, JSON and hexadecimal, each of bounded size.

JSON is indented without conversion: numbers keep every digit, and its nesting costs no stack.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

from .record_filter import JSON_BYTES_MAX

TEXT_BYTES: Final = 64 * 1024  # of one view
HEX_BYTES: Final = 4 * 1024
PREVIEW_BYTES: Final = 160
INDENT_MAX: Final = 40  # levels; deeper ones are not indented further
VIEWS: Final = {"text": "Text", "json": "JSON", "hex": "Hexadecimal"}

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentView:
    """A content, or its beginning, as text."""

    text: str
    shown: int  # bytes of the content in the view
    note: str = ""  # the reason for another view than the chosen one


def view_of(content: bytes, kind: str) -> ContentView:
    """Return a content in one of VIEWS; as text if it is not JSON."""
    if kind == "hex":
        return ContentView(
            text=hexadecimal(content[:HEX_BYTES]), shown=min(len(content), HEX_BYTES)
        )
    note = ""
    if kind == "json":
        found = _json(content)
        if isinstance(found, ContentView):
            return found
        note = found
    part = beginning(content, TEXT_BYTES)
    if not note and not _is_utf8(part):
        note = "Not UTF-8: bytes that are not text are shown as \\xHH."
    return ContentView(text=text_of(part), shown=len(part), note=note)


def preview(content: bytes) -> str:
    """Return the beginning of a content as text, with an ellipsis if it is cut."""
    part = beginning(content, PREVIEW_BYTES)
    return text_of(part) + ("\N{HORIZONTAL ELLIPSIS}" if len(part) < len(content) else "")


def best_view(content: bytes | None) -> str:
    """Return the view to show first."""
    return "json" if content is not None and content[:1] in (b"{", b"[") else "text"


def text_of(content: bytes) -> str:
    """Return UTF-8 as text; other bytes as \\xHH."""
    return content.decode("utf-8", "backslashreplace")


def beginning(content: bytes, size: int) -> bytes:
    """Return at most `size` bytes, cut between two characters."""
    if len(content) <= size:
        return content
    end = size
    while end > size - 3 and content[end] & 0xC0 == 0x80:
        end -= 1
    return content[:end]


def hexadecimal(content: bytes) -> str:
    """Return lines of an offset, 16 bytes and their ASCII characters."""
    lines = []
    for start in range(0, len(content), 16):
        part = content[start : start + 16]
        pairs = part.hex(" ").ljust(47)
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{start:08x}  {pairs}  {characters}")
    return "\n".join(lines)


def _json(content: bytes) -> ContentView | str:
    """Return the indented JSON, or the reason why there is none."""
    if len(content) > JSON_BYTES_MAX:
        return f"Not formatted as JSON: larger than {JSON_BYTES_MAX // 1024:,} KiB."
    try:
        text = content.decode()
        json.loads(text)
    except RecursionError:
        return "Not formatted as JSON: nested too deeply."
    except ValueError:
        return "Not JSON."
    shown, is_whole = indent(text, TEXT_BYTES)
    return ContentView(
        text=shown,
        shown=len(content) if is_whole else min(len(content), TEXT_BYTES),
        note="" if is_whole else "The formatted text is cut.",
    )


def indent(text: str, limit: int) -> tuple[str, bool]:
    """Return valid JSON on indented lines, at most about `limit` characters, and True if it is
    whole."""
    parts: list[str] = []
    size = depth = 0
    last = ""
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in "}]":
            depth -= 1
        is_close, is_after_open = token in "}]", last in ("{", "[")
        if not is_after_open if is_close else is_after_open or last == ",":
            parts.append("\n" + "  " * min(depth, INDENT_MAX))
        parts.append(f"{token} " if token == ":" else token)
        size += len(parts[-1]) + 2 * min(depth, INDENT_MAX)
        if token in "{[":
            depth += 1
        if size > limit:
            return "".join(parts)[:limit], False
        last = token
    return "".join(parts), True


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
