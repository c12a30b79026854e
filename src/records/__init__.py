"""The record batch: header, codec, Arrow columns, compression, validation.

Pure: the input is bytes, the output views and values. This package depends on the batch format
only, not on logs, topics or offsets outside a batch. `codec` selects the compiled codec or the one
in plain Python. `arrow` is the only module that needs pyarrow; it imports it inside its functions.
"""

from .batch import (
    HEADER_SIZE,
    PREFIX_SIZE,
    BatchHeader,
    check_crc,
    iterate_batches,
    parse_header,
    stamp,
    whole_batches_end,
)
from .codec import (
    COMPILED,
    Envelope,
    decode_all,
    decode_batch,
    decode_parts,
    describe,
    encode_batch,
    encode_batches,
    encode_columns,
    encode_plain_batch,
    find_timestamp,
    record_size_max,
)
from .compression import INFLATE_LIMIT, Codec, codec_named, compress, decompress
from .control import Marker, MarkerType, encode_marker, parse_marker
from .murmur2 import murmur2, partition_for_key
from .record import Record
from .validate import (
    TimestampLimits,
    ValidationMode,
    check_size,
    validate_batch,
    with_append_time,
    with_codec,
)

__all__ = [
    "HEADER_SIZE",
    "PREFIX_SIZE",
    "BatchHeader",
    "parse_header",
    "check_crc",
    "check_size",
    "iterate_batches",
    "whole_batches_end",
    "stamp",
    "Record",
    "Envelope",
    "encode_batch",
    "encode_batches",
    "encode_columns",
    "encode_plain_batch",
    "record_size_max",
    "decode_batch",
    "decode_parts",
    "decode_all",
    "Marker",
    "MarkerType",
    "encode_marker",
    "parse_marker",
    "find_timestamp",
    "COMPILED",
    "describe",
    "Codec",
    "codec_named",
    "compress",
    "decompress",
    "INFLATE_LIMIT",
    "ValidationMode",
    "TimestampLimits",
    "validate_batch",
    "with_append_time",
    "with_codec",
    "murmur2",
    "partition_for_key",
]
