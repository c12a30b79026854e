"""The fuzz targets, each with a corpus of valid inputs, made by code.

A target takes bytes and returns; it may raise QuorumlogError only. Its time and memory must be
bounded in proportion to its input.
"""

import random
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from quorumlog.errors import QuorumlogError
from quorumlog.records.arrow import decode_arrow
from quorumlog.records.batch import iterate_batches, parse_header
from quorumlog.records.codec import decode_all, decode_batch, encode_batch
from quorumlog.records.compression import Codec, compress, decompress
from quorumlog.records.control import MarkerType, encode_marker, parse_marker
from quorumlog.records.record import Record
from quorumlog.records.validate import ValidationMode, validate_batch
from quorumlog.simulation import SimWorld
from quorumlog.storage import FlushPolicy, LogConfig
from quorumlog.storage.checkpoints import (
    decode_epochs,
    decode_meta,
    decode_offsets,
    decode_partition_metadata,
    encode_epochs,
    encode_offsets,
)
from quorumlog.storage.index import SegmentIndex, decode_index
from quorumlog.storage.inspect.directory_check import check
from quorumlog.storage.inspect.dump import dump_file
from quorumlog.storage.producer_snapshot import decode_snapshot
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.segment import walk
from quorumlog.storage.transaction_index import decode_aborted

from . import kafka_targets, security_targets

INFLATE_LIMIT: Final = 1 << 20
Target = Callable[[bytes], object]


@dataclass(frozen=True)
class Fuzzed:
    """A target and its corpus of valid inputs."""

    name: str
    run: Target
    corpus: Sequence[bytes]


def survive(target: Target, content: bytes) -> None:
    """Run a target; accept a typed error, and let others through."""
    with suppress(QuorumlogError):
        target(content)


# --- corpora ------------------------------------------------------------------------------------


def batches() -> list[bytes]:
    records = [
        Record(
            offset=0,
            timestamp_ms=1_000 + number,
            key=None if number % 3 else b"key",
            value=None if number == 4 else b"value" * number,
            headers=(("name", b"x"), ("none", None)) if number % 2 else (),
        )
        for number in range(7)
    ]
    made = [encode_batch(records, codec=codec, leader_epoch=2) for codec in Codec]
    marker = encode_marker(
        producer_id=7, producer_epoch=1, kind=MarkerType.ABORT, coordinator_epoch=3, timestamp_ms=9
    )
    return [*made, made[0] + encode_batch(records, base_offset=7), marker]


def index_files() -> list[bytes]:
    """Split an .index and a .timeindex by the length of the first, which precedes them."""
    index = SegmentIndex(5, 10)
    for number in range(20):
        index.note(
            position=number * 100, size=100, last_offset=5 + number, max_timestamp=number * 7
        )
    index.seal()
    offsets = index.encode_offsets()
    return [struct.pack(">H", len(offsets)) + offsets + index.encode_times()]


# --- records ------------------------------------------------------------------------------------


def headers(content: bytes) -> object:
    parse_header(content)
    return list(iterate_batches(content))


def validated(content: bytes) -> object:
    header = parse_header(content)
    return validate_batch(
        content,
        0,
        header,
        mode=ValidationMode.FULL,
        max_bytes=1 << 20,
        inflate_limit=INFLATE_LIMIT,
        keys_required=False,
    )


def marker(content: bytes) -> object:
    return parse_marker(content, 0, parse_header(content))


def resealed(target: Target) -> Target:
    """Give a mutated batch a valid length and CRC, so that its content is parsed."""

    def run(content: bytes) -> object:
        if len(content) < 61:
            return target(content)
        sealed = bytearray(content)
        sealed[8:12] = struct.pack(">i", len(sealed) - 12)
        sealed[16] = 2
        sealed[17:21] = struct.pack(">I", crc32c(bytes(sealed[21:])))
        return target(bytes(sealed))

    return run


def crc32c(content: bytes) -> int:
    """Return the CRC-32C, by an independent table."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE: Final = [_entry(value) for value in range(256)]


def inflating(codec: Codec) -> Target:
    return lambda content: decompress(codec, content, INFLATE_LIMIT)


# --- storage ------------------------------------------------------------------------------------


def index(content: bytes) -> object:
    cut = int.from_bytes(content[:2], "big")
    return decode_index(
        content[2 : 2 + cut],
        content[2 + cut :],
        base_offset=5,
        log_size=2_000,
        interval_bytes=10,
    )


def on_a_disk(name: str, use: Callable[[Any, str], object]) -> Target:
    """Return a target that stores its bytes in a file of this name in a log's folder."""

    def run(content: bytes) -> object:
        with SimWorld(0) as world:
            node = world.node("node")
            node.start_process()
            files = node.runtime().files
            files.make_folder("/t-0")
            path = f"/t-0/{name}"
            file = files.open(path, create=True)
            file.write(0, [content])
            return use(files, path)

    return run


def walked(files: Any, path: str) -> object:
    file = files.open_readonly(path)
    return list(walk(file, 0, file.size()))


def recovering(*, policy: FlushPolicy, is_clean: bool) -> Callable[[Any, str], object]:
    def run(files: Any, path: str) -> object:
        recovery = Recovery(
            folder="/t-0",
            config=LogConfig(flush_policy=policy),
            is_clean=is_clean,
            recovery_point=0,
            log_start_offset=0,
            torn_bytes_max=100 if policy is FlushPolicy.FSYNC else None,
            wall_ms=0,
        )
        return recover(files, recovery)

    return run


LOG: Final = "00000000000000000000.log"
FILES: Final = (
    LOG,
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000007.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
)


def targets() -> list[Fuzzed]:
    """Return every target with its corpus."""
    some = batches()
    plain = b"some bytes that repeat, that repeat, that repeat" * 20
    epochs = encode_epochs([(0, 0), (3, 17)])
    offsets = encode_offsets({"flights-0": 12, "flights-1": 7})
    either = [epochs, offsets, b"version=1\ntopic.id=abc\n", bytes(60), *index_files()]
    found = [
        Fuzzed("headers", headers, some),
        Fuzzed("validate", validated, some),
        Fuzzed("validate sealed", resealed(validated), some),
        Fuzzed("decode", resealed(lambda c: decode_all(c, inflate_limit=INFLATE_LIMIT)), some),
        Fuzzed("decode one", lambda c: decode_batch(c, inflate_limit=INFLATE_LIMIT), some),
        Fuzzed("arrow", resealed(decode_arrow), some),
        Fuzzed("marker", resealed(marker), some),
        Fuzzed("index", index, index_files()),
        Fuzzed("epochs", decode_epochs, [epochs]),
        Fuzzed("offsets", decode_offsets, [offsets]),
        Fuzzed("meta", decode_meta, [b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=d\n"]),
        Fuzzed("partition", decode_partition_metadata, either),
        Fuzzed("snapshot", decode_snapshot, either),
        Fuzzed("aborted", lambda c: decode_aborted(c, base_offset=0), [bytes(34), bytes(68)]),
        Fuzzed("walk", on_a_disk(LOG, walked), some),
    ]
    found += [
        Fuzzed("kafka frames", kafka_targets.frames, kafka_targets.flows()),
        Fuzzed("kafka header", kafka_targets.header, kafka_targets.headers()),
        Fuzzed("kafka request", kafka_targets.request, kafka_targets.requests()),
        Fuzzed("kafka served", kafka_targets.served, kafka_targets.conversations()),
    ]
    found += _of_strangers()
    found += [
        Fuzzed(f"inflate {codec.name}", inflating(codec), [compress(codec, plain)])
        for codec in Codec
    ]
    found += [
        Fuzzed(
            f"recover {policy} {'clean' if is_clean else 'unclean'}",
            on_a_disk(LOG, recovering(policy=policy, is_clean=is_clean)),
            some,
        )
        for policy in FlushPolicy
        for is_clean in (False, True)
    ]
    found += [
        Fuzzed(
            f"dump {name}",
            on_a_disk(name, lambda files, path: list(dump_file(files, path, records=True))),
            some if name == LOG else either,
        )
        for name in FILES
    ]
    found += [
        Fuzzed(
            f"check {name}",
            on_a_disk(name, lambda files, path: check(files, "/t-0")),
            some if name == LOG else either,
        )
        for name in FILES
    ]
    return found


def _of_strangers() -> list[Fuzzed]:
    """Return the targets before authentication, and of key files."""
    return [
        *(
            Fuzzed(f"sasl {mechanism}", security_targets.exchange(mechanism), messages)
            for mechanism, messages in security_targets.exchanges().items()
        ),
        Fuzzed("token", security_targets.token, security_targets.tokens()),
        Fuzzed("signed token", security_targets.signed_token, security_targets.parts_of_tokens()),
        Fuzzed("session token", security_targets.session_token, security_targets.session_tokens()),
        Fuzzed("key set", security_targets.key_set, security_targets.key_sets()),
        Fuzzed("pem", security_targets.pem, security_targets.pems()),
    ]


# --- mutations ----------------------------------------------------------------------------------

EDGES: Final = (0, 1, 0x7F, 0x80, 0xFF)


def mutated(content: bytes, drawn: random.Random) -> bytes:
    """Change a valid input in one to four places."""
    changed = bytearray(content)
    for _ in range(drawn.randint(1, 4)):
        at = drawn.randrange(len(changed) + 1)
        match drawn.randrange(7):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << drawn.randrange(8)
            case 1 if changed:
                changed[at % len(changed)] = drawn.choice(EDGES)
            case 2:
                del changed[at:]
            case 3:
                changed[at:at] = drawn.randbytes(drawn.randint(1, 20))
            case 4:
                del changed[at : at + drawn.randint(1, 20)]
            case 5:
                size = drawn.choice((2, 4, 8))
                value = drawn.choice((0, 1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size) - 1))
                changed[at : at + size] = value.to_bytes(size, "big")
            case _:
                changed[at:at] = changed[: drawn.randint(0, len(changed))]
    return bytes(changed)
