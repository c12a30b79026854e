# Writing records: from objects, and from columns in two passes (plan, then put).

# --- from objects ---------------------------------------------------------------------------------


cdef class Output:
    """A growable block of bytes."""

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
        """Write a length and the bytes; -1 for None."""
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
        """Write the content of a record after its length."""
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
    """Encode records; return (body, base timestamp, max timestamp, last offset delta).

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


# --- from columns ---------------------------------------------------------------------------------


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


# Reasons to reject a row; raised as ValueErrors.
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
    """Hold a BinaryColumn's buffers, which must be large enough for its length."""
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
    """Hold the buffers of a RecordColumns; raises ValueError for buffers that are too short."""
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
    """Find a row's bytes; the size is -1 for null. The row is already checked."""
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
    """Find a row's headers and their encoded size."""
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
    """Find the fields of the record at `position`."""
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
    """Return the bytes of a record after its length."""
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
    """Count the rows from `plan.first` that fit into `limit` bytes, at least one."""
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
    """Write the planned rows; return the end position."""
    cdef Row row
    cdef int64_t position, delta, offset_delta
    for position in range(plan.first, plan.next):
        find_row(table, position, &row)  # checked by the plan
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
    """Encode rows of columns into bodies; `rows` (int64) lists the selected rows, None for all.

    Raises ValueError when buffers are shorter than their column.
    """

    cdef Held held
    cdef Table table
    cdef readonly int64_t count  # selected rows

    def __init__(self, object columns, object rows):
        cdef Py_ssize_t size
        self.held = Held()
        self.count = 0
        open_table(self.held, columns, &self.table)
        self.table.rows = self.held.hold(rows, 0, &size)
        self.count = self.table.length if rows is None else size // 8

    def write(self, int64_t first, int64_t end, Py_ssize_t body_limit, object seal):
        """Encode rows from `first` into one body of at most `body_limit` bytes, at least one row.

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
            # No other object has the batch before it is returned, so the header may still be
            # written.
            header = seal(
                memoryview(batch)[HEADER_SIZE:],
                plan.next - first,
                plan.base_timestamp,
                plan.max_timestamp,
            )
            assert PyBytes_GET_SIZE(header) == HEADER_SIZE, f"a header of {len(header)} bytes"
            memcpy(PyBytes_AS_STRING(batch), PyBytes_AS_STRING(header), HEADER_SIZE)
        return batch, plan.next, plan.base_timestamp, plan.max_timestamp
