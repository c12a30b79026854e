"""Compressed data of other producers, written by their own libraries, is read and checked."""

import gzip
import io
import struct
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import snappy
import zstandard
from crc32c import crc32c

from quorumlog.errors import CorruptionError, MessageTooLarge
from quorumlog.records import Codec, Record, ValidationMode, decode_all, encode_batch
from quorumlog.records.batch import parse_header
from quorumlog.records.compression import compress, decompress
from quorumlog.records.validate import validate_batch, with_records

TEXT = b"".join(b"line %d of what other people wrote; " % number for number in range(9_000))
HALF = len(TEXT) // 2
SKIPPED = struct.pack("<II", 0x184D2A53, 6) + b"nobody"  # skippable frames of lz4 and zstd


def gzip_named(data: bytes) -> bytes:
    """A member with a file name and time in its header, as the command line tool writes it."""
    output = io.BytesIO()
    with gzip.GzipFile("a name", "wb", fileobj=output, mtime=1_700_000_000) as file:
        file.write(data)
    return output.getvalue()


def gzip_stored(data: bytes) -> bytes:
    """Level 0: stored without compression."""
    return gzip.compress(data, 0)


def lz4_frame(data: bytes, **options: int | bool) -> bytes:
    options = {"store_size": False, "block_size": lz4.frame.BLOCKSIZE_MAX64KB} | options
    return bytes(lz4.frame.compress(data, **options))


def zstd_frame(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def zstd_streamed(data: bytes, *, write_checksum: bool = False) -> bytes:
    """As in the Java producer: the size is unknown at the start."""
    stream = zstandard.ZstdCompressor(write_checksum=write_checksum).compressobj()
    return stream.compress(data) + stream.flush()


def snappy_raw(data: bytes) -> bytes:
    return bytes(snappy.compress(data))


def snappy_framed(data: bytes, block: int = 32 * 1024) -> bytes:
    """Build a snappy-java stream with blocks of any size; some clients use other version fields."""
    parts = [b"\x82SNAPPY\0", struct.pack(">ii", 2, 1)]
    for start in range(0, len(data), block):
        packed = snappy_raw(data[start : start + block])
        parts += [struct.pack(">i", len(packed)), packed]
    return b"".join(parts)


FRAMINGS: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "gzip of python": (Codec.GZIP, gzip.compress),
    "gzip with a name": (Codec.GZIP, gzip_named),
    "gzip stored": (Codec.GZIP, gzip_stored),
    "gzip, two members": (Codec.GZIP, lambda d: gzip.compress(d[:HALF]) + gzip.compress(d[HALF:])),
    "gzip, the last one empty": (Codec.GZIP, lambda d: gzip.compress(d) + gzip.compress(b"")),
    "lz4, linked blocks": (Codec.LZ4, lambda d: lz4_frame(d, block_linked=True)),
    "lz4, independent blocks": (Codec.LZ4, lambda d: lz4_frame(d, block_linked=False)),
    "lz4, large blocks": (
        Codec.LZ4,
        lambda d: lz4_frame(d, block_size=lz4.frame.BLOCKSIZE_MAX4MB),
    ),
    "lz4, every checksum": (
        Codec.LZ4,
        lambda d: lz4_frame(d, block_linked=True, content_checksum=True, block_checksum=True),
    ),
    "lz4, size declared": (Codec.LZ4, lambda d: lz4_frame(d, store_size=True)),
    "lz4, two frames": (Codec.LZ4, lambda d: lz4_frame(d[:HALF]) + lz4_frame(d[HALF:])),
    "lz4, sizes of two declared": (
        Codec.LZ4,
        lambda d: lz4_frame(d[:99], store_size=True) + lz4_frame(d[99:], store_size=True),
    ),
    "lz4, a frame to skip": (Codec.LZ4, lambda d: SKIPPED + lz4_frame(d) + SKIPPED),
    "zstd, size declared": (Codec.ZSTD, zstd_frame),
    "zstd, no size": (Codec.ZSTD, zstd_streamed),
    "zstd, checksum": (Codec.ZSTD, lambda d: zstd_streamed(d, write_checksum=True)),
    "zstd, two frames": (Codec.ZSTD, lambda d: zstd_frame(d[:99]) + zstd_frame(d[99:])),
    "zstd, two without sizes": (
        Codec.ZSTD,
        lambda d: zstd_streamed(d[:HALF]) + zstd_streamed(d[HALF:]),
    ),
    "zstd, a frame to skip": (Codec.ZSTD, lambda d: SKIPPED + zstd_frame(d) + SKIPPED),
    "snappy, raw": (Codec.SNAPPY, snappy_raw),
    "snappy, framed": (Codec.SNAPPY, snappy_framed),
    "snappy, framed in one": (Codec.SNAPPY, lambda d: snappy_framed(d, len(d))),
    "snappy, framed small": (Codec.SNAPPY, lambda d: snappy_framed(d, 1_000)),
    "snappy, two streams": (
        Codec.SNAPPY,
        lambda d: snappy_framed(d[:HALF]) + snappy_framed(d[HALF:]),
    ),
}
each_framing = pytest.mark.parametrize("name", FRAMINGS)


@each_framing
def test_framing_is_read(name: str) -> None:
    codec, pack = FRAMINGS[name]
    packed = pack(TEXT)
    assert bytes(decompress(codec, packed, len(TEXT))) == TEXT
    assert bytes(decompress(codec, memoryview(packed), 4 * len(TEXT))) == TEXT


@each_framing
def test_framing_decompresses_within_the_limit(name: str) -> None:
    codec, pack = FRAMINGS[name]
    with pytest.raises(MessageTooLarge, match=f"more than {len(TEXT) - 1} bytes"):
        decompress(codec, pack(TEXT), len(TEXT) - 1)


@each_framing
def test_a_batch_in_a_framing_is_validated_and_read(name: str) -> None:
    codec, pack = FRAMINGS[name]
    values = [TEXT[start : start + 999] for start in range(0, 50_000, 999)]
    plain = encode_batch([Record(0, 5, None, value) for value in values])
    packed = pack(plain[61:])
    batch = sealed_as(with_records(parse_header(plain), packed, codec=Codec.NONE), codec)
    validate_batch(batch, 0, parse_header(batch), mode=ValidationMode.FULL, max_bytes=1 << 20)
    assert [record.value for record in decode_all(batch)] == values


def sealed_as(batch: bytes, codec: Codec) -> bytes:
    """Return the batch with `codec` in its attributes."""
    changed = bytearray(batch)
    changed[22] = codec
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


# --- checksums -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "packed", "at"),
    [
        (Codec.GZIP, gzip.compress(TEXT), -8),  # CRC-32 of the decompressed bytes
        (Codec.GZIP, gzip.compress(TEXT), -1),  # their length
        (Codec.GZIP, gzip.compress(TEXT) + gzip.compress(TEXT), -8),
        (Codec.LZ4, lz4_frame(TEXT, content_checksum=True), -1),
        (Codec.LZ4, lz4_frame(TEXT), 6),  # of the frame's header
        (Codec.LZ4, lz4_frame(TEXT[:70], block_checksum=True), -5),  # before the end mark
        (Codec.ZSTD, zstd_streamed(TEXT, write_checksum=True), -1),
    ],
)
def test_a_checksum_inside_the_compressed_data_is_checked(
    codec: Codec, packed: bytes, at: int
) -> None:
    wrong = bytearray(packed)
    wrong[at] ^= 1
    assert bytes(decompress(codec, packed, 1 << 22))[: len(TEXT)].startswith(TEXT[:70])
    with pytest.raises((CorruptionError, MessageTooLarge)):
        decompress(codec, wrong, 1 << 22)


@each_framing
def test_bytes_behind_the_end_are_refused(name: str) -> None:
    """The last bytes of gzip data are its length, so extra bytes may be a length that is too
    large."""
    codec, pack = FRAMINGS[name]
    with pytest.raises((CorruptionError, MessageTooLarge)):
        decompress(codec, pack(TEXT) + b"\x01\x02\x03", 1 << 20)


def test_a_second_snappy_stream_that_ends_in_its_header_is_corrupt() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    with pytest.raises(CorruptionError, match="inside its header"):
        decompress(Codec.SNAPPY, packed + packed[:12], 1 << 20)


def test_many_streams_of_snappy_are_one_bomb() -> None:
    packed = compress(Codec.SNAPPY, bytes(60_000))
    with pytest.raises(MessageTooLarge):
        decompress(Codec.SNAPPY, packed * 10, 500_000)


# --- encoding ------------------------------------------------------------------------------------


def test_compressed_data_is_read_by_the_libraries_of_the_codecs() -> None:
    assert zlib.decompress(compress(Codec.GZIP, TEXT), wbits=31) == TEXT
    assert lz4.frame.decompress(compress(Codec.LZ4, TEXT)) == TEXT
    assert zstandard.ZstdDecompressor().decompress(compress(Codec.ZSTD, TEXT)) == TEXT
    packed = compress(Codec.SNAPPY, TEXT)
    size = struct.unpack_from(">i", packed, 16)[0]
    assert snappy.decompress(packed[20 : 20 + size]) == TEXT[: 32 * 1024]
