"""The five codecs of a record batch, with bounded inflation.

This module defines the codec numbers and the byte framings of Kafka's clients: gzip (RFC 1952),
snappy in the framing of the Java library `snappy-java` (a raw block is read too), lz4 frames with
independent blocks (the Java reader requires them), zstd frames. The reader accepts everything the
formats allow: consecutive gzip members, frames or snappy streams, skippable frames, linked lz4
blocks, sizes declared or not. Checksums are checked if present. `cramjam` implements the codecs; it
releases the GIL except during lz4 compression.

Compressed input is not trusted: each inflation writes into a buffer no larger than the caller's
limit, and declared sizes are checked before an allocation.

The library is loaded at the first compressed batch: it takes 1.5 MB.
"""

from enum import IntEnum
from struct import Struct
from typing import Any, Final, TypeAlias

from ..errors import CorruptionError, MessageTooLarge, UnsupportedCompression

Buffer: TypeAlias = bytes | bytearray | memoryview

INFLATE_LIMIT: Final = 256 * 1024 * 1024
"""Default limit of a reader, in bytes, of one inflated batch. Our producers limit batches before
compression and stay far below."""


class Codec(IntEnum):
    """Codec of a batch: the low three bits of its attributes. The numbers are stored; do not change
    them."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def codec_of(attributes: int) -> Codec:
    """Return the codec of a batch's attributes; raises UnsupportedCompression (5, 6, 7)."""
    try:
        return _CODECS[attributes & 0x07]
    except IndexError:
        raise UnsupportedCompression(
            f"codec {attributes & 0x07} is unknown; codecs: "
            + ", ".join(f"{codec.value} {codec.name.lower()}" for codec in Codec)
        ) from None


def codec_named(name: str) -> Codec:
    """Return the codec called `name` in configs (none, gzip, snappy, lz4, zstd)."""
    try:
        return Codec[name.upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise UnsupportedCompression(f"codec {name!r} is unknown; codecs: {known}") from None


LEVELS: Final[dict[Codec, range]] = {
    Codec.GZIP: range(1, 10),
    Codec.LZ4: range(1, 13),
    Codec.ZSTD: range(1, 23),
}
"""Levels of `compress` for codecs that have levels: a higher one is smaller and slower."""


LZ4_LEVEL: Final = 1
"""The fastest level. The library's default, 4, takes six times as long and saves a fifth of the
bytes."""


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return `data` compressed; the bytes themselves with `Codec.NONE`.

    `level` is one of `LEVELS`. None selects the codec's default, and for lz4 the fastest level.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(_library().gzip.compress(data, level))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data, LZ4_LEVEL if level is None else level)
        case Codec.ZSTD:
            return bytes(_library().zstd.compress(data, level))


def decompress(codec: Codec, data: Buffer, limit: int) -> memoryview:
    """Return `data` inflated, at most `limit` bytes.

    Raises MessageTooLarge if the result would exceed the limit (nothing larger than the limit is
    allocated) and CorruptionError if `data` is not valid for the codec.
    """
    match codec:
        case Codec.NONE:
            if len(data) > limit:
                raise _too_large(limit)
            return memoryview(data)
        case Codec.GZIP:
            return _inflate(codec, data, limit, hint=_gzip_size(data))
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit)
        case Codec.LZ4:
            return _inflate(codec, data, limit, hint=_lz4_size(data))
        case Codec.ZSTD:
            return _inflate(codec, data, limit, hint=_zstd_size(data, limit))


def _library() -> Any:
    import cramjam

    return cramjam


# --- bounded inflation of streams --------------------------------------------------------------

_CODECS: Final = tuple(Codec)
_RATIO_MAX: Final = {
    Codec.GZIP: 1032,  # 258 bytes from two bits
    Codec.LZ4: 255,  # a byte of a match's length
    Codec.ZSTD: 32 * 1024,  # a block of one repeated byte: 128 KiB from four bytes
}
"""The largest number of bytes that one compressed byte can represent."""
_FULL: Final = "failed to write whole buffer"  # cramjam's message when the output does not fit
_FIRST_GUESS_MIN: Final = 64 * 1024


def _inflate(codec: Codec, data: Buffer, limit: int, *, hint: int | None) -> memoryview:
    """Inflate into a buffer of the declared size, or a buffer that grows fourfold up to the limit.

    A declared size is only the first guess, bounded by the codec's highest ratio. The writer stops
    at the buffer's end.
    """
    if hint is not None and hint > limit:
        raise _too_large(limit)
    size = max(4 * len(data), _FIRST_GUESS_MIN) if hint is None else hint
    size = min(limit, size, max(_RATIO_MAX[codec] * len(data), _FIRST_GUESS_MIN))
    cramjam = _library()
    inflate_into = getattr(cramjam, codec.name.lower()).decompress_into
    while True:
        output = bytearray(max(size, 1))  # cramjam rejects an empty output
        try:
            count = inflate_into(data, output)
        except cramjam.DecompressionError as error:
            if _FULL not in str(error):
                raise CorruptionError(
                    f"{codec.name.lower()} data does not inflate: {error}"
                ) from None
            if size >= limit:
                raise _too_large(limit) from None
            size = min(limit, max(4 * size, _FIRST_GUESS_MIN))
        else:
            return memoryview(output)[:count]


def _too_large(limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"the batch inflates to more than {limit} bytes; send smaller batches")


_U32: Final = Struct("<I")
_U64: Final = Struct("<Q")


def _gzip_size(data: Buffer) -> int | None:
    """Return the length modulo 2^32 at the end of a gzip member (RFC 1952, ISIZE).

    It covers the last member only, so it is a guess. A value that deflate cannot reach is ignored.
    """
    if len(data) < 18:
        return None
    size = int(_U32.unpack_from(data, len(data) - 4)[0])
    return size if 0 < size <= _RATIO_MAX[Codec.GZIP] * len(data) else None


def _lz4_size(data: Buffer) -> int | None:
    """Return the content size that an lz4 frame's header declares (bit 3 of FLG), None without
    one."""
    if len(data) < 15 or _U32.unpack_from(data)[0] != 0x184D2204 or not data[4] & 0x08:
        return None
    return int(_U64.unpack_from(data, 6)[0])


_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_WINDOW_MAX: Final = (
    8 * 1024 * 1024
)  # every decoder must offer this much (RFC 8878, 3.1.1.1.2)


def _zstd_size(data: Buffer, limit: int) -> int | None:
    """Return the content size that a zstd frame declares, None without one (RFC 8878, 3.1.1.1).

    A frame also declares the window its decoder allocates. A window above both the limit and the 8
    MiB of every decoder raises MessageTooLarge. (A later frame may declare 128 MiB, the library's
    own bound; its pages are touched only as far as output is written.)
    """
    if len(data) < 6 or _U32.unpack_from(data)[0] != _ZSTD_MAGIC:
        return None
    descriptor = data[4]
    is_single_segment = bool(descriptor & 0x20)
    position = 5
    if not is_single_segment:
        exponent, mantissa = data[5] >> 3, data[5] & 0x07
        window = (1 << (10 + exponent)) * (8 + mantissa) // 8
        if window > max(limit, _ZSTD_WINDOW_MAX):
            raise _too_large(limit)
        position = 6
    position += (0, 1, 2, 4)[descriptor & 0x03]
    width = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    if width == 0 or len(data) < position + width:
        return None
    size = int.from_bytes(data[position : position + width], "little")
    return size + 256 if width == 2 else size


# --- lz4 ---------------------------------------------------------------------------------------


_LZ4_BLOCK: Final = 64 * 1024


def _compress_lz4(data: Buffer, level: int) -> bytes:
    """Compress to one frame of independent blocks: the Java reader rejects linked ones.

    One block per call: the compressor holds the GIL, and other threads run between the calls.
    """
    compressor = _library().lz4.Compressor(level, content_checksum=False, block_linked=False)
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK):
        compressor.compress(bytes(view[start : start + _LZ4_BLOCK]))  # it accepts only bytes
    return bytes(compressor.finish())


# --- snappy ------------------------------------------------------------------------------------

_SNAPPY_HEADER: Final = bytes.fromhex("82534e41505059000000000100000001")  # magic, version, least
_SNAPPY_MAGIC: Final = _SNAPPY_HEADER[:8]
_SNAPPY_BLOCK: Final = 32 * 1024
_BLOCK_SIZE: Final = Struct(">i")


def _compress_snappy(data: Buffer) -> bytes:
    """Frame raw snappy blocks of 32 KiB: 16 bytes of header, then (size, block) pairs."""
    view = memoryview(data)
    snappy = _library().snappy
    parts: list[bytes] = [_SNAPPY_HEADER]
    for start in range(0, len(view), _SNAPPY_BLOCK):
        block = bytes(snappy.compress_raw(view[start : start + _SNAPPY_BLOCK]))
        parts.append(_BLOCK_SIZE.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> memoryview:
    view = memoryview(data)
    if view[:8] != _SNAPPY_MAGIC:
        return _inflate_blocks([view], limit)
    blocks = []
    position = 0
    while position < len(view):
        if view[position : position + 8] == _SNAPPY_MAGIC:  # the start of a stream
            if len(view) - position < len(_SNAPPY_HEADER):
                raise CorruptionError("the snappy framing ends inside its header")
            position += len(_SNAPPY_HEADER)
            continue
        if len(view) - position < 4:
            raise CorruptionError("the snappy framing ends inside a block's size")
        size = _BLOCK_SIZE.unpack_from(view, position)[0]
        position += 4
        if not 0 <= size <= len(view) - position:
            raise CorruptionError(f"a snappy block of {size} bytes exceeds the framing")
        blocks.append(view[position : position + size])
        position += size
    return _inflate_blocks(blocks, limit)


def _inflate_blocks(blocks: list[memoryview], limit: int) -> memoryview:
    """Inflate raw snappy blocks in order; their declared sizes are summed first."""
    sizes = [_snappy_size(block) for block in blocks]
    if sum(sizes) > limit:
        raise _too_large(limit)
    output = memoryview(bytearray(sum(sizes)))
    cramjam = _library()
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        if size == 0 and len(block) == 1:
            continue  # the empty block; cramjam rejects an empty output
        try:
            count = cramjam.snappy.decompress_raw_into(block, output[position : position + size])
        except cramjam.DecompressionError as error:
            raise CorruptionError(f"snappy data does not inflate: {error}") from None
        position += count
    if position != len(output):
        raise CorruptionError(f"snappy declared {len(output)} bytes and inflated to {position}")
    return output


def _snappy_size(block: memoryview) -> int:
    """Return the size that a raw block declares at its start (a varint of at most 32 bits).

    A block that cannot reach its declared size (64 bytes from 3) is invalid, so a small block
    cannot cause a large allocation.
    """
    size = 0
    for index in range(min(5, len(block))):
        size |= (block[index] & 0x7F) << (7 * index)
        if block[index] < 0x80:
            if size > 64 * len(block):
                break
            return size
    raise CorruptionError("snappy data does not inflate: the declared size is impossible")
