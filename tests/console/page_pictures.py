"""`python -m tests.console.page_pictures FOLDER`: the console's pictures of docs/console.md.

They are the upper parts of the screenshots of `test_pictures.py` with a palette of 256 colours,
which a page of text and flat surfaces does not exceed by much, for a third of the bytes.
"""

import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.console.browser import PICTURES

SHOWN: Final = {
    "overview-light-1280": 450,
    "topic-dark-1280": 725,
    "records-search-light-1280": 640,
    "group-light-1280": 505,
}
"""Screenshots with the height that a page shows, in pixels."""

SIZE_MAX: Final = 60_000
SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
HEADER: Final = struct.Struct(">IIBBBBB")  # width, height, depth, colour type and three methods
RGB, INDEXED = 2, 3  # colour types
COLOURS_MAX: Final = 256


def page_picture(screenshot: bytes, height_max: int) -> bytes:
    """Return the upper part of a PNG file of Chromium, with a palette."""
    chunks = list(read_chunks(screenshot))
    width, height, depth, colour, *methods = HEADER.unpack(chunks[0][1])
    assert (depth, colour) == (8, RGB), f"{depth} bits a channel, colour type {colour}"
    assert not any(methods), f"interlaced, or unknown methods: {methods}"
    height = min(height, height_max)
    filtered = zlib.decompress(b"".join(content for kind, content in chunks if kind == b"IDAT"))
    rows = list(pixels(filtered[: height * (1 + 3 * width)], width))
    palette, indexes = indexed(rows)
    data = b"".join(b"\0" + indexes[at : at + width] for at in range(0, len(indexes), width))
    parts = (
        (b"IHDR", HEADER.pack(width, height, depth, INDEXED, *methods)),
        (b"PLTE", palette),
        (b"IDAT", zlib.compress(data, 9)),
        (b"IEND", b""),
    )
    return SIGNATURE + b"".join(chunk(kind, content) for kind, content in parts)


def read_chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and content of each chunk of a PNG file."""
    assert picture.startswith(SIGNATURE), "not a PNG file"
    position = len(SIGNATURE)
    while position < len(picture):
        size, kind = struct.unpack_from(">I4s", picture, position)
        yield kind, picture[position + 8 : position + 8 + size]
        position += size + 12


def pixels(filtered: bytes, width: int) -> Iterator[bytes]:
    """Yield the rows of an RGB picture without their filters (PNG specification, section 9)."""
    above = bytes(3 * width)
    for start in range(0, len(filtered), 3 * width + 1):
        kind = filtered[start]
        row = bytearray(filtered[start + 1 : start + 1 + 3 * width])
        for at in range(3 * width):
            left, corner = (row[at - 3], above[at - 3]) if at >= 3 else (0, 0)
            row[at] = (row[at] + predicted(kind, left, above[at], corner)) & 255
        above = bytes(row)
        yield above


def predicted(kind: int, left: int, up: int, corner: int) -> int:
    """Return the value that a filter predicts for a byte from its neighbours."""
    if kind == 4:  # Paeth
        guess = left + up - corner
        return min((left, up, corner), key=lambda value: abs(guess - value))
    return (0, left, up, (left + up) // 2)[kind]


def indexed(rows: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return the palette of a picture, and the index of each pixel. A rare colour becomes the
    nearest one of the palette."""
    colours = [row[at : at + 3] for row in rows for at in range(0, len(row), 3)]
    counted = Counter(colours)
    palette = [colour for colour, _ in counted.most_common(COLOURS_MAX)]
    index = {colour: at for at, colour in enumerate(palette)}
    for colour in counted.keys() - index.keys():
        index[colour] = index[min(palette, key=partial(distance, colour))]
    return b"".join(palette), bytes(index[colour] for colour in colours)


def distance(one: bytes, other: bytes) -> int:
    """Return the square of the distance of two colours."""
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


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
        picture = page_picture((PICTURES / f"{name}.png").read_bytes(), height)
        assert len(picture) <= SIZE_MAX, f"{name}: {len(picture)} bytes; the limit is {SIZE_MAX}"
        page = name.rsplit("-", 2)[0].replace("-", "_")
        (Path(sys.argv[1]) / f"console_{page}.png").write_bytes(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
