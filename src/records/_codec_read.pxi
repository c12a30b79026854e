# Reading records: varints, one record checked against every bound, and the walks over a body.

# --- varints --------------------------------------------------------------------------------------


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


# --- one record -----------------------------------------------------------------------------------


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
    """Return True for strict UTF-8: no overlong forms, no surrogates, up to U+10FFFF."""
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
    """Read a length of [least, rest] and skip as many bytes; -1 is null."""
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
    """Read the record at `at` and check all but its offset in the batch."""
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


# --- bodies ---------------------------------------------------------------------------------------


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
    """Fill `bounds` from a `record.Body`; raises Malformed for an invalid count."""
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


def walk_records(
    object body, int64_t max_timestamp, bint keys_required, int64_t min_timestamp=INT64_MIN
):
    """Check every record of a producer's batch: offsets, timestamps, keys; raises Malformed."""
    cdef Held held = Held()
    cdef Bounds bounds
    cdef int64_t index = 0
    cdef int wrong
    bound(held, body, &bounds)
    with nogil:
        wrong = walk(&bounds, min_timestamp, max_timestamp, keys_required, &index)
    if wrong:
        raise Malformed(wrong, index)


cdef int walk(
    const Bounds* bounds,
    int64_t min_timestamp,
    int64_t max_timestamp,
    bint keys_required,
    int64_t* index,
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
            if timestamp < min_timestamp and timestamp != -1:
                return TIMESTAMP_MIN
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
    """Walk to the end even after a match: a malformed batch has no result."""
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


# --- to objects -----------------------------------------------------------------------------------


def read_records(
    object body, int64_t start_offset, int64_t end_offset, list records, object make=Record
):
    """Append `make(offset, timestamp_ms, key, value, headers)` of each record in
    [start_offset, end_offset) to `records`; raises Malformed."""
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
                make(
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
    """Return ((key, value), ...) of headers already checked by `get_record`."""
    cdef bytes_t p = view.headers
    cdef bytes_t start
    cdef int64_t index, size = 0
    cdef list headers = []
    cdef str key
    for index in range(view.header_count):
        # the spans lie within the record; read them again with the exact size
        start = next_span(&p, &size)
        key = start[:size].decode("utf-8")
        start = next_span(&p, &size)
        headers.append((key, span_bytes(start, size)))
    return tuple(headers)


cdef inline bytes_t next_span(bytes_t* at, int64_t* size) noexcept nogil:
    """Skip a checked span and return its start; the size is -1 for null."""
    cdef bytes_t start
    get_varint_slow(at, at[0] + 5, 5, size)
    start = at[0]
    if size[0] > 0:
        at[0] += size[0]
    return start
