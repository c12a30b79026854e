"""Compression codecs: framings of other clients, and bounded decompression bombs."""

import struct
import tracemalloc

import cramjam
import pytest

from quorumlog.errors import CorruptionError, MessageTooLarge, UnsupportedCompression
from quorumlog.records.compression import LEVELS, Codec, codec_named, codec_of, compress, decompress

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"the log keeps what it acknowledged; " * 5000


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"a", TEXT, bytes(range(256)) * 700])
def test_compression_round_trip(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_a_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert len(decompress(codec, packed, len(TEXT))) == len(TEXT)
    with pytest.raises(MessageTooLarge, match=f"more than {len(TEXT) - 1} bytes"):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bomb_is_refused_without_decompressing_it(codec: Codec) -> None:
    """64 MiB of zeros with a limit of 1 MiB: not much more than the limit is allocated."""
    bomb = compress(codec, bytes(64 * 1024 * 1024))
    tracemalloc.start()
    with pytest.raises(MessageTooLarge):
        decompress(codec, bomb, 1024 * 1024)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_of_many_frames_is_refused(codec: Codec) -> None:
    """The last of many frames declares few bytes; the sum counts."""
    frame = compress(codec, bytes(512 * 1024))
    with pytest.raises(MessageTooLarge):
        decompress(codec, frame * 8, 1024 * 1024)


def test_a_zstd_frame_that_declares_a_large_window_is_refused() -> None:
    frame = bytes.fromhex("28b52ffd00f8")  # no content size, a window of 2^41 bytes
    with pytest.raises(MessageTooLarge):
        decompress(Codec.ZSTD, frame + bytes(20), 1024)


@pytest.mark.parametrize(
    ("codec", "frame"),
    [
        (Codec.LZ4, "04224d18 68 40 0000000f00000000 00 00000000"),
        (Codec.ZSTD, "28b52ffd a0 0000000f 010000"),
    ],
)
def test_a_few_bytes_that_declare_many_cost_no_memory(codec: Codec, frame: str) -> None:
    """240 MB are declared: no frame of this size can reach that."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError):
            decompress(codec, bytes.fromhex(frame), 256 << 20)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_snappy_block_that_declares_more_than_it_can_hold_is_corrupt() -> None:
    with pytest.raises(CorruptionError, match="impossible"):
        decompress(Codec.SNAPPY, bytes.fromhex("ffffffff0f") + b"abc", 2**40)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_data_cut_anywhere_is_corrupt_and_never_shorter_data(codec: Codec) -> None:
    packed = compress(codec, TEXT[:3000])
    for size in range(1, len(packed)):
        if codec is Codec.SNAPPY and size == 16:
            continue  # the header of the framing alone is an empty stream
        with pytest.raises(CorruptionError):
            decompress(codec, packed[:size], 10_000)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_garbage_is_corrupt(codec: Codec) -> None:
    with pytest.raises((CorruptionError, MessageTooLarge)):
        decompress(codec, bytes(range(200, 255)), 10_000)


def test_snappy_is_written_in_the_framing_of_the_java_library() -> None:
    data = bytes(70_000)
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16].hex() == "82534e41505059000000000100000001"
    position, inflated = 16, b""
    while position < len(packed):
        size = struct.unpack_from(">i", packed, position)[0]
        block = packed[position + 4 : position + 4 + size]
        inflated += bytes(cramjam.snappy.decompress_raw(block))
        position += 4 + size
    assert inflated == data


def test_raw_snappy_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert bytes(decompress(Codec.SNAPPY, raw, len(TEXT))) == TEXT


def test_lz4_frames_have_independent_blocks() -> None:
    """The Java reader refuses linked blocks (bit 5 of FLG) and supports only version 01."""
    packed = compress(Codec.LZ4, TEXT)
    assert packed[:4].hex() == "04224d18"
    assert packed[4] & 0xE0 == 0x60


def test_gzip_and_zstd_start_with_their_magic() -> None:
    assert compress(Codec.GZIP, TEXT)[:3].hex() == "1f8b08"
    assert compress(Codec.ZSTD, TEXT)[:4].hex() == "28b52ffd"


def test_codecs_are_found_by_number_and_by_name() -> None:
    assert [codec_of(number) for number in range(5)] == list(Codec)
    assert [codec_named(name) for name in ("none", "gzip", "Snappy", "lz4", "zstd")] == list(Codec)
    with pytest.raises(UnsupportedCompression, match="codec 7 is unknown"):
        codec_of(7)
    with pytest.raises(UnsupportedCompression, match="'brotli' is unknown; codecs: none, gzip"):
        codec_named("brotli")


def test_nothing_is_copied_without_compression() -> None:
    data = bytearray(b"abc")
    view = decompress(Codec.NONE, data, 3)
    data[0] = 0x78
    assert bytes(view) == b"xbc"


@pytest.mark.parametrize("codec", LEVELS)
def test_higher_level_is_no_larger_and_decompresses_to_the_same(codec: Codec) -> None:
    data = TEXT + bytes(range(256)) * 40
    least, most = LEVELS[codec][0], LEVELS[codec][-1]
    weak, strong = compress(codec, data, least), compress(codec, data, most)
    assert len(strong) <= len(weak)
    assert strong != weak or codec is Codec.LZ4
    assert bytes(decompress(codec, strong, len(data))) == data


def test_lz4_uses_its_fastest_level_by_default() -> None:
    data = b"".join(b"flight %d of many, " % (number % 1000) for number in range(10_000))
    assert compress(Codec.LZ4, data) == compress(Codec.LZ4, data, 1) != compress(Codec.LZ4, data, 4)
