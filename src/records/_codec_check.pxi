# Validation of whole batches in one call. The result is their headers, or None if any check fails:
# the caller then applies the rules one by one and raises the error.
#
# The rules are those of `batch.check_crc` and `validate.validate_batch`. A property test proves
# that these functions accept no batch that those reject.

cdef enum:
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    SEQUENCE_AT = 53
    CODEC_BITS = 0x07
    TRANSACTIONAL = 0x10
    NEVER_OF_CLIENTS = 0x68  # log append time, control, delete horizon
    UNLOCKED_BYTES_MIN = 65536  # below it, releasing and taking the GIL costs too much


cdef bint is_sealed(bytes_t p, Py_ssize_t size) noexcept nogil:
    """Return True if the bytes are one whole batch with a valid CRC."""
    return (
        size >= HEADER_BYTES
        and p[MAGIC_AT] == USUAL_MAGIC
        and get_be(p + LENGTH_AT, 4) + LENGTH_BEHIND == size
        and ql_crc32c(p + CRC_FROM, size - CRC_FROM) == <uint32_t> get_be(p + CRC_AT, 4)
    )


cdef bint is_sound(
    bytes_t p, Py_ssize_t size, bint keys_required, int64_t oldest_ms, int64_t newest_ms
) noexcept nogil:
    """Return True if the bytes are an uncompressed client batch, valid in header and records."""
    return (
        has_sound_header(p, size, newest_ms)
        and not get_be(p + CRC_FROM, 2) & CODEC_BITS
        and has_sound_records(p, p + HEADER_BYTES, size - HEADER_BYTES, keys_required, oldest_ms)
    )


cdef bint has_sound_header(bytes_t p, Py_ssize_t size, int64_t newest_ms) noexcept nogil:
    """Return True if the bytes are a client batch, valid in its CRC and header."""
    cdef int64_t attributes, record_count, max_timestamp
    if not is_sealed(p, size):
        return False
    attributes = get_be(p + CRC_FROM, 2)
    if attributes & NEVER_OF_CLIENTS:
        return False
    record_count = get_be(p + COUNT_AT, 4)
    if record_count < 1 or get_be(p + LAST_DELTA_AT, 4) != record_count - 1:
        return False
    if get_be(p + PRODUCER_ID_AT, 8) == -1:
        if attributes & TRANSACTIONAL:
            return False
    elif p[PRODUCER_ID_AT] & 0x80 or p[PRODUCER_EPOCH_AT] & 0x80 or p[SEQUENCE_AT] & 0x80:
        return False  # one of them is negative
    max_timestamp = get_be(p + MAX_TIMESTAMP_AT, 8)
    if get_be(p + BASE_TIMESTAMP_AT, 8) < -1 or max_timestamp < -1:
        return False
    return max_timestamp <= newest_ms or max_timestamp == -1


cdef bint has_sound_records(
    bytes_t p, bytes_t records, Py_ssize_t size, bint keys_required, int64_t oldest_ms
) noexcept nogil:
    """Return True if these are the records, inflated, of a batch with a sound header."""
    cdef Bounds bounds
    cdef int64_t index = 0
    bounds.start = records
    bounds.end = records + size
    bounds.record_count = get_be(p + COUNT_AT, 4)
    bounds.last_offset_delta = get_be(p + LAST_DELTA_AT, 4)
    if bounds.record_count > size // RECORD_SIZE_MIN:
        return False
    bounds.base_offset = 0
    bounds.base_timestamp = get_be(p + BASE_TIMESTAMP_AT, 8)
    bounds.is_append_time = False
    return walk(
        &bounds, oldest_ms, get_be(p + MAX_TIMESTAMP_AT, 8), keys_required, &index
    ) == FINE


cdef object header_of(bytes_t p):
    return tuple.__new__(
        BatchHeader,
        (
            get_be(p, 8),
            get_be(p + LENGTH_AT, 4),
            get_be(p + EPOCH_AT, 4),
            p[MAGIC_AT],
            <uint32_t> get_be(p + CRC_AT, 4),
            get_be(p + CRC_FROM, 2),
            get_be(p + LAST_DELTA_AT, 4),
            get_be(p + BASE_TIMESTAMP_AT, 8),
            get_be(p + MAX_TIMESTAMP_AT, 8),
            get_be(p + PRODUCER_ID_AT, 8),
            get_be(p + PRODUCER_EPOCH_AT, 2),
            get_be(p + SEQUENCE_AT, 4),
            get_be(p + COUNT_AT, 4),
        ),
    )


cdef bint are_sealed(bytes_t p, Py_ssize_t size) noexcept nogil:
    """Return True if the bytes are whole batches, at least one, with valid CRCs."""
    cdef int64_t batch_size
    if size == 0:
        return False
    while size:
        if size < HEADER_BYTES:
            return False
        batch_size = get_be(p + LENGTH_AT, 4) + LENGTH_BEHIND
        if batch_size > size or not is_sealed(p, batch_size):
            return False
        p += batch_size
        size -= batch_size
    return True


def sealed_headers(object batches):
    """Return (position, header) of each if `batches` are whole with valid CRCs, else None."""
    cdef Py_buffer view
    cdef bytes_t p
    cdef Py_ssize_t position = 0
    cdef bint are_right
    cdef list headers = []
    PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
    try:
        p = <bytes_t> view.buf
        if view.len < UNLOCKED_BYTES_MIN:
            are_right = are_sealed(p, view.len)
        else:
            with nogil:
                are_right = are_sealed(p, view.len)
        if not are_right:
            return None
        while position < view.len:
            headers.append((position, header_of(p + position)))
            position += get_be(p + position + LENGTH_AT, 4) + LENGTH_BEHIND
        return headers
    finally:
        PyBuffer_Release(&view)


def sound_header(object batch, bint keys_required, int64_t oldest_ms, int64_t newest_ms):
    """Return the header if `batch` is a valid, uncompressed client batch, else None."""
    cdef Py_buffer view
    cdef bytes_t p
    cdef bint is_right
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        p = <bytes_t> view.buf
        if view.len < UNLOCKED_BYTES_MIN:
            is_right = is_sound(p, view.len, keys_required, oldest_ms, newest_ms)
        else:
            with nogil:
                is_right = is_sound(p, view.len, keys_required, oldest_ms, newest_ms)
        return header_of(p) if is_right else None
    finally:
        PyBuffer_Release(&view)
