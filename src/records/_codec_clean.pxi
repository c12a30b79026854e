# Compaction: the newest offset of each key, and what of whole batches stays.
#
# The loops over batches take the usual ones alone (records as they are, of no transaction) and stop
# in front of any other, and of any that is wrong in whatever way: the caller looks at that one by
# itself, and says what is wrong with it.

cdef extern from *:
    """
    #include <string.h>
    static uint64_t ql_load64(const uint8_t *p) { /* little endian; one instruction where it can be */
        return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24
            | (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48
            | (uint64_t)p[7] << 56;
    }

    /* CRC-32C (Castagnoli, reflected 0x82F63B78): by the processor, else by eight tables. */
    static uint32_t ql_crc_tables[8][256];
    static void ql_crc_prepare(void) {
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t crc = n;
            for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
            ql_crc_tables[0][n] = crc;
        }
        for (int t = 1; t < 8; t++)
            for (uint32_t n = 0; n < 256; n++) {
                uint32_t crc = ql_crc_tables[t - 1][n];
                ql_crc_tables[t][n] = crc >> 8 ^ ql_crc_tables[0][crc & 0xFF];
            }
    }
    static uint32_t ql_crc_by_tables(uint32_t crc, const uint8_t *p, int64_t size) {
        for (; size >= 8; size -= 8, p += 8) {
            uint64_t word = ql_load64(p) ^ crc;
            crc = ql_crc_tables[7][word & 0xFF] ^ ql_crc_tables[6][word >> 8 & 0xFF]
                ^ ql_crc_tables[5][word >> 16 & 0xFF] ^ ql_crc_tables[4][word >> 24 & 0xFF]
                ^ ql_crc_tables[3][word >> 32 & 0xFF] ^ ql_crc_tables[2][word >> 40 & 0xFF]
                ^ ql_crc_tables[1][word >> 48 & 0xFF] ^ ql_crc_tables[0][word >> 56];
        }
        while (size-- > 0) crc = crc >> 8 ^ ql_crc_tables[0][(crc ^ *p++) & 0xFF];
        return crc;
    }
    #if defined(__x86_64__) && defined(__GNUC__) && !defined(QUORUMLOG_PORTABLE_C)
    #include <nmmintrin.h>
    __attribute__((target("sse4.2")))
    static uint32_t ql_crc_by_processor(uint32_t crc, const uint8_t *p, int64_t size) {
        uint64_t wide = crc;
        for (; size >= 8; size -= 8, p += 8) wide = _mm_crc32_u64(wide, ql_load64(p));
        crc = (uint32_t)wide;
        while (size-- > 0) crc = _mm_crc32_u8(crc, *p++);
        return crc;
    }
    static int ql_crc_in_processor(void) { return __builtin_cpu_supports("sse4.2"); }
    #elif defined(__ARM_FEATURE_CRC32) && !defined(QUORUMLOG_PORTABLE_C)
    #include <arm_acle.h>
    static uint32_t ql_crc_by_processor(uint32_t crc, const uint8_t *p, int64_t size) {
        for (; size >= 8; size -= 8, p += 8) crc = __crc32cd(crc, ql_load64(p));
        while (size-- > 0) crc = __crc32cb(crc, *p++);
        return crc;
    }
    static int ql_crc_in_processor(void) { return 1; }
    #else
    #define ql_crc_by_processor ql_crc_by_tables
    static int ql_crc_in_processor(void) { return 0; }
    #endif
    static int ql_crc_fast = 0;
    static void ql_crc_start(void) { ql_crc_prepare(); ql_crc_fast = ql_crc_in_processor(); }
    static uint32_t ql_crc32c(const uint8_t *p, int64_t size) {
        return ~(ql_crc_fast ? ql_crc_by_processor(~0u, p, size) : ql_crc_by_tables(~0u, p, size));
    }

    /* SipHash-2-4 with 128 bits (Aumasson, Bernstein): keyed, so that nobody can make collisions. */
    #define QL_TURN(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define QL_SIP(v) do { \\
        v[0] += v[1]; v[2] += v[3]; v[1] = QL_TURN(v[1], 13) ^ v[0]; v[3] = QL_TURN(v[3], 16) ^ v[2]; \\
        v[0] = QL_TURN(v[0], 32); v[2] += v[1]; v[0] += v[3]; \\
        v[1] = QL_TURN(v[1], 17) ^ v[2]; v[3] = QL_TURN(v[3], 21) ^ v[0]; v[2] = QL_TURN(v[2], 32); \\
    } while (0)
    static void ql_siphash(const uint8_t *p, int64_t size, const uint64_t *key, uint64_t *hash) {
        uint64_t v[4] = {0x736f6d6570736575u ^ key[0], 0x646f72616e646f6du ^ key[1] ^ 0xee,
                         0x6c7967656e657261u ^ key[0], 0x7465646279746573u ^ key[1]};
        uint64_t last = (uint64_t)size << 56;
        int64_t left = size;
        for (; left >= 8; left -= 8, p += 8) {
            uint64_t word = ql_load64(p);
            v[3] ^= word; QL_SIP(v); QL_SIP(v); v[0] ^= word;
        }
        while (left > 0) { left--; last |= (uint64_t)p[left] << (8 * left); }
        v[3] ^= last; QL_SIP(v); QL_SIP(v); v[0] ^= last;
        v[2] ^= 0xee; QL_SIP(v); QL_SIP(v); QL_SIP(v); QL_SIP(v);
        hash[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
        v[1] ^= 0xdd; QL_SIP(v); QL_SIP(v); QL_SIP(v); QL_SIP(v);
        hash[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
    }
    """
    uint64_t ql_load64(bytes_t p) noexcept nogil
    void ql_crc_start() noexcept nogil
    uint32_t ql_crc32c(bytes_t p, int64_t size) noexcept nogil
    uint32_t ql_crc_by_tables(uint32_t crc, bytes_t p, int64_t size) noexcept nogil
    void ql_siphash(bytes_t p, int64_t size, const uint64_t* key, uint64_t* hash) noexcept nogil

ql_crc_start()

# What the header of a batch says, and where; `batch.py` explains it, and a test compares.
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


def crc32c_both(object data):
    """Return the CRC-32C of `data` in both ways that it can be computed; for tests."""
    cdef Held held = Held()
    cdef Py_ssize_t size
    cdef bytes_t start = held.hold(data, 0, &size)
    return ql_crc32c(start, size), <uint32_t> ~ql_crc_by_tables(0xFFFFFFFF, start, size)


def siphash(object key, object data):
    """Return the hash of `data` under a key of 16 bytes, as its 16 bytes; for tests."""
    cdef Held held = Held()
    cdef Py_ssize_t size, key_size
    cdef bytes_t secret = held.hold(key, 16, &key_size)
    cdef bytes_t start = held.hold(data, 0, &size)
    cdef uint64_t[2] words
    cdef uint64_t[2] hash
    words[0], words[1] = ql_load64(secret), ql_load64(secret + 8)
    ql_siphash(start, size, words, hash)
    return hash[0].to_bytes(8, "little") + hash[1].to_bytes(8, "little")


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
        return self.get(start, size)

    cdef inline Slot* find(self, bytes_t key, int64_t size, uint64_t* hash) noexcept nogil:
        """Return the slot that has the key, else the free one where it belongs."""
        cdef uint64_t at
        cdef Slot* slot
        ql_siphash(key, size, self.secret, hash)
        at = (hash[0] >> 32) * self.slot_count >> 32
        while True:
            slot = &self.slots[at]
            if slot.offset_end == 0 or (slot.first == hash[0] and slot.second == hash[1]):
                return slot
            at += 1
            if at == self.slot_count:
                at = 0

    cdef inline int64_t get(self, bytes_t key, int64_t size) noexcept nogil:
        cdef uint64_t[2] hash
        return self.find(key, size, hash).offset_end - 1

    cdef inline bint put(self, bytes_t key, int64_t size, int64_t offset) noexcept nogil:
        """Note an offset; False when the map has no room for another key."""
        cdef uint64_t[2] hash
        cdef Slot* slot = self.find(key, size, hash)
        if slot.offset_end == 0:
            if self.count >= self.capacity:
                return False
            self.count += 1
            slot.first, slot.second = hash[0], hash[1]
        if offset >= slot.offset_end:
            slot.offset_end = offset + 1
        return True


# --- batches --------------------------------------------------------------------------------------


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
    """Fill `batch` when it is whole, right, and one of those that the loops take."""
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


cdef struct Kept:
    char* place  # where the kept records go, NULL while they are the batch's first ones
    int64_t size
    int64_t count
    int64_t tombstones
    int64_t max_timestamp


cdef class Sieve:
    """Notes the keys of batches, then keeps of batches what is newest."""

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
            wrong = self.map_records(&bounds, &index, &full)
        if wrong:
            raise Malformed(wrong, index)
        return full

    cdef int map_records(
        self, const Bounds* bounds, int64_t* index, int64_t* full
    ) noexcept nogil:
        """Note the keys; `full` is the offset of the record for which there was no room."""
        cdef bytes_t p = bounds.start
        cdef int64_t last_delta = -1, timestamp = 0, offset
        cdef int wrong
        cdef View view
        index[0] = 0
        while index[0] < bounds.record_count:
            wrong = get_record(&p, bounds.end, &view)
            if not wrong:
                wrong = place(bounds, &view, last_delta, &timestamp)
            if wrong:
                return wrong
            last_delta = view.offset_delta
            offset = bounds.base_offset + last_delta
            if view.key_size >= 0 and self.first_offset <= offset < self.end_offset:
                if full[0] == NO_OFFSET and not self.keys.put(view.key, view.key_size, offset):
                    full[0] = offset
            index[0] += 1
        return FINE if p == bounds.end else LEFTOVER

    # --- filtering ---

    def filter_batches(self, object buffer, int64_t position):
        cdef Held held = Held()
        cdef Py_ssize_t size
        cdef bytes_t data = held.hold(buffer, 0, &size)
        if not 0 <= position <= size:
            raise ValueError(f"position {position} in a buffer of {size} bytes")
        grow(&self.output, size - position)  # nothing of the usual ones gets longer
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
                break  # it gets a delete horizon
            else:
                self.put_kept(&batch, &kept)
            self.next_offset = batch.last_offset + 1
            self.leader_epoch = batch.leader_epoch
            position += batch.size
        return position

    cdef inline bint is_due(self, const Usual* batch) noexcept nogil:
        """Whether the delete horizon of the batch has passed."""
        return (
            batch.attributes & HORIZON_BIT != 0 and batch.bounds.base_timestamp <= self.wall_ms
        )

    cdef int filter_records(
        self, const Bounds* bounds, bint is_due, int64_t* index, Kept* kept
    ) noexcept nogil:
        """Copy what stays to `kept.place`, unless everything does."""
        cdef bytes_t p = bounds.start
        cdef bytes_t run = p  # what stays and is not copied yet
        cdef bytes_t start
        cdef char* output = kept.place
        cdef int64_t last_delta = -1, timestamp = 0
        cdef int wrong
        cdef View view
        kept.size = kept.count = kept.tombstones = 0
        kept.max_timestamp = -1
        index[0] = 0
        while index[0] < bounds.record_count:
            start = p
            wrong = get_record(&p, bounds.end, &view)
            if not wrong:
                wrong = place(bounds, &view, last_delta, &timestamp)
            if wrong:
                return wrong
            last_delta = view.offset_delta
            if self.keeps(&view, bounds.base_offset + last_delta, is_due):
                if kept.count == 0 or timestamp > kept.max_timestamp:
                    kept.max_timestamp = timestamp
                kept.count += 1
                kept.tombstones += view.value_size < 0
            else:
                memcpy(output + kept.size, run, start - run)
                kept.size += start - run
                run = p
            index[0] += 1
        if p != bounds.end:
            return LEFTOVER
        if kept.count < bounds.record_count:
            memcpy(output + kept.size, run, p - run)
            kept.size += p - run
        return FINE

    cdef inline bint keeps(self, const View* view, int64_t offset, bint is_due) noexcept nogil:
        if offset >= self.end_offset:
            return True
        if view.key_size < 0:
            return False
        if view.value_size < 0 and is_due and offset < self.first_offset:
            return False
        return self.keys.get(view.key, view.key_size) <= offset

    cdef void put_whole(self, const Usual* batch) noexcept nogil:
        memcpy(self.output.data + self.output.used, batch.start, batch.size)
        self.output.used += batch.size
        self.note(
            batch.size,
            batch.last_offset,
            batch.max_timestamp if batch.bounds.record_count else -1,
        )

    cdef void put_kept(self, const Usual* batch, const Kept* kept) noexcept nogil:
        """Put the batch with the records that stay, which lie where they belong already."""
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
        elif not batch.bounds.is_append_time:
            put_be(p + MAX_TIMESTAMP_AT, 8, kept.max_timestamp)
        put_be(p + CRC_AT, 4, ql_crc32c(p + CRC_FROM, size - CRC_FROM))
        self.output.used += size
        self.note(
            size, batch.last_offset, get_be(p + MAX_TIMESTAMP_AT, 8) if kept.count else -1
        )

    def stays_empty(self, int64_t last_offset):
        return bool(self.stays_without(last_offset))

    cdef bint stays_without(self, int64_t last_offset) noexcept nogil:
        """Whether the batch is one of `keep_batches`."""
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
    OverflowError when a delta or a record's length leaves its range."""
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
        get_varint(&rest, bounds.end, 5, &size)  # once more: length, attributes, the old delta
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
