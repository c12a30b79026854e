# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=True
"""Usual Fetch requests in C: the same results as `_plain_fetch.py`, which documents them.

The rules for invalid input are those of `_produce.pyx`: every read is checked against the end of
the request, and memory grows by the bytes that are there.
"""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from quorumlog.native._produce cimport (
    Cursor, bytes_t, next16, next32, next64, next_count, no_tags, ql_get32, ql_get64, ql_put16,
    ql_put32, ql_put64, skip
)

# Fields of a batch's header and their positions; `records/batch.py` documents them, and a test
# compares.
cdef enum:
    HEADER_BYTES = 61
    LENGTH_AT = 8
    LENGTH_END = 12
    LAST_DELTA_AT = 23

cdef enum:
    VERSION_MIN = 4
    VERSION_MAX = 18
    FLEXIBLE = 12
    BY_ID = 13
    NO_REPLICA_ID = 15  # the first version without the field
    ID_BYTES = 16
    PART_BYTES_MIN = 16
    RESULT_BYTES_MAX = 64
    TOPIC_BYTES_MAX = 32

NUMBERS = {
    "VERSION_MIN": VERSION_MIN, "VERSION_MAX": VERSION_MAX, "FLEXIBLE": FLEXIBLE, "BY_ID": BY_ID,
    "NO_REPLICA_ID": NO_REPLICA_ID, "HEADER_SIZE": HEADER_BYTES, "LENGTH_END": LENGTH_END,
}


def read_fetch(int version, object body):
    cdef Py_buffer view
    cdef Cursor cursor
    if not VERSION_MIN <= version <= VERSION_MAX:
        return None
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        cursor.at, cursor.is_bad = <bytes_t> view.buf, False
        cursor.end = cursor.at + view.len
        return read_body(version, &cursor)
    finally:
        PyBuffer_Release(&view)


cdef object read_body(int version, Cursor* cursor):
    cdef bint flexible = version >= FLEXIBLE
    cdef int64_t session_id = 0, session_epoch = -1, count, index
    cdef int64_t max_wait_ms, min_bytes, max_bytes, isolation
    cdef bytes_t p
    cdef list topics = []
    if version < NO_REPLICA_ID and next32(cursor) != -1:
        return None
    max_wait_ms, min_bytes, max_bytes = next32(cursor), next32(cursor), next32(cursor)
    p = skip(cursor, 1)
    isolation = 0 if p == NULL else <signed char> p[0]
    if version >= 7:
        session_id, session_epoch = next32(cursor), next32(cursor)
    count = next_count(cursor, flexible)
    if cursor.is_bad or count < 1 or count * PART_BYTES_MIN > cursor.end - cursor.at:
        return None
    for index in range(count):
        topic = read_topic(version, cursor)
        if topic is None:
            return None
        topics.append(topic)
    if version >= 7 and next_count(cursor, flexible) != 0:
        return None  # forgotten topics
    if version >= 11 and next_string(cursor, flexible) != 0:
        return None  # a rack
    if flexible:
        no_tags(cursor)
    if cursor.is_bad or cursor.at != cursor.end:
        return None
    return max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics


cdef int64_t next_string(Cursor* cursor, bint flexible) noexcept nogil:
    """Read the length of a string; null is -1."""
    return next_count(cursor, True) if flexible else next16(cursor)


cdef object read_topic(int version, Cursor* cursor):
    cdef bint flexible = version >= FLEXIBLE
    cdef int64_t size, count, index, partition, leader_epoch, offset, last_epoch
    cdef bytes_t p
    cdef list parts = []
    size = ID_BYTES if version >= BY_ID else next_string(cursor, flexible)
    p = skip(cursor, size)
    count = next_count(cursor, flexible)
    if cursor.is_bad or count * PART_BYTES_MIN > cursor.end - cursor.at:
        return None
    title = PyBytes_FromStringAndSize(<char*> p, size)
    for index in range(count):
        partition = next32(cursor)
        leader_epoch = next32(cursor) if version >= 9 else -1
        offset = next64(cursor)
        last_epoch = next32(cursor) if version >= FLEXIBLE else -1
        if version >= 5:
            skip(cursor, 8)  # the log start offset of a follower
        parts.append((partition, leader_epoch, offset, last_epoch, next32(cursor)))
        if flexible:
            no_tags(cursor)
        if cursor.is_bad:
            return None
    if flexible:
        no_tags(cursor)
    return None if cursor.is_bad else (title, parts)


cdef inline uint8_t* add32(uint8_t* out, int64_t value) noexcept nogil:
    ql_put32(out, <unsigned int> value)
    return out + 4


cdef inline uint8_t* add64(uint8_t* out, int64_t value) noexcept nogil:
    ql_put64(out, <unsigned long long> value)
    return out + 8


cdef inline uint8_t* add_varint(uint8_t* out, int64_t value) noexcept nogil:
    while value >= 0x80:
        out[0] = <uint8_t> (value | 0x80)
        value >>= 7
        out += 1
    out[0] = <uint8_t> value
    return out + 1


cdef inline uint8_t* add_count(uint8_t* out, int64_t count, bint flexible) noexcept nogil:
    return add_varint(out, count + 1) if flexible else add32(out, count)


def encode_fetch(int version, list topics, list results, bint tells_aborted):
    cdef bint flexible = version >= FLEXIBLE
    cdef Py_ssize_t size = RESULT_BYTES_MAX * (len(results) + 1) + TOPIC_BYTES_MAX, number = 0
    cdef list chunks = []
    cdef bytes title
    cdef uint8_t* out
    cdef uint8_t* begin
    cdef int64_t high_watermark, stable, start, records_size
    for title, parts in topics:
        size += PyBytes_GET_SIZE(title) + TOPIC_BYTES_MAX
    memory = PyBytes_FromStringAndSize(NULL, size)
    begin = out = <uint8_t*> PyBytes_AS_STRING(memory)
    out = add32(out, 0)  # throttle time
    if version >= 7:
        ql_put16(out, 0)  # error code
        out = add32(out + 2, 0)  # session id
    out = add_count(out, len(topics), flexible)
    for title, parts in topics:
        size = PyBytes_GET_SIZE(title)
        if version < BY_ID:
            if flexible:
                out = add_varint(out, size + 1)
            else:
                ql_put16(out, <unsigned short> size)
                out += 2
        memcpy(out, PyBytes_AS_STRING(title), size)
        out = add_count(out + size, len(parts), flexible)
        for part in parts:
            high_watermark, stable, start, records_size, records = results[number]
            number += 1
            out = add32(out, part[0])
            ql_put16(out, 0)  # error code
            out = add64(out + 2, high_watermark)
            out = add64(out, stable)
            if version >= 5:
                out = add64(out, start)
            if flexible:
                out[0] = tells_aborted  # an empty array, or null
                out += 1
            else:
                out = add32(out, 0 if tells_aborted else -1)
            if version >= 11:
                out = add32(out, -1)  # preferred replica
            out = add_count(out, records_size, flexible)
            if records is not None:
                chunks.append(PyBytes_FromStringAndSize(<char*> begin, out - begin))
                chunks.append(records)
                begin = out
            if flexible:
                out[0] = 0
                out += 1
        if flexible:
            out[0] = 0
            out += 1
    if flexible:
        out[0] = 0
        out += 1
    chunks.append(PyBytes_FromStringAndSize(<char*> begin, out - begin))
    return chunks


def whole_batches(object window, int64_t end_offset):
    cdef Py_buffer view
    cdef bytes_t batch
    cdef int64_t at = 0, size, next_offset = -1, base_offset, last_delta
    PyObject_GetBuffer(window, &view, PyBUF_SIMPLE)
    try:
        while view.len - at >= HEADER_BYTES:
            batch = <bytes_t> view.buf + at
            size = <int64_t> <int> ql_get32(batch + LENGTH_AT) + LENGTH_END
            if size < HEADER_BYTES or size > view.len - at:
                break
            base_offset = <int64_t> ql_get64(batch)
            last_delta = <int> ql_get32(batch + LAST_DELTA_AT)
            if not 0 <= base_offset < end_offset:
                break
            if not 0 <= last_delta < end_offset - base_offset:
                break
            at += size
            next_offset = base_offset + last_delta + 1
        return at, next_offset
    finally:
        PyBuffer_Release(&view)
