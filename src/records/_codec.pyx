# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=True
"""The codec in C: the same functions, results and faults as `_plain.py`, which explains them.

Rules that keep it safe against bytes that lie:

- A read is always bounded by the end of the innermost thing it is in: varints by their record's
  end, lengths by what is left of the record, records by the body. No pointer is formed beyond one.
- Sizes are compared, never added to pointers first; sums are 64 bits wide, their terms at most 31.
- Nothing is allocated by what a record says, only by the body's size and the rows asked for, and
  the number of records is checked against the body's size before anything else.
- Writers size exactly what they write, in a first pass, and check at the end that they met it.

The loops run without the GIL; they see raw pointers only, whose owners the callers hold.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_FillInfo
from cpython.buffer cimport PyBuffer_Release, PyObject_GetBuffer
from cpython.tuple cimport PyTuple_GET_ITEM
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from .columns import BinaryColumn, DecodedColumns, HeaderColumn
from .record import Body, ColumnTooLarge, Malformed, Record

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/mman.h>
    /* Large fresh memory costs more in page faults than in copying: ask for huge pages. */
    static void ql_want_huge_pages(char *data, Py_ssize_t size) {
    #ifdef MADV_HUGEPAGE
        const uintptr_t huge = (uintptr_t)2 << 20;
        uintptr_t start = ((uintptr_t)data + huge - 1) & ~(huge - 1);
        uintptr_t end = ((uintptr_t)data + (uintptr_t)size) & ~(huge - 1);
        if (start < end) (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
    #endif
    }
    #define ql_add_overflows(a, b, r) __builtin_add_overflow((int64_t)(a), (int64_t)(b), (r))
    #define ql_sub_overflows(a, b, r) __builtin_sub_overflow((int64_t)(a), (int64_t)(b), (r))
    #define ql_likely(x) __builtin_expect(!!(x), 1)
    /* bytes of a varint: 1 + bits / 7 without a division */
    #define ql_varint_size(raw) \
        (((Py_ssize_t)(63 - __builtin_clzll((unsigned long long)(raw) | 1)) * 9 + 73) >> 6)
    """
    void ql_want_huge_pages(char* data, Py_ssize_t size) noexcept nogil
    bint ql_add_overflows(int64_t a, int64_t b, int64_t* r) noexcept nogil
    bint ql_sub_overflows(int64_t a, int64_t b, int64_t* r) noexcept nogil
    bint ql_likely(bint x) noexcept nogil
    Py_ssize_t ql_varint_size(uint64_t raw) noexcept nogil

ctypedef const uint8_t* bytes_t

# Faults: the numbers of `record.Fault`; a test compares them.
cdef enum:
    FINE = 0
    COUNT = 1
    TRUNCATED = 2
    VARINT = 3
    LENGTH = 4
    KEY_LENGTH = 5
    VALUE_LENGTH = 6
    HEADER_COUNT = 7
    HEADER_KEY = 8
    HEADER_VALUE = 9
    TRAILING = 10
    OFFSET = 11
    TIMESTAMP = 12
    LEFTOVER = 13
    KEY_MISSING = 14
    TIMESTAMP_MAX = 15
    TOO_LARGE = 100  # ours, for ColumnTooLarge

# The bits of `columns.WANT_*`; a test compares them.
cdef enum:
    WANT_KEY = 1
    WANT_VALUE = 2
    WANT_OFFSET = 4
    WANT_TIMESTAMP = 8
    WANT_TIMESTAMP_TYPE = 16
    WANT_HEADERS = 32

FAULT_NUMBERS = {
    "COUNT": COUNT, "TRUNCATED": TRUNCATED, "VARINT": VARINT, "LENGTH": LENGTH,
    "KEY_LENGTH": KEY_LENGTH, "VALUE_LENGTH": VALUE_LENGTH, "HEADER_COUNT": HEADER_COUNT,
    "HEADER_KEY": HEADER_KEY, "HEADER_VALUE": HEADER_VALUE, "TRAILING": TRAILING,
    "OFFSET": OFFSET, "TIMESTAMP": TIMESTAMP, "LEFTOVER": LEFTOVER,
    "KEY_MISSING": KEY_MISSING, "TIMESTAMP_MAX": TIMESTAMP_MAX,
}
WANT_NUMBERS = {
    "WANT_KEY": WANT_KEY, "WANT_VALUE": WANT_VALUE, "WANT_OFFSET": WANT_OFFSET,
    "WANT_TIMESTAMP": WANT_TIMESTAMP, "WANT_TIMESTAMP_TYPE": WANT_TIMESTAMP_TYPE,
    "WANT_HEADERS": WANT_HEADERS,
}

cdef Py_ssize_t HUGE_SIZE_MIN = 16 * 1024 * 1024
cdef int64_t RECORD_SIZE_MIN = 7
cdef int64_t INT32_LAST = 2147483647
cdef int64_t TIMESTAMP_MS_LAST = INT64_MAX // 1000


# --- memory ------------------------------------------------------------------------------------


cdef class Memory:
    """A block of bytes that Python and Arrow may read; freed with its last reader."""

    cdef char* data
    cdef Py_ssize_t size

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


cdef struct Growing:
    char* data
    Py_ssize_t used
    Py_ssize_t capacity


cdef int grow(Growing* block, Py_ssize_t more) except -1:
    """Make room for `more` bytes behind the used ones."""
    cdef Py_ssize_t needed = block.used + more
    cdef Py_ssize_t capacity
    cdef char* data
    if needed <= block.capacity:
        return 0
    capacity = max(needed, 2 * block.capacity, 64)
    data = <char*> PyMem_RawRealloc(block.data, capacity)
    if data == NULL:
        raise MemoryError(f"{capacity} bytes for a column")
    if capacity >= HUGE_SIZE_MIN:
        ql_want_huge_pages(data, capacity)
    block.data = data
    block.capacity = capacity
    return 0


cdef Memory take(Growing* block):
    """Hand the used bytes over to a Memory; the block is empty afterwards."""
    cdef Memory memory = Memory.__new__(Memory)
    cdef char* data = <char*> PyMem_RawRealloc(block.data, max(block.used, 1))
    memory.data = block.data if data == NULL else data  # a failed shrink leaves the block as it is
    memory.size = block.used
    block.data = NULL
    block.used = block.capacity = 0
    if memory.data == NULL:
        raise MemoryError("an empty column")
    return memory


cdef class Held:
    """Holds buffers of other objects while C reads them."""

    cdef list owners
    cdef Py_buffer[16] views
    cdef int count

    def __cinit__(self):
        self.count = 0

    def __dealloc__(self):
        cdef int index
        for index in range(self.count):
            PyBuffer_Release(&self.views[index])

    cdef bytes_t hold(self, object owner, Py_ssize_t least, Py_ssize_t* size) except? NULL:
        """Return the bytes of `owner`, NULL for None; raises ValueError below `least` bytes."""
        cdef Py_buffer* view
        size[0] = 0
        if owner is None:
            return NULL
        assert self.count < 16
        view = &self.views[self.count]
        PyObject_GetBuffer(owner, view, PyBUF_SIMPLE)
        self.count += 1
        if view.len < least:
            raise ValueError(f"a buffer of {view.len} bytes, {least} are needed")
        size[0] = view.len
        return <bytes_t> view.buf


# --- varints -----------------------------------------------------------------------------------


cdef int get_varint_slow(bytes_t* at, bytes_t end, int bytes_max, int64_t* value) noexcept nogil:
    cdef bytes_t p = at[0]
    cdef uint64_t raw = 0
    cdef uint8_t byte
    cdef int index
    for index in range(bytes_max):
        if p >= end:
            return TRUNCATED
        byte = p[0]
        p += 1
        if index == bytes_max - 1 and byte > (0x0F if bytes_max == 5 else 0x01):
            return VARINT
        raw |= (<uint64_t> (byte & 0x7F)) << (7 * index)
        if byte < 0x80:
            value[0] = <int64_t> ((raw >> 1) ^ (0 - (raw & 1)))
            at[0] = p
            return FINE
    return VARINT


cdef inline int get_varint(bytes_t* at, bytes_t end, int bytes_max, int64_t* value) noexcept nogil:
    """Read a zigzag integer of at most `bytes_max` bytes (5: 32 bits, 10: 64 bits)."""
    cdef bytes_t p = at[0]
    cdef uint32_t raw
    if ql_likely(p < end and p[0] < 0x80):
        raw = p[0]
        at[0] = p + 1
        value[0] = <int64_t> (raw >> 1) ^ -(<int64_t> (raw & 1))
        return FINE
    if ql_likely(end - p >= 2 and p[1] < 0x80):
        raw = (p[0] & 0x7F) | (<uint32_t> p[1] << 7)
        at[0] = p + 2
        value[0] = <int64_t> (raw >> 1) ^ -(<int64_t> (raw & 1))
        return FINE
    return get_varint_slow(at, end, bytes_max, value)


cdef inline uint8_t* put_varint(uint8_t* p, uint64_t raw) noexcept nogil:
    while raw >= 0x80:
        p[0] = <uint8_t> (raw | 0x80)
        p += 1
        raw >>= 7
    p[0] = <uint8_t> raw
    return p + 1


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)


# --- one record --------------------------------------------------------------------------------


cdef struct View:
    int64_t timestamp_delta
    int64_t offset_delta
    int64_t key_size  # -1 null
    int64_t value_size  # -1 null
    int64_t header_count
    bytes_t key
    bytes_t value
    bytes_t headers  # that many, checked


cdef bint is_utf8(bytes_t p, int64_t size) noexcept nogil:
    """What Python's strict decoder takes: no overlong forms, no surrogates, up to U+10FFFF."""
    cdef bytes_t end = p + size
    cdef uint8_t low, high
    cdef int more
    while p < end:
        if p[0] < 0x80:
            p += 1
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= p[0] <= 0xDF:
            more = 1
        elif 0xE0 <= p[0] <= 0xEF:
            more = 2
            if p[0] == 0xE0:
                low = 0xA0
            elif p[0] == 0xED:
                high = 0x9F
        elif 0xF0 <= p[0] <= 0xF4:
            more = 3
            if p[0] == 0xF0:
                low = 0x90
            elif p[0] == 0xF4:
                high = 0x8F
        else:
            return False
        if end - p <= more or not low <= p[1] <= high:
            return False
        p += 2
        while more > 1:
            if p[0] & 0xC0 != 0x80:
                return False
            p += 1
            more -= 1
    return True


cdef inline int get_span(
    bytes_t* at, bytes_t end, int64_t least, int fault, bytes_t* start, int64_t* size
) noexcept nogil:
    """Read a length of [least, rest] and pass over that many bytes; -1 is null."""
    cdef int wrong = get_varint(at, end, 5, size)
    if wrong:
        return wrong
    if size[0] < least or size[0] > end - at[0]:
        return fault
    start[0] = at[0]
    if size[0] > 0:
        at[0] += size[0]
    return FINE


cdef int check_headers(bytes_t* at, bytes_t end, int64_t count) noexcept nogil:
    cdef int64_t index, size
    cdef bytes_t start
    cdef int wrong
    for index in range(count):
        wrong = get_span(at, end, 0, HEADER_KEY, &start, &size)
        if wrong:
            return wrong
        if not is_utf8(start, size):
            return HEADER_KEY
        wrong = get_span(at, end, -1, HEADER_VALUE, &start, &size)
        if wrong:
            return wrong
    return FINE


cdef inline int get_record(bytes_t* at, bytes_t body_end, View* view) noexcept nogil:
    """Read the record at `at`, wholly checked but for its place in the batch."""
    cdef bytes_t p = at[0]
    cdef bytes_t end
    cdef int64_t size = 0
    cdef int wrong = get_varint(&p, body_end, 5, &size)
    if wrong:
        return wrong
    if size < RECORD_SIZE_MIN - 1 or size > body_end - p:
        return LENGTH
    end = p + size
    p += 1  # attributes: unused
    wrong = get_varint(&p, end, 10, &view.timestamp_delta)
    if wrong:
        return wrong
    wrong = get_varint(&p, end, 5, &view.offset_delta)
    if wrong:
        return wrong
    wrong = get_span(&p, end, -1, KEY_LENGTH, &view.key, &view.key_size)
    if wrong:
        return wrong
    wrong = get_span(&p, end, -1, VALUE_LENGTH, &view.value, &view.value_size)
    if wrong:
        return wrong
    wrong = get_varint(&p, end, 5, &view.header_count)
    if wrong:
        return wrong
    view.headers = p
    if view.header_count:
        if view.header_count < 0 or view.header_count > (end - p) // 2:
            return HEADER_COUNT
        wrong = check_headers(&p, end, view.header_count)
        if wrong:
            return wrong
    if p != end:
        return TRAILING
    at[0] = end
    return FINE


# --- bodies ------------------------------------------------------------------------------------


cdef struct Bounds:
    bytes_t start
    bytes_t end
    int64_t record_count
    int64_t base_offset
    int64_t last_offset_delta
    int64_t base_timestamp
    int64_t append_timestamp
    bint is_append_time


cdef int bound(Held held, object body, Bounds* bounds) except -1:
    """Fill `bounds` from a `record.Body`; raises Malformed when the count is impossible."""
    cdef Py_ssize_t size, start, end
    cdef bytes_t data
    if type(body) is not Body:
        raise TypeError(f"a {type(body).__name__} is no Body")
    data = held.hold(<object> PyTuple_GET_ITEM(body, 0), 0, &size)
    start = <object> PyTuple_GET_ITEM(body, 1)
    end = <object> PyTuple_GET_ITEM(body, 2)
    if not 0 <= start <= end <= size:
        raise ValueError(f"records [{start}, {end}) are not in a buffer of {size} bytes")
    bounds.start = data + start
    bounds.end = data + end
    bounds.record_count = <object> PyTuple_GET_ITEM(body, 3)
    bounds.base_offset = <object> PyTuple_GET_ITEM(body, 4)
    bounds.last_offset_delta = <object> PyTuple_GET_ITEM(body, 5)
    bounds.base_timestamp = <object> PyTuple_GET_ITEM(body, 6)
    append_timestamp = <object> PyTuple_GET_ITEM(body, 7)
    bounds.is_append_time = append_timestamp is not None
    bounds.append_timestamp = append_timestamp if bounds.is_append_time else 0
    if not 0 <= bounds.base_offset <= INT64_MAX - max(0, bounds.last_offset_delta):
        raise ValueError(f"base offset {bounds.base_offset} is impossible")
    if bounds.record_count < 0 or bounds.record_count > (end - start) // RECORD_SIZE_MIN:
        raise Malformed(COUNT, 0)
    return 0


cdef inline int place(
    const Bounds* bounds, const View* view, int64_t last_delta, int64_t* timestamp
) noexcept nogil:
    """Check a record's offset delta and compute its timestamp."""
    if view.offset_delta <= last_delta or view.offset_delta > bounds.last_offset_delta:
        return OFFSET
    if bounds.is_append_time:
        timestamp[0] = bounds.append_timestamp
    elif ql_add_overflows(bounds.base_timestamp, view.timestamp_delta, timestamp):
        return TIMESTAMP
    return FINE


def walk_records(object body, int64_t max_timestamp, bint keys_required):
    """Check every record as a producer's: offsets 0..n-1, timestamps at most `max_timestamp`.

    Raises Malformed.
    """
    cdef Held held = Held()
    cdef Bounds bounds
    cdef int64_t index = 0
    cdef int wrong
    bound(held, body, &bounds)
    with nogil:
        wrong = walk(&bounds, max_timestamp, keys_required, &index)
    if wrong:
        raise Malformed(wrong, index)


cdef int walk(
    const Bounds* bounds, int64_t max_timestamp, bint keys_required, int64_t* index
) noexcept nogil:
    cdef bytes_t p = bounds.start
    cdef int64_t timestamp = 0
    cdef int wrong
    cdef View view
    while index[0] < bounds.record_count:
        wrong = get_record(&p, bounds.end, &view)
        if wrong:
            return wrong
        if view.offset_delta != index[0]:
            return OFFSET
        if not bounds.is_append_time:
            if ql_add_overflows(bounds.base_timestamp, view.timestamp_delta, &timestamp):
                return TIMESTAMP
            if timestamp < -1:
                return TIMESTAMP
            if timestamp > max_timestamp:
                return TIMESTAMP_MAX
        if keys_required and view.key_size < 0:
            return KEY_MISSING
        index[0] += 1
    return FINE if p == bounds.end else LEFTOVER


def find_timestamp(object body, object timestamp_ms, object start_offset):
    """Return (offset, timestamp) of the first record at or above both bounds; raises Malformed."""
    cdef Held held = Held()
    cdef Bounds bounds
    cdef int64_t index = 0, found_offset = -1, found_timestamp = 0
    cdef int64_t least_timestamp = timestamp_ms, least_offset = start_offset
    cdef int wrong
    bound(held, body, &bounds)
    with nogil:
        wrong = find(
            &bounds, least_timestamp, least_offset, &index, &found_offset, &found_timestamp
        )
    if wrong:
        raise Malformed(wrong, index)
    return None if found_offset < 0 else (found_offset, found_timestamp)


cdef int find(
    const Bounds* bounds,
    int64_t least_timestamp,
    int64_t least_offset,
    int64_t* index,
    int64_t* found_offset,
    int64_t* found_timestamp,
) noexcept nogil:
    """Walk to the end even after a find: a malformed batch answers nothing."""
    cdef bytes_t p = bounds.start
    cdef int64_t last_delta = -1, timestamp = 0
    cdef int wrong
    cdef View view
    while index[0] < bounds.record_count:
        wrong = get_record(&p, bounds.end, &view)
        if not wrong:
            wrong = place(bounds, &view, last_delta, &timestamp)
        if wrong:
            return wrong
        last_delta = view.offset_delta
        if (
            found_offset[0] < 0
            and timestamp >= least_timestamp
            and bounds.base_offset + last_delta >= least_offset
        ):
            found_offset[0] = bounds.base_offset + last_delta
            found_timestamp[0] = timestamp
        index[0] += 1
    return FINE if p == bounds.end else LEFTOVER


# --- to objects --------------------------------------------------------------------------------


def read_records(object body, int64_t start_offset, int64_t end_offset, list records):
    """Append the records of [start_offset, end_offset) to `records`; raises Malformed."""
    cdef Held held = Held()
    cdef Bounds bounds
    cdef bytes_t p
    cdef int64_t index, offset, last_delta = -1, timestamp = 0
    cdef int wrong
    cdef View view
    cdef list found = []
    bound(held, body, &bounds)
    p = bounds.start
    for index in range(bounds.record_count):
        wrong = get_record(&p, bounds.end, &view)
        if not wrong:
            wrong = place(&bounds, &view, last_delta, &timestamp)
        if wrong:
            raise Malformed(wrong, index)
        last_delta = view.offset_delta
        offset = bounds.base_offset + last_delta
        if start_offset <= offset < end_offset:
            found.append(
                Record(
                    offset,
                    timestamp,
                    span_bytes(view.key, view.key_size),
                    span_bytes(view.value, view.value_size),
                    header_tuple(&view) if view.header_count else (),
                )
            )
    if p != bounds.end:
        raise Malformed(LEFTOVER, bounds.record_count)
    records.extend(found)


cdef object span_bytes(bytes_t start, int64_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*> start, size)


cdef tuple header_tuple(const View* view):
    """Return ((key, value), ...) of headers that `get_record` checked."""
    cdef bytes_t p = view.headers
    cdef bytes_t start
    cdef int64_t index, size = 0
    cdef list headers = []
    cdef str key
    for index in range(view.header_count):
        # the spans were bounded by the record's end; read again with the size that fits
        start = next_span(&p, &size)
        key = start[:size].decode("utf-8")
        start = next_span(&p, &size)
        headers.append((key, span_bytes(start, size)))
    return tuple(headers)


cdef inline bytes_t next_span(bytes_t* at, int64_t* size) noexcept nogil:
    """Pass over a span that was checked before and return its start; the size is -1 for null."""
    cdef bytes_t start
    get_varint_slow(at, at[0] + 5, 5, size)
    start = at[0]
    if size[0] > 0:
        at[0] += size[0]
    return start


# --- to columns --------------------------------------------------------------------------------


cdef struct Binary:
    Growing data
    Growing offsets  # int32
    Growing validity  # bits of what is not there yet are 1
    int64_t length
    int64_t null_count


cdef int reserve(Binary* column, int64_t rows, Py_ssize_t data_size) except -1:
    """Make room for `rows` more rows, their bits set, with at most `data_size` bytes of data."""
    cdef Py_ssize_t bitmap = (column.length + rows + 7) // 8
    column.offsets.used = 4 * column.length
    grow(&column.offsets, 4 * (rows + 1))
    if column.length == 0:
        (<int32_t*> column.offsets.data)[0] = 0
    grow(&column.data, data_size)
    if bitmap > column.validity.used:
        grow(&column.validity, bitmap - column.validity.used)
        memset(column.validity.data + column.validity.used, 0xFF, bitmap - column.validity.used)
        column.validity.used = bitmap
    return 0


cdef inline void add_span(Binary* column, bytes_t start, int64_t size) noexcept nogil:
    """Append a span, null when its size is -1; room was reserved."""
    if size > 0:
        memcpy(column.data.data + column.data.used, start, size)
        column.data.used += size
    elif size < 0:
        (<uint8_t*> column.validity.data)[column.length >> 3] &= ~(1 << (column.length & 7))
        column.null_count += 1
    column.length += 1
    (<int32_t*> column.offsets.data)[column.length] = <int32_t> column.data.used


cdef object take_validity(Growing* validity, int64_t length, int64_t null_count):
    """Return the bitmap cut to its length, the bits behind it zero; None without nulls."""
    if null_count == 0:
        return None
    validity.used = (length + 7) // 8
    if length & 7:
        (<uint8_t*> validity.data)[length >> 3] &= (1 << (length & 7)) - 1
    return take(validity)


cdef object take_binary(Binary* column):
    """Return the column as a BinaryColumn."""
    reserve(column, 0, 0)
    column.offsets.used = 4 * (column.length + 1)
    return BinaryColumn(
        length=column.length,
        offsets=memoryview(take(&column.offsets)),
        data=memoryview(take(&column.data)),
        validity=view_of(take_validity(&column.validity, column.length, column.null_count)),
    )


cdef object view_of(object memory):
    return None if memory is None else memoryview(memory)


cdef void release(Binary* column) noexcept:
    PyMem_RawFree(column.data.data)
    PyMem_RawFree(column.offsets.data)
    PyMem_RawFree(column.validity.data)


cdef class ColumnBuilder:
    """Collects the records of many bodies into one set of columns.

    `wanted` is a sum of WANT_ bits, `reserve` the bytes of data to expect, `data_limit` the most
    that a column's data may have.
    """

    cdef int wanted
    cdef Py_ssize_t expected
    cdef int64_t data_limit
    cdef int64_t length
    cdef Binary keys
    cdef Binary values
    cdef Binary lists  # offsets and validity of the header lists; no data
    cdef Binary header_keys
    cdef Binary header_values
    cdef Growing offsets  # int64
    cdef Growing timestamps  # int64
    cdef Growing types  # int32

    def __cinit__(self, int wanted, Py_ssize_t reserve=0, object data_limit=INT32_LAST):
        self.wanted = wanted
        self.expected = reserve
        self.data_limit = min(data_limit, INT32_LAST)

    def __dealloc__(self):
        release(&self.keys)
        release(&self.values)
        release(&self.lists)
        release(&self.header_keys)
        release(&self.header_values)
        PyMem_RawFree(self.offsets.data)
        PyMem_RawFree(self.timestamps.data)
        PyMem_RawFree(self.types.data)

    def append(self, object body, int64_t start_offset, int64_t end_offset):
        """Add the records of [start_offset, end_offset); raises Malformed, ColumnTooLarge.

        The builder is of no further use after an error.
        """
        cdef Held held = Held()
        cdef Bounds bounds
        cdef int64_t index = 0
        cdef int wrong
        bound(held, body, &bounds)
        self.make_room(&bounds)
        with nogil:
            wrong = self.fill(&bounds, start_offset, end_offset, &index)
        if wrong == TOO_LARGE:
            raise ColumnTooLarge
        if wrong:
            raise Malformed(wrong, index)

    cdef int make_room(self, const Bounds* bounds) except -1:
        """Reserve for all records of a body: no column's data is larger than the body."""
        cdef int64_t rows = bounds.record_count, headers
        cdef Py_ssize_t body_size = bounds.end - bounds.start
        if self.wanted & WANT_KEY:
            reserve(&self.keys, rows, body_size)
        if self.wanted & WANT_VALUE:
            if self.values.data.capacity == 0:
                reserve(&self.values, 0, max(self.expected, body_size))
            reserve(&self.values, rows, body_size)
        if self.wanted & WANT_OFFSET:
            grow(&self.offsets, 8 * rows)
        if self.wanted & WANT_TIMESTAMP:
            grow(&self.timestamps, 8 * rows)
        if self.wanted & WANT_TIMESTAMP_TYPE:
            grow(&self.types, 4 * rows)
        if self.wanted & WANT_HEADERS:
            with nogil:
                headers = count_headers(bounds)
            reserve(&self.lists, rows, 0)
            reserve(&self.header_keys, headers, body_size)
            reserve(&self.header_values, headers, body_size)
        return 0

    cdef int fill(
        self,
        const Bounds* bounds,
        int64_t start_offset,
        int64_t end_offset,
        int64_t* index,
    ) noexcept nogil:
        cdef bytes_t p = bounds.start
        cdef int64_t last_delta = -1, timestamp = 0, offset
        cdef int wrong
        cdef bint is_full = False
        cdef View view
        while index[0] < bounds.record_count:
            wrong = get_record(&p, bounds.end, &view)
            if not wrong:
                wrong = place(bounds, &view, last_delta, &timestamp)
            if wrong:
                return wrong
            last_delta = view.offset_delta
            offset = bounds.base_offset + last_delta
            if start_offset <= offset < end_offset and not is_full:
                is_full = not self.add(bounds, &view, offset, timestamp)
            index[0] += 1
        if p != bounds.end:
            return LEFTOVER
        return TOO_LARGE if is_full else FINE

    cdef inline bint add(
        self, const Bounds* bounds, const View* view, int64_t offset, int64_t timestamp
    ) noexcept nogil:
        """Add one record to the wanted columns; returns whether there was room."""
        if self.wanted & WANT_VALUE:
            if view.value_size > self.data_limit - self.values.data.used:
                return False
            add_span(&self.values, view.value, view.value_size)
        if self.wanted & WANT_KEY:
            if view.key_size > self.data_limit - self.keys.data.used:
                return False
            add_span(&self.keys, view.key, view.key_size)
        if self.wanted & WANT_OFFSET:
            (<int64_t*> self.offsets.data)[self.length] = offset
            self.offsets.used += 8
        if self.wanted & WANT_TIMESTAMP:
            if timestamp > TIMESTAMP_MS_LAST:
                timestamp = TIMESTAMP_MS_LAST
            elif timestamp < -TIMESTAMP_MS_LAST:
                timestamp = -TIMESTAMP_MS_LAST
            (<int64_t*> self.timestamps.data)[self.length] = timestamp * 1000
            self.timestamps.used += 8
        if self.wanted & WANT_TIMESTAMP_TYPE:
            (<int32_t*> self.types.data)[self.length] = bounds.is_append_time
            self.types.used += 4
        self.length += 1
        if self.wanted & WANT_HEADERS:
            return self.add_headers(view)
        return True

    cdef inline bint add_headers(self, const View* view) noexcept nogil:
        """Add one record's headers, null when it has none; returns whether there was room."""
        cdef bytes_t p = view.headers
        cdef bytes_t start
        cdef int64_t index, size = 0
        if view.header_count == 0:
            add_span(&self.lists, NULL, -1)
        else:
            for index in range(view.header_count):
                start = next_span(&p, &size)
                if size > self.data_limit - self.header_keys.data.used:
                    return False
                add_span(&self.header_keys, start, size)
                start = next_span(&p, &size)
                if size > self.data_limit - self.header_values.data.used:
                    return False
                add_span(&self.header_values, start, size)
            self.lists.length += 1
        (<int32_t*> self.lists.offsets.data)[self.lists.length] = <int32_t> self.header_keys.length
        return True

    def finish(self):
        """Return the columns; the builder is empty afterwards."""
        headers = None
        if self.wanted & WANT_HEADERS:
            headers = self.take_headers()
        return DecodedColumns(
            length=self.length,
            keys=take_binary(&self.keys) if self.wanted & WANT_KEY else None,
            values=take_binary(&self.values) if self.wanted & WANT_VALUE else None,
            offsets=self.take_fixed(WANT_OFFSET, &self.offsets),
            timestamps_us=self.take_fixed(WANT_TIMESTAMP, &self.timestamps),
            timestamp_types=self.take_fixed(WANT_TIMESTAMP_TYPE, &self.types),
            headers=headers,
        )

    cdef object take_fixed(self, int bit, Growing* block):
        if not self.wanted & bit:
            return None
        grow(block, 0)
        return memoryview(take(block))

    cdef object take_headers(self):
        reserve(&self.lists, 0, 0)
        self.lists.offsets.used = 4 * (self.lists.length + 1)
        return HeaderColumn(
            length=self.lists.length,
            offsets=memoryview(take(&self.lists.offsets)),
            keys=take_binary(&self.header_keys),
            values=take_binary(&self.header_values),
            validity=view_of(
                take_validity(&self.lists.validity, self.lists.length, self.lists.null_count)
            ),
        )


cdef int64_t count_headers(const Bounds* bounds) noexcept nogil:
    """Return how many headers a body has; up to the first malformed record, if one is."""
    cdef bytes_t p = bounds.start
    cdef int64_t index, count = 0
    cdef View view
    for index in range(bounds.record_count):
        if get_record(&p, bounds.end, &view):
            break
        count += view.header_count
    return count


# --- from objects ------------------------------------------------------------------------------


cdef class Output:
    """Bytes that grow."""

    cdef Growing block

    def __dealloc__(self):
        PyMem_RawFree(self.block.data)

    cdef int varint(self, int64_t value) except -1:
        cdef uint8_t* start
        grow(&self.block, 10)
        start = <uint8_t*> self.block.data + self.block.used
        self.block.used += put_varint(start, zigzag(value)) - start
        return 0

    cdef int raw(self, const char* start, Py_ssize_t size) except -1:
        grow(&self.block, size)
        memcpy(self.block.data + self.block.used, start, size)
        self.block.used += size
        return 0

    cdef int span(self, object span) except -1:
        """Put a length and the bytes; -1 for None."""
        if span is None:
            return self.varint(-1)
        if not PyBytes_CheckExact(span):
            span = bytes(memoryview(span))
        self.varint(PyBytes_GET_SIZE(span))
        return self.raw(PyBytes_AS_STRING(span), PyBytes_GET_SIZE(span))

    cdef int text(self, str text) except -1:
        cdef Py_ssize_t size
        cdef const char* start = PyUnicode_AsUTF8AndSize(text, &size)
        self.varint(size)
        return self.raw(start, size)

    cdef int record(self, int64_t timestamp_delta, int64_t offset_delta, object record) except -1:
        """Put everything behind a record's length."""
        cdef tuple headers = tuple(record.headers)
        self.raw(b"\0", 1)
        self.varint(timestamp_delta)
        self.varint(offset_delta)
        self.span(record.key)
        self.span(record.value)
        self.varint(len(headers))
        for key, value in headers:
            self.text(key)
            self.span(value)
        return 0


cdef int64_t timestamp_of(object record) except? -1:
    cdef int overflow = 0
    cdef int64_t timestamp = PyLong_AsLongLongAndOverflow(record.timestamp_ms, &overflow)
    if overflow:
        raise ValueError(f"timestamp {record.timestamp_ms} cannot be encoded in this batch")
    return timestamp


def write_records(object records, object base_offset, bint keep_offsets):
    """Encode records; returns (body, base timestamp, max timestamp, last offset delta).

    With `keep_offsets` the offset deltas come from the records, else they count from 0. Raises
    ValueError where offsets or timestamps cannot be encoded.
    """
    cdef Output output = Output()
    cdef Output content = Output()
    cdef int64_t base_timestamp = -1, max_timestamp = -1, timestamp, timestamp_delta = 0
    cdef int64_t delta, index = 0, last_delta = -1
    for record in records:
        timestamp = timestamp_of(record)
        if index == 0:
            base_timestamp = max_timestamp = timestamp
        delta = index
        if keep_offsets:
            distance = record.offset - base_offset
            delta = distance if -1 <= distance <= INT32_LAST else -1
        if delta <= last_delta:
            raise ValueError(f"offset {record.offset} cannot follow in a batch at {base_offset}")
        if ql_sub_overflows(timestamp, base_timestamp, &timestamp_delta):
            raise ValueError(f"timestamp {timestamp} cannot be encoded in this batch")
        last_delta = delta
        max_timestamp = max(max_timestamp, timestamp)
        content.block.used = 0
        content.record(timestamp_delta, delta, record)
        if content.block.used > INT32_LAST:
            raise OverflowError("a record of 2 GiB does not fit its length field")
        output.varint(content.block.used)
        output.raw(content.block.data, content.block.used)
        index += 1
    body = PyBytes_FromStringAndSize(output.block.data, output.block.used)
    return body, base_timestamp, max_timestamp, last_delta


# --- from columns ------------------------------------------------------------------------------


cdef struct Source:
    bint is_there
    bint is_wide
    bytes_t validity
    bytes_t offsets
    bytes_t data
    int64_t data_size
    int64_t start
    int64_t length


cdef struct Table:
    Source values
    Source keys
    Source header_keys
    Source header_values
    bint has_timestamps
    bytes_t timestamps
    bytes_t timestamp_validity
    int64_t timestamp_start
    int64_t timestamp_default
    bint has_headers
    bytes_t header_offsets
    bytes_t header_validity
    int64_t header_start
    int64_t length
    bytes_t rows  # int64 each, NULL for all in order


cdef struct Row:
    int64_t timestamp
    int64_t key_size
    int64_t value_size
    bytes_t key
    bytes_t value
    int64_t header_first
    int64_t header_end
    int64_t header_bytes


# What a row may be refused for; ours, as ValueErrors.
cdef enum:
    BAD_SPAN = 1
    BAD_ROW = 2
    BAD_HEADERS = 3
    BAD_TIMESTAMP = 4
    BAD_SIZE = 5

BAD_TEXT = {
    BAD_SPAN: "its bytes leave the column's data",
    BAD_ROW: "it is not in the table",
    BAD_HEADERS: "its headers are not in the column, or one has no key of UTF-8",
    BAD_TIMESTAMP: "its timestamp cannot be encoded in this batch",
}


cdef int open_binary(Held held, object column, Source* source) except -1:
    """Hold a BinaryColumn's buffers, which must be long enough for its length."""
    cdef Py_ssize_t size, rows
    if column is None:
        source.is_there = False
        return 0
    source.is_there = True
    source.is_wide = column.is_wide
    source.start = column.start
    source.length = column.length
    if source.start < 0 or source.length < 0 or source.start > INT64_MAX // 16 - source.length:
        raise ValueError(f"a column of {source.length} rows from {source.start}")
    rows = source.start + source.length
    source.offsets = held.hold(
        column.offsets, (rows + 1) * (8 if source.is_wide else 4) if source.length else 0, &size
    )
    source.validity = held.hold(column.validity, (rows + 7) // 8, &size)
    source.data = held.hold(column.data, 0, &size)
    source.data_size = size
    return 0


cdef int open_table(Held held, object columns, Table* table) except -1:
    """Hold the buffers of a RecordColumns; raises ValueError for ones that are too short."""
    cdef Py_ssize_t size, end
    open_binary(held, columns.values, &table.values)
    open_binary(held, columns.keys, &table.keys)
    table.length = table.values.length
    table.timestamp_default = columns.timestamp_ms
    times, lists = columns.timestamps_ms, columns.headers
    if table.keys.is_there and table.keys.length < table.length:
        raise ValueError(f"{table.keys.length} keys for {table.length} rows")
    table.has_timestamps = times is not None
    if times is not None:
        table.timestamp_start = times.start
        end = table.timestamp_start + table.length
        if table.timestamp_start < 0:
            raise ValueError("a column that starts before its buffer")
        table.timestamps = held.hold(times.values, 8 * end, &size)
        table.timestamp_validity = held.hold(times.validity, (end + 7) // 8, &size)
    table.has_headers = lists is not None
    table.header_keys.is_there = table.header_values.is_there = False
    if lists is not None:
        table.header_start = lists.start
        end = table.header_start + table.length
        if table.header_start < 0:
            raise ValueError("a column that starts before its buffer")
        table.header_offsets = held.hold(lists.offsets, 4 * (end + 1) if table.length else 0, &size)
        table.header_validity = held.hold(lists.validity, (end + 7) // 8, &size)
        open_binary(held, lists.keys, &table.header_keys)
        open_binary(held, lists.values, &table.header_values)
    return 0


cdef inline int64_t load_int32(bytes_t base, int64_t index) noexcept nogil:
    cdef int32_t value
    memcpy(&value, base + 4 * index, 4)
    return value


cdef inline int64_t load_int64(bytes_t base, int64_t index) noexcept nogil:
    cdef int64_t value
    memcpy(&value, base + 8 * index, 8)
    return value


cdef inline bint is_valid(bytes_t validity, int64_t index) noexcept nogil:
    return validity == NULL or (validity[index >> 3] >> (index & 7)) & 1


cdef inline int span_at(
    const Source* source, int64_t row, bytes_t* start, int64_t* size
) noexcept nogil:
    """Find a row's bytes; the size is -1 when it is null. The row was checked."""
    cdef int64_t index = source.start + row
    cdef int64_t first, end
    if not source.is_there or not is_valid(source.validity, index):
        size[0] = -1
        return FINE
    if source.is_wide:
        first, end = load_int64(source.offsets, index), load_int64(source.offsets, index + 1)
    else:
        first, end = load_int32(source.offsets, index), load_int32(source.offsets, index + 1)
    if first < 0 or end < first or end > source.data_size:
        return BAD_SPAN
    if end - first > INT32_LAST:
        return BAD_SIZE
    start[0] = source.data + first
    size[0] = end - first
    return FINE


cdef inline Py_ssize_t span_size(int64_t size) noexcept nogil:
    return 1 if size < 0 else ql_varint_size(<uint64_t> size << 1) + size


cdef int measure_headers(const Table* table, int64_t row, Row* found) noexcept nogil:
    """Find a row's headers and the bytes they take in a record."""
    cdef int64_t index = table.header_start + row
    cdef int64_t entry, size = 0
    cdef bytes_t start = NULL
    cdef int wrong
    if not is_valid(table.header_validity, index):
        return FINE
    found.header_first = load_int32(table.header_offsets, index)
    found.header_end = load_int32(table.header_offsets, index + 1)
    if (
        found.header_first < 0
        or found.header_end < found.header_first
        or found.header_end > min(table.header_keys.length, table.header_values.length)
    ):
        return BAD_HEADERS
    for entry in range(found.header_first, found.header_end):
        wrong = span_at(&table.header_keys, entry, &start, &size)
        if wrong:
            return wrong
        if size < 0 or not is_utf8(start, size):
            return BAD_HEADERS
        found.header_bytes += span_size(size)
        wrong = span_at(&table.header_values, entry, &start, &size)
        if wrong:
            return wrong
        found.header_bytes += span_size(size)
        if found.header_bytes > INT32_LAST:
            return BAD_SIZE
    return FINE


cdef inline int find_row(const Table* table, int64_t position, Row* found) noexcept nogil:
    """Find what the record at `position` is made of."""
    cdef int64_t row = position if table.rows == NULL else load_int64(table.rows, position)
    cdef int wrong
    if row < 0 or row >= table.length:
        return BAD_ROW
    wrong = span_at(&table.values, row, &found.value, &found.value_size)
    if wrong:
        return wrong
    wrong = span_at(&table.keys, row, &found.key, &found.key_size)
    if wrong:
        return wrong
    found.timestamp = table.timestamp_default
    if table.has_timestamps and is_valid(table.timestamp_validity, table.timestamp_start + row):
        found.timestamp = load_int64(table.timestamps, table.timestamp_start + row)
    found.header_first = found.header_end = found.header_bytes = 0
    if table.has_headers:
        return measure_headers(table, row, found)
    return FINE


cdef inline Py_ssize_t content_size(
    const Row* row, int64_t timestamp_delta, int64_t offset_delta
) noexcept nogil:
    """Return the bytes of a record behind its length."""
    return (
        1
        + ql_varint_size(zigzag(timestamp_delta))
        + ql_varint_size(<uint64_t> offset_delta << 1)
        + span_size(row.key_size)
        + span_size(row.value_size)
        + ql_varint_size(<uint64_t> (row.header_end - row.header_first) << 1)
        + row.header_bytes
    )


cdef struct Plan:
    int64_t first
    int64_t next
    Py_ssize_t size
    int64_t base_timestamp
    int64_t max_timestamp


cdef int plan_body(
    const Table* table, int64_t end, Py_ssize_t limit, Plan* plan
) noexcept nogil:
    """Find how many rows from `plan.first` on fit into `limit` bytes, one at least."""
    cdef Row row
    cdef int64_t delta = 0
    cdef Py_ssize_t size
    cdef int wrong
    plan.next = plan.first
    plan.size = 0
    while plan.next < end and plan.next - plan.first < INT32_LAST:
        wrong = find_row(table, plan.next, &row)
        if wrong:
            return wrong
        if plan.next == plan.first:
            plan.base_timestamp = plan.max_timestamp = row.timestamp
        if ql_sub_overflows(row.timestamp, plan.base_timestamp, &delta):
            return BAD_TIMESTAMP
        size = content_size(&row, delta, plan.next - plan.first)
        if size > INT32_LAST:
            return BAD_SIZE
        size += ql_varint_size(<uint64_t> size << 1)
        if plan.size + size > limit and plan.next > plan.first:
            break
        plan.size += size
        plan.max_timestamp = max(plan.max_timestamp, row.timestamp)
        plan.next += 1
    return FINE


cdef inline uint8_t* put_span(uint8_t* p, bytes_t start, int64_t size) noexcept nogil:
    if size < 0:
        p[0] = 1
        return p + 1
    p = put_varint(p, <uint64_t> size << 1)
    memcpy(p, start, size)
    return p + size


cdef uint8_t* put_headers(const Table* table, const Row* row, uint8_t* p) noexcept nogil:
    cdef int64_t entry, size = 0
    cdef bytes_t start = NULL
    for entry in range(row.header_first, row.header_end):
        span_at(&table.header_keys, entry, &start, &size)
        p = put_span(p, start, size)
        span_at(&table.header_values, entry, &start, &size)
        p = put_span(p, start, size)
    return p


cdef uint8_t* put_body(const Table* table, const Plan* plan, uint8_t* p) noexcept nogil:
    """Write the planned rows; returns where they end."""
    cdef Row row
    cdef int64_t position, delta, offset_delta
    for position in range(plan.first, plan.next):
        find_row(table, position, &row)  # the plan found it right
        delta = row.timestamp - plan.base_timestamp
        offset_delta = position - plan.first
        p = put_varint(p, <uint64_t> content_size(&row, delta, offset_delta) << 1)
        p[0] = 0  # attributes
        p = put_varint(p + 1, zigzag(delta))
        p = put_varint(p, <uint64_t> offset_delta << 1)
        p = put_span(p, row.key, row.key_size)
        p = put_span(p, row.value, row.value_size)
        p = put_varint(p, <uint64_t> (row.header_end - row.header_first) << 1)
        if row.header_end > row.header_first:
            p = put_headers(table, &row, p)
    return p


cdef Py_ssize_t HEADER_SIZE = 61


cdef class ColumnWriter:
    """Encodes rows of columns into bodies; `rows` (int64) lists the rows to take, None for all.

    Raises ValueError when buffers are shorter than their column.
    """

    cdef Held held
    cdef Table table
    cdef readonly int64_t count  # rows to take

    def __init__(self, object columns, object rows):
        cdef Py_ssize_t size
        self.held = Held()
        self.count = 0
        open_table(self.held, columns, &self.table)
        self.table.rows = self.held.hold(rows, 0, &size)
        self.count = self.table.length if rows is None else size // 8

    def write(self, int64_t first, int64_t end, Py_ssize_t body_limit, object seal):
        """Encode rows from `first` on into one body of at most `body_limit` bytes, one row at least.

        [first, end) counts in the rows to take. Returns (bytes, next, base timestamp, max
        timestamp): the body, or with `seal` the whole batch. Raises ValueError for a row that is
        not in the columns or cannot be encoded.
        """
        cdef Plan plan
        cdef Py_ssize_t room = 0 if seal is None else HEADER_SIZE
        cdef uint8_t* start
        cdef uint8_t* stop
        cdef bytes batch, header
        cdef int wrong
        if not 0 <= first < end <= self.count:
            raise ValueError(f"rows [{first}, {end}) are not in a table of {self.count}")
        plan.first = first
        plan.base_timestamp = plan.max_timestamp = 0
        with nogil:
            wrong = plan_body(&self.table, end, body_limit, &plan)
        if wrong == BAD_SIZE:
            raise OverflowError("a record of 2 GiB does not fit its length field")
        if wrong:
            raise ValueError(f"row {plan.next}: {BAD_TEXT[wrong]}")
        batch = PyBytes_FromStringAndSize(NULL, room + plan.size)
        start = <uint8_t*> PyBytes_AS_STRING(batch) + room
        with nogil:
            stop = put_body(&self.table, &plan, start)
        assert stop == start + plan.size, f"{stop - start} bytes written, {plan.size} planned"
        if seal is not None:
            # The batch is ours alone until it is returned, so its header may still be written.
            header = seal(
                memoryview(batch)[HEADER_SIZE:],
                plan.next - first,
                plan.base_timestamp,
                plan.max_timestamp,
            )
            assert PyBytes_GET_SIZE(header) == HEADER_SIZE, f"a header of {len(header)} bytes"
            memcpy(PyBytes_AS_STRING(batch), PyBytes_AS_STRING(header), HEADER_SIZE)
        return batch, plan.next, plan.base_timestamp, plan.max_timestamp


# --- partitioning ------------------------------------------------------------------------------


cdef int32_t hash_key(bytes_t p, int64_t size) noexcept nogil:
    """The murmur2 of `murmur2.py`."""
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t state = <uint32_t> 0x9747B28C ^ <uint32_t> size
    cdef uint32_t word
    while size >= 4:
        word = p[0] | <uint32_t> p[1] << 8 | <uint32_t> p[2] << 16 | <uint32_t> p[3] << 24
        word *= m
        word ^= word >> 24
        word *= m
        state = (state * m) ^ word
        p += 4
        size -= 4
    if size:
        if size >= 3:
            state ^= <uint32_t> p[2] << 16
        if size >= 2:
            state ^= <uint32_t> p[1] << 8
        state ^= p[0]
        state *= m
    state ^= state >> 13
    state *= m
    state ^= state >> 15
    return <int32_t> state


def murmur2(object key):
    """Return the 32-bit hash of `key` as a signed int, [-2^31, 2^31)."""
    cdef Held held = Held()
    cdef Py_ssize_t size
    cdef bytes_t start = held.hold(key, 0, &size)
    return hash_key(start, size)


cdef Memory place_rows(object keys, object partitions, object null_start):
    """Return each row's partition as int32."""
    cdef Held held = Held()
    cdef Source source
    cdef Growing block
    cdef int64_t row = 0
    cdef int32_t count, turn
    cdef int wrong
    if not 1 <= partitions <= INT32_LAST:
        raise ValueError(f"{partitions} partitions")
    count = partitions
    turn = null_start % partitions
    open_binary(held, keys, &source)
    block.data = NULL
    block.used = block.capacity = 0
    grow(&block, 4 * source.length)
    with nogil:
        wrong = fill_places(&source, count, turn, <int32_t*> block.data, &row)
    block.used = 4 * source.length
    memory = take(&block)
    if wrong:
        raise ValueError(f"row {row}: its bytes leave the column's data")
    return memory


cdef int fill_places(
    const Source* source, int32_t count, int32_t turn, int32_t* places, int64_t* row
) noexcept nogil:
    cdef bytes_t start = NULL
    cdef int64_t size = 0
    cdef int wrong
    row[0] = 0
    while row[0] < source.length:
        wrong = span_at(source, row[0], &start, &size)
        if wrong:
            return wrong
        if size < 0:
            places[row[0]] = turn
            turn = turn + 1 if turn + 1 < count else 0
        else:
            places[row[0]] = (hash_key(start, size) & 0x7FFFFFFF) % count
        row[0] += 1
    return FINE


def partitions_for_keys(object keys, object partitions, object null_start):
    """Return each row's partition (int32): by murmur2 of the key, in turn where it is null.

    The first null key goes to partition `null_start % partitions`.
    """
    return memoryview(place_rows(keys, partitions, null_start))


def partition_rows(object keys, object partitions, object null_start):
    """Return (rows, bounds): partition p has rows[bounds[p]:bounds[p + 1]] (int64), in row order.

    Null keys are dealt out in turn from partition `null_start % partitions`.
    """
    cdef Memory places = place_rows(keys, partitions, null_start)
    cdef Memory rows = Memory.__new__(Memory)
    cdef Memory next_of = Memory.__new__(Memory)
    cdef int32_t* place = <int32_t*> places.data
    cdef int64_t* following
    cdef int64_t* taken
    cdef int64_t length = places.size // 4, row
    cdef Py_ssize_t partition, count = partitions
    rows.data = <char*> PyMem_RawMalloc(max(8 * length, 1))
    next_of.data = <char*> PyMem_RawMalloc(8 * (count + 1))
    if rows.data == NULL or next_of.data == NULL:
        raise MemoryError(f"indices of {length} rows")
    rows.size = 8 * length
    taken = <int64_t*> rows.data
    following = <int64_t*> next_of.data
    memset(following, 0, 8 * (count + 1))
    with nogil:
        for row in range(length):
            following[place[row] + 1] += 1
        for partition in range(count):
            following[partition + 1] += following[partition]
    bounds = [following[partition] for partition in range(count + 1)]
    with nogil:
        for row in range(length):
            taken[following[place[row]]] = row
            following[place[row]] += 1
    return memoryview(rows), bounds
