# Kafka's partitioner over a column of keys.


cdef int32_t hash_key(bytes_t p, int64_t size) noexcept nogil:
    """Return the hash of `murmur2.py`."""
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
    """Return each row's partition (int32): murmur2 of the key; null keys take turns.

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
