# Records to columns: many bodies into one set of Arrow buffers.


cdef struct Binary:
    Growing data
    Growing offsets  # int32
    Growing validity  # unset bits are 1
    int64_t length
    int64_t null_count


cdef int reserve(Binary* column, int64_t rows, Py_ssize_t data_size) except -1:
    """Reserve `rows` more rows, their bits set, with at most `data_size` bytes of data."""
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
    """Append a span, null if its size is -1; the space is reserved."""
    if size > 0:
        memcpy(column.data.data + column.data.used, start, size)
        column.data.used += size
    elif size < 0:
        (<uint8_t*> column.validity.data)[column.length >> 3] &= ~(1 << (column.length & 7))
        column.null_count += 1
    column.length += 1
    (<int32_t*> column.offsets.data)[column.length] = <int32_t> column.data.used


cdef object take_validity(Growing* validity, int64_t length, int64_t null_count):
    """Return the bitmap cut to its length, the bits after it zero; None without nulls."""
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


cdef inline int64_t microseconds(int64_t timestamp_ms) noexcept nogil:
    """Convert milliseconds to microseconds, clamped to 64 bits."""
    if timestamp_ms > TIMESTAMP_MS_LAST:
        return TIMESTAMP_MS_LAST * 1000
    if timestamp_ms < -TIMESTAMP_MS_LAST:
        return -TIMESTAMP_MS_LAST * 1000
    return timestamp_ms * 1000


cdef class ColumnBuilder:
    """Collect the records of many bodies into one set of columns.

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
        # Local copies: the compiler may keep them in registers, which no write of bytes can alias.
        cdef Binary keys = self.keys, values = self.values
        cdef int wanted = self.wanted
        cdef int64_t length = self.length, limit = self.data_limit
        cdef int64_t* offsets = <int64_t*> self.offsets.data
        cdef int64_t* timestamps = <int64_t*> self.timestamps.data
        cdef int32_t* types = <int32_t*> self.types.data
        while index[0] < bounds.record_count:
            wrong = get_record(&p, bounds.end, &view)
            if not wrong:
                wrong = place(bounds, &view, last_delta, &timestamp)
            if wrong:
                return wrong
            last_delta = view.offset_delta
            offset = bounds.base_offset + last_delta
            index[0] += 1
            if offset < start_offset or offset >= end_offset or is_full:
                continue
            if wanted & WANT_VALUE:
                if view.value_size > limit - values.data.used:
                    is_full = True
                    continue
                add_span(&values, view.value, view.value_size)
            if wanted & WANT_KEY:
                if view.key_size > limit - keys.data.used:
                    is_full = True
                    continue
                add_span(&keys, view.key, view.key_size)
            if wanted & WANT_OFFSET:
                offsets[length] = offset
            if wanted & WANT_TIMESTAMP:
                timestamps[length] = microseconds(timestamp)
            if wanted & WANT_TIMESTAMP_TYPE:
                types[length] = bounds.is_append_time
            if wanted & WANT_HEADERS:
                is_full = not self.add_headers(&view)
            length += 1
        if p != bounds.end:
            return LEFTOVER
        if is_full:
            return TOO_LARGE
        self.keys, self.values, self.length = keys, values, length
        self.offsets.used = self.timestamps.used = 8 * length
        self.types.used = 4 * length
        return FINE

    cdef inline bint add_headers(self, const View* view) noexcept nogil:
        """Add one record's headers, null without headers; return False if no space is left."""
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
        """Return the columns and empty the builder."""
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
    """Return the number of headers in a body, up to the first malformed record."""
    cdef bytes_t p = bounds.start
    cdef int64_t index, count = 0
    cdef View view
    for index in range(bounds.record_count):
        if get_record(&p, bounds.end, &view):
            break
        count += view.header_count
    return count
