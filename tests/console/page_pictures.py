"""`python -m tests.console.page_pictures FOLDER`: the console's pictures of docs/console.md.

They are the upper parts of the screenshots of `test_pictures.py`, compressed again: Chromium
compresses for speed.
"""

import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.console.browser import PICTURES

SHOWN: Final = {
    "overview-light-1280": 640,
    "topic-dark-1280": 725,
    "records-search-light-1280": 640,
    "group-light-1280": 505,
}
"""Screenshots with the height that a page shows, in pixels."""

SIZE_MAX: Final = 60_000
SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
CHANNELS: Final = {2: 3, 6: 4}  # of the colour types RGB and RGBA
HEADER: Final = struct.Struct(">IIBBBBB")  # width, height, depth, colour type and three methods


def cropped(picture: bytes, height_max: int) -> bytes:
    """Return the upper part of a PNG file of 8 bits a channel. A row of pixels is filtered by the
    row above it only, so the first rows stay as they are."""
    chunks = list(read_chunks(picture))
    width, height, depth, colour, *methods = HEADER.unpack(chunks[0][1])
    assert depth == 8, f"{depth} bits a channel"
    assert not any(methods), f"interlaced, or unknown methods: {methods}"
    rows = zlib.decompress(b"".join(content for kind, content in chunks if kind == b"IDAT"))
    shown = min(height, height_max)
    row_size = 1 + width * CHANNELS[colour]
    header = HEADER.pack(width, shown, depth, colour, *methods)
    data = zlib.compress(rows[: shown * row_size], 9)
    parts = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return SIGNATURE + b"".join(chunk(kind, content) for kind, content in parts)


def read_chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and content of each chunk of a PNG file."""
    assert picture.startswith(SIGNATURE), "not a PNG file"
    position = len(SIGNATURE)
    while position < len(picture):
        size, kind = struct.unpack_from(">I4s", picture, position)
        yield kind, picture[position + 8 : position + 8 + size]
        position += size + 12


def chunk(kind: bytes, content: bytes) -> bytes:
    """Return the bytes of a chunk, with its size and checksum."""
    body = kind + content
    return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))


def main() -> int:
    """Write the pictures, and return the exit code."""
    if len(sys.argv) != 2:
        print("usage: python -m tests.console.page_pictures FOLDER", file=sys.stderr)
        return 2
    for name, height in SHOWN.items():
        picture = cropped((PICTURES / f"{name}.png").read_bytes(), height)
        assert len(picture) <= SIZE_MAX, f"{name}: {len(picture)} bytes; the limit is {SIZE_MAX}"
        page = name.rsplit("-", 2)[0].replace("-", "_")
        (Path(sys.argv[1]) / f"console_{page}.png").write_bytes(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
