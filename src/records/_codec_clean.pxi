# Compaction: the map of keys to newest offsets, and the filter of whole batches.
#
# The loops process plain batches (uncompressed, not transactional) and stop before every other
# batch and every invalid one: the caller processes that batch by itself and raises its error.

# Fields of a batch's header and their positions; `batch.py` documents them, and a test compares.
cdef enum:
    HEADER_BYTES = 61
    LENGTH_AT = 8
    LENGTH_BEHIND = 12
    EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    CRC_FROM = 21
    LAST_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    COUNT_AT = 57
    USUAL_MAGIC = 2
    APPEND_TIME_BIT = 0x08
    HORIZON_BIT = 0x40
    UNUSUAL_MASK = 0x37  # a codec, transactional, control

cdef int64_t NO_OFFSET = -1


cdef inline int64_t get_be(bytes_t p, int size) noexcept nogil:
    """Read a signed big-endian number of 2, 4 or 8 bytes."""
    cdef uint64_t raw = 0
    cdef int index
    for index in range(size):
        raw = raw << 8 | p[index]
    if size < 8 and raw >> (8 * size - 1):
        return <int64_t> raw - (<int64_t> 1 << (8 * size))
    return <int64_t> raw


cdef inline void put_be(uint8_t* p, int size, uint64_t raw) noexcept nogil:
    while size:
        size -= 1
        p[size] = <uint8_t> raw
        raw >>= 8


# --- the map --------------------------------------------------------------------------------------


cdef struct Slot:
    uint64_t first
    uint64_t second
    int64_t offset_end  # offset + 1; 0: the slot is free


cdef class KeyMap:
    """Newest offset of each key."""

    cdef Slot* slots
    cdef uint64_t slot_count
    cdef uint64_t[2] secret
    cdef readonly int64_t count
    cdef readonly int64_t capacity

    def __init__(self, object slot_count, object seed):
        cdef Held held = Held()
        cdef Py_ssize_t size
        cdef bytes_t secret = held.hold(seed, 16, &size)
        if not 2 <= slot_count <= 1 << 32:
            raise ValueError(f"{slot_count} slots")
        if self.slots != NULL:
            raise ValueError("a map is made once")
        self.slots = <Slot*> PyMem_RawCalloc(slot_count, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError(f"a map of {slot_count} keys")
        self.slot_count = slot_count
        self.capacity = slot_count * 9 // 10
        self.secret[0], self.secret[1] = ql_load64(secret), ql_load64(secret + 8)
        ql_want_huge_pages(<char*> self.slots, slot_count * sizeof(Slot))

    def __dealloc__(self):
        PyMem_RawFree(self.slots)

    def offset_of(self, object key):
        cdef Held held = Held()
        cdef Py_ssize_t size
        cdef bytes_t start = held.hold(key, 0, &size)
        cdef uint64_t[2] hash
        ql_siphash(start, size, self.secret, hash)
        return self.find(hash).offset_end - 1

    cdef inline Slot* first_slot(self, const uint64_t* hash) noexcept nogil:
        return &self.slots[(hash[0] >> 32) * self.slot_count >> 32]

    cdef inline Slot* find(self, const uint64_t* hash) noexcept nogil:
        """Return the slot of the key, else the free slot where it belongs."""
        cdef Slot* slot = self.first_slot(hash)
        cdef Slot* end = self.slots + self.slot_count
        while slot.offset_end and (slot.first != hash[0] or slot.second != hash[1]):
            slot += 1
            if slot == end:
                slot = self.slots
        return slot

    cdef inline bint put(self, const uint64_t* hash, int64_t offset) noexcept nogil:
        """Record an offset of a key; return False if the map has no free slot for a new key."""
        cdef Slot* slot = self.find(hash)
        if slot.offset_end == 0:
            if self.count >= self.capacity:
                return False
            self.count += 1
            slot.first, slot.second = hash[0], hash[1]
        if offset >= slot.offset_end:
            slot.offset_end = offset + 1
        return True


# --- batches --------------------------------------------------------------------------------------


cdef int check_records(const Bounds* bounds, int64_t* index) noexcept nogil:
    """Check the records of a body and their offsets."""
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
        index[0] += 1
    return FINE if p == bounds.end else LEFTOVER


cdef struct Usual:
    bytes_t start
    int64_t size
    int64_t leader_epoch
    int64_t attributes
    int64_t last_offset
    int64_t max_timestamp
    Bounds bounds


cdef bint open_usual(
    bytes_t p, int64_t left, int64_t least_offset, int64_t least_epoch, Usual* batch
) noexcept nogil:
    """Fill `batch` if it is whole, valid and plain."""
    cdef Bounds* bounds = &batch.bounds
    if left < HEADER_BYTES or p[MAGIC_AT] != USUAL_MAGIC:
        return False
    batch.start = p
    batch.size = get_be(p + LENGTH_AT, 4) + LENGTH_BEHIND
    batch.leader_epoch = get_be(p + EPOCH_AT, 4)
    batch.attributes = get_be(p + CRC_FROM, 2)
    if not HEADER_BYTES <= batch.size <= left or batch.leader_epoch < least_epoch:
        return False
    if batch.attributes & UNUSUAL_MASK:
        return False
    bounds.base_offset = get_be(p, 8)
    bounds.last_offset_delta = get_be(p + LAST_DELTA_AT, 4)
    if bounds.last_offset_delta < 0 or bounds.base_offset < least_offset:
        return False
    if bounds.base_offset >= INT64_MAX - bounds.last_offset_delta:
        return False
    batch.last_offset = bounds.base_offset + bounds.last_offset_delta
    bounds.start = p + HEADER_BYTES
    bounds.end = p + batch.size
    bounds.record_count = get_be(p + COUNT_AT, 4)
    if not 0 <= bounds.record_count <= (batch.size - HEADER_BYTES) // RECORD_SIZE_MIN:
        return False
    batch.max_timestamp = get_be(p + MAX_TIMESTAMP_AT, 8)
    bounds.base_timestamp = get_be(p + BASE_TIMESTAMP_AT, 8)
    bounds.is_append_time = batch.attributes & APPEND_TIME_BIT
    bounds.append_timestamp = batch.max_timestamp
    return ql_crc32c(p + CRC_FROM, batch.size - CRC_FROM) == <uint32_t> get_be(p + CRC_AT, 4)


cdef enum:
    AHEAD = 16  # records whose slots are prefetched together: slots are seldom cached


cdef struct Ahead:
    uint64_t[2] hash
    bytes_t start
    bytes_t end
    int64_t offset
    int64_t timestamp
    bint has_key
    bint is_tombstone


cdef struct Kept:
    char* place  # output position of the kept records, NULL while they are a prefix of the batch
    int64_t size
    int64_t count
    int64_t tombstones
    int64_t max_timestamp


cdef class Sieve:
    """Build the key map from batches, then filter batches by it."""

    cdef readonly KeyMap keys
    cdef public int64_t first_offset
    cdef public int64_t end_offset
    cdef public int64_t next_offset
    cdef public int64_t leader_epoch
    cdef public int64_t wall_ms
    cdef readonly int64_t records_read
    cdef readonly int64_t records_kept
    cdef Growing stays
    cdef Growing output
    cdef Growing notes

    def __init__(self, KeyMap keys not None, first_offset, end_offset, wall_ms):
        self.keys = keys
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.wall_ms = wall_ms
        self.next_offset = 0
        self.leader_epoch = -1

    def __dealloc__(self):
        PyMem_RawFree(self.stays.data)
        PyMem_RawFree(self.output.data)
        PyMem_RawFree(self.notes.data)

    def keep_batches(self, object last_offsets):
        cdef int64_t offset
        self.stays.used = 0
        grow(&self.stays, 8 * len(last_offsets))
        for offset in sorted(last_offsets):
            (<int64_t*> (self.stays.data + self.stays.used))[0] = offset
            self.stays.used += 8

    # --- mapping ---

    def map_batches(self, object buffer, int64_t position):
        cdef Held held = Held()
        cdef Py_ssize_t size
        cdef bytes_t data = held.hold(buffer, 0, &size)
        if not 0 <= position <= size:
            raise ValueError(f"position {position} in a buffer of {size} bytes")
        with nogil:
            position = self.map_run(data, position, size)
        return position

    cdef int64_t map_run(self, bytes_t data, int64_t position, int64_t size) noexcept nogil:
        cdef Usual batch
        cdef int64_t index = 0, full = NO_OFFSET
        while open_usual(
            data + position, size - position, self.next_offset, self.leader_epoch, &batch
        ):
            if batch.bounds.base_offset >= self.end_offset:
                break
            if batch.last_offset >= self.first_offset:
                if self.map_records(&batch.bounds, &index, &full) or full != NO_OFFSET:
                    break
            self.next_offset = batch.last_offset + 1
            self.leader_epoch = batch.leader_epoch
            position += batch.size
        return position

    def map_body(self, object body):
        cdef Held held = Held()
        cdef Bounds bounds
        cdef int64_t index = 0, full = NO_OFFSET
        cdef int wrong
        bound(held, body, &bounds)
        with nogil:
            wrong = check_records(&bounds, &index)
            if not wrong:
                wrong = self.map_records(&bounds, &index, &full)
        if wrong:
            raise Malformed(wrong, index)
        return full

    cdef int map_records(
        self, const Bounds* bounds, int64_t* index, int64_t* full
    ) noexcept nogil:
        """Add the keys to the map; `full` is the offset of the first record without a free slot."""
        cdef bytes_t p = bounds.start
        cdef int64_t last_delta = -1
        cdef int wrong, count = 0, each
        cdef Ahead[AHEAD] ahead
        index[0] = 0
        while index[0] < bounds.record_count:
            wrong = self.look_ahead(bounds, &p, &last_delta, index, ahead, &count)
            if wrong:
                return wrong
            for each in range(count):
                if (
                    ahead[each].has_key
                    and full[0] == NO_OFFSET
                    and self.first_offset <= ahead[each].offset < self.end_offset
                    and not self.keys.put(ahead[each].hash, ahead[each].offset)
                ):
                    full[0] = ahead[each].offset
        return FINE if p == bounds.end else LEFTOVER

    cdef inline int look_ahead(
        self,
        const Bounds* bounds,
        bytes_t* at,
        int64_t* last_delta,
        int64_t* index,
        Ahead* ahead,
        int* count,
    ) noexcept nogil:
        """Read some records, hash their keys and prefetch the map's slots."""
        cdef Ahead* one
        cdef int wrong
        cdef View view
        count[0] = 0
        while count[0] < AHEAD and index[0] < bounds.record_count:
            one = &ahead[count[0]]
            one.start = at[0]
            wrong = get_record(at, bounds.end, &view)
            if not wrong:
                wrong = place(bounds, &view, last_delta[0], &one.timestamp)
            if wrong:
                return wrong
            last_delta[0] = view.offset_delta
            one.end = at[0]
            one.offset = bounds.base_offset + view.offset_delta
            one.has_key = view.key_size >= 0
            one.is_tombstone = view.value_size < 0
            if one.has_key:
                ql_siphash(view.key, view.key_size, self.keys.secret, one.hash)
                ql_fetch(self.keys.first_slot(one.hash))
            count[0] += 1
            index[0] += 1
        return FINE

    # --- filtering ---

    def filter_batches(self, object buffer, int64_t position):
        cdef Held held = Held()
        cdef Py_ssize_t size
        cdef bytes_t data = held.hold(buffer, 0, &size)
        if not 0 <= position <= size:
            raise ValueError(f"position {position} in a buffer of {size} bytes")
        grow(&self.output, size - position)  # no plain batch grows
        grow(&self.notes, 24 * ((size - position) // HEADER_BYTES))
        with nogil:
            position = self.filter_run(data, position, size)
        return position

    cdef int64_t filter_run(self, bytes_t data, int64_t position, int64_t size) noexcept nogil:
        cdef Usual batch
        cdef Kept kept
        cdef int64_t index = 0
        while open_usual(
            data + position, size - position, self.next_offset, self.leader_epoch, &batch
        ):
            kept.place = self.output.data + self.output.used + HEADER_BYTES
            if batch.bounds.base_offset >= self.end_offset:
                self.put_whole(&batch)
            elif self.filter_records(&batch.bounds, self.is_due(&batch), &index, &kept):
                break
            elif (
                kept.tombstones
                and not batch.attributes & HORIZON_BIT
                and batch.last_offset < self.end_offset
            ):
                break  # the batch needs a delete horizon
            else:
                self.put_kept(&batch, &kept)
            self.next_offset = batch.last_offset + 1
            self.leader_epoch = batch.leader_epoch
            position += batch.size
        return position

    cdef inline bint is_due(self, const Usual* batch) noexcept nogil:
        """Return True if the delete horizon of the batch is due."""
        return (
            batch.attributes & HORIZON_BIT != 0 and batch.bounds.base_timestamp <= self.wall_ms
        )

    cdef int filter_records(
        self, const Bounds* bounds, bint is_due, int64_t* index, Kept* kept
    ) noexcept nogil:
        """Copy the remaining records to `kept.place`, unless all remain."""
        cdef bytes_t p = bounds.start
        cdef bytes_t run = p  # start of the kept bytes not copied yet
        cdef char* output = kept.place
        cdef int64_t last_delta = -1
        cdef int wrong, count = 0, each
        cdef Ahead[AHEAD] ahead
        cdef Ahead* one
        kept.size = kept.count = kept.tombstones = 0
        kept.max_timestamp = -1
        index[0] = 0
        while index[0] < bounds.record_count:
            wrong = self.look_ahead(bounds, &p, &last_delta, index, ahead, &count)
            if wrong:
                return wrong
            for each in range(count):
                one = &ahead[each]
                if self.keeps(one, is_due):
                    if kept.count == 0 or one.timestamp > kept.max_timestamp:
                        kept.max_timestamp = one.timestamp
                    kept.count += 1
                    kept.tombstones += one.is_tombstone
                else:
                    memcpy(output + kept.size, run, one.start - run)
                    kept.size += one.start - run
                    run = one.end
        if p != bounds.end:
            return LEFTOVER
        if kept.count < bounds.record_count:
            memcpy(output + kept.size, run, p - run)
            kept.size += p - run
        return FINE

    cdef inline bint keeps(self, const Ahead* one, bint is_due) noexcept nogil:
        if one.offset >= self.end_offset:
            return True
        if not one.has_key:
            return False
        if one.is_tombstone and is_due and one.offset < self.first_offset:
            return False
        return self.keys.find(one.hash).offset_end <= one.offset + 1

    cdef void put_whole(self, const Usual* batch) noexcept nogil:
        memcpy(self.output.data + self.output.used, batch.start, batch.size)
        self.output.used += batch.size
        self.note(batch.size, batch.last_offset, batch.max_timestamp)

    cdef void put_kept(self, const Usual* batch, const Kept* kept) noexcept nogil:
        """Finish the batch of the remaining records, which are already at their output position."""
        cdef uint8_t* p = <uint8_t*> self.output.data + self.output.used
        cdef int64_t size
        self.records_read += batch.bounds.record_count
        self.records_kept += kept.count
        if kept.count == 0 and not self.stays_without(batch.last_offset):
            return
        if kept.count == batch.bounds.record_count:
            self.put_whole(batch)
            return
        size = HEADER_BYTES + kept.size
        memcpy(p, batch.start, HEADER_BYTES)
        put_be(p + LENGTH_AT, 4, size - LENGTH_BEHIND)
        put_be(p + COUNT_AT, 4, kept.count)
        if kept.count == 0:
            put_be(p + CRC_FROM, 2, batch.attributes & ~HORIZON_BIT)
            put_be(p + BASE_TIMESTAMP_AT, 8, <uint64_t> -1)
        elif not batch.bounds.is_append_time:  # a batch without records keeps its producer's time
            put_be(p + MAX_TIMESTAMP_AT, 8, kept.max_timestamp)
        put_be(p + CRC_AT, 4, ql_crc32c(p + CRC_FROM, size - CRC_FROM))
        self.output.used += size
        self.note(size, batch.last_offset, get_be(p + MAX_TIMESTAMP_AT, 8))

    def stays_empty(self, int64_t last_offset):
        return bool(self.stays_without(last_offset))

    cdef bint stays_without(self, int64_t last_offset) noexcept nogil:
        """Return True if the batch is listed in `keep_batches`."""
        cdef int64_t* offsets = <int64_t*> self.stays.data
        cdef int64_t low = 0, high = self.stays.used // 8, middle
        while low < high:
            middle = (low + high) // 2
            if offsets[middle] < last_offset:
                low = middle + 1
            else:
                high = middle
        return low < self.stays.used // 8 and offsets[low] == last_offset

    cdef void note(self, int64_t size, int64_t last_offset, int64_t max_timestamp) noexcept nogil:
        cdef int64_t* note = <int64_t*> (self.notes.data + self.notes.used)
        note[0], note[1], note[2] = size, last_offset, max_timestamp
        self.notes.used += 24

    def filter_body(self, object body, bint is_due):
        cdef Held held = Held()
        cdef Bounds bounds
        cdef Growing block
        cdef Kept kept
        cdef int64_t index = 0
        cdef int wrong
        bound(held, body, &bounds)
        block.data = NULL
        block.used = block.capacity = 0
        grow(&block, bounds.end - bounds.start)
        kept.place = block.data
        with nogil:
            wrong = self.filter_records(&bounds, is_due, &index, &kept)
        block.used = kept.size
        records = take(&block)
        if wrong:
            raise Malformed(wrong, index)
        self.records_read += bounds.record_count
        self.records_kept += kept.count
        if kept.count == bounds.record_count:
            return None, kept.count, kept.max_timestamp, kept.tombstones > 0
        return memoryview(records), kept.count, kept.max_timestamp, kept.tombstones > 0

    def add(self, object batch, int64_t last_offset, int64_t max_timestamp):
        cdef Held held = Held()
        cdef Py_ssize_t size
        cdef bytes_t start = held.hold(batch, 0, &size)
        grow(&self.output, size)
        grow(&self.notes, 24)
        memcpy(self.output.data + self.output.used, start, size)
        self.output.used += size
        self.note(size, last_offset, max_timestamp)

    def take(self):
        batches = take(&self.output)
        notes = take(&self.notes)
        return memoryview(batches), memoryview(notes).cast("q")


def rebase_records(object body, int64_t by):
    """Return the records of a body with `by` added to each timestamp delta; raises Malformed,
    and OverflowError if a delta or a record's length leaves its range."""
    cdef Held held = Held()
    cdef Bounds bounds
    cdef Growing block
    cdef int64_t index = 0
    cdef int wrong
    bound(held, body, &bounds)
    block.data = NULL
    block.used = block.capacity = 0
    grow(&block, bounds.end - bounds.start + 14 * bounds.record_count)
    with nogil:
        wrong = rebase(&bounds, by, &index, &block)
    records = take(&block)
    if wrong == TOO_LARGE:
        raise OverflowError(f"record {index} does not fit with its timestamp moved by {by}")
    if wrong:
        raise Malformed(wrong, index)
    return memoryview(records)


cdef int rebase(const Bounds* bounds, int64_t by, int64_t* index, Growing* block) noexcept nogil:
    cdef bytes_t p = bounds.start
    cdef bytes_t start
    cdef bytes_t rest
    cdef uint8_t* output = <uint8_t*> block.data
    cdef uint8_t attributes
    cdef int64_t delta = 0, size = 0
    cdef int wrong
    cdef View view
    while index[0] < bounds.record_count:
        start = p
        wrong = get_record(&p, bounds.end, &view)
        if wrong:
            return wrong
        if ql_add_overflows(view.timestamp_delta, by, &delta):
            return TOO_LARGE
        rest = start
        get_varint(&rest, bounds.end, 5, &size)  # skip the length, the attributes and the old delta
        attributes = rest[0]
        rest += 1
        get_varint(&rest, bounds.end, 10, &view.timestamp_delta)
        size = 1 + ql_varint_size(zigzag(delta)) + (p - rest)
        if size > INT32_LAST:
            return TOO_LARGE
        output = put_varint(output, zigzag(size))
        output[0] = attributes
        output = put_varint(output + 1, zigzag(delta))
        memcpy(output, rest, p - rest)
        output += p - rest
        index[0] += 1
    block.used = <char*> output - block.data
    return FINE if p == bounds.end else LEFTOVER
