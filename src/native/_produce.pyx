# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=True
"""Produce requests in C: the same classes and results as `_plain_produce.py`, which documents them.

Rules that keep it safe against invalid input:

- A frame is read through a cursor with the end of the frame. Every read checks the rest first; a
  read beyond it sets `is_bad`, and the frame is left to the caller.
- Sizes and counts are compared with the rest of the frame before they are used.
- A request is checked completely before it changes a tail. Nothing can fail after that.
- Memory grows by placed batches, never by counts that a frame claims.

The buffer is written between two calls of Python only, in the 16 bytes before a batch's checksum.
"""

from cpython.buffer cimport (
    Py_buffer, PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.string cimport memcmp, memcpy

from quorumlog.records._codec cimport has_sound_header, has_sound_records, is_sealed, is_sound

from quorumlog.errors import QuorumlogError
from quorumlog.records.compression import codec_of, decompress

# Fields of a batch's header and their positions; `records/batch.py` documents them, and a test
# compares.
cdef enum:
    HEADER_BYTES = 61
    LENGTH_AT = 8
    LENGTH_END = 12
    EPOCH_AT = 12
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    SEQUENCE_AT = 53
    CODEC_BITS = 0x07
    TRANSACTIONAL = 0x10
    CONTROL = 0x20

# Limits and fields of requests; `_plain_produce.py` has the same, and a test compares.
cdef enum:
    FRAME_BYTES_MIN = 8
    FLEXIBLE = 9
    BY_ID = 13
    ID_BYTES = 16
    VERSION_MIN = 3
    VERSION_MAX = 13
    CLIENT_ID_BYTES_MAX = 1024
    TAILS_MAX = 64
    PRODUCERS_MAX = 16
    BATCHES_KEPT = 5
    UNLOCKED_BYTES_MIN = 65536  # below it, releasing and taking the GIL costs too much
    INFLATION_EXPECTED = 4

cdef int64_t SEQUENCE_MASK = 0x7FFFFFFF
cdef int64_t NONE = -1

NUMBERS = {
    "HEADER_SIZE": HEADER_BYTES, "TRANSACTIONAL_BIT": TRANSACTIONAL, "CONTROL_BIT": CONTROL,
    "FRAME_BYTES_MIN": FRAME_BYTES_MIN, "FLEXIBLE": FLEXIBLE, "BY_ID": BY_ID,
    "VERSION_MIN": VERSION_MIN, "VERSION_MAX": VERSION_MAX,
    "CLIENT_ID_BYTES_MAX": CLIENT_ID_BYTES_MAX, "TAILS_MAX": TAILS_MAX,
    "PRODUCERS_MAX": PRODUCERS_MAX, "BATCHES_KEPT": BATCHES_KEPT,
    "INFLATION_EXPECTED": INFLATION_EXPECTED, "CODEC_MASK": CODEC_BITS,
}


# --- memory ---------------------------------------------------------------------------------------


cdef struct Block:
    uint8_t* data
    Py_ssize_t used
    Py_ssize_t capacity


cdef int reserve(Block* block, Py_ssize_t more) except -1:
    """Reserve `more` bytes after the used ones."""
    cdef Py_ssize_t needed = block.used + more
    cdef Py_ssize_t capacity
    cdef uint8_t* data
    if needed <= block.capacity:
        return 0
    capacity = max(needed, 2 * block.capacity, 256)
    data = <uint8_t*> PyMem_RawRealloc(block.data, capacity)
    if data == NULL:
        raise MemoryError(f"{capacity} bytes for produce requests")
    block.data, block.capacity = data, capacity
    return 0


cdef inline void put(Block* block, const void* source, Py_ssize_t size) noexcept nogil:
    """Append reserved bytes."""
    memcpy(block.data + block.used, source, size)
    block.used += size


cdef inline void put8(Block* block, uint8_t value) noexcept nogil:
    block.data[block.used] = value
    block.used += 1


cdef inline void put32(Block* block, int64_t value) noexcept nogil:
    ql_put32(block.data + block.used, <uint32_t> value)
    block.used += 4


cdef inline void put64(Block* block, int64_t value) noexcept nogil:
    ql_put64(block.data + block.used, <uint64_t> value)
    block.used += 8


cdef inline void put_count(Block* block, int64_t count, bint flexible) noexcept nogil:
    """Append the length of an array; ten bytes are reserved."""
    cdef uint64_t left = <uint64_t> count + 1
    if not flexible:
        put32(block, count)
        return
    while left >= 0x80:
        put8(block, <uint8_t> (left | 0x80))
        left >>= 7
    put8(block, <uint8_t> left)


cdef inline bytes content(Block* block):
    return PyBytes_FromStringAndSize(<char*> block.data, block.used)


# --- the tail -------------------------------------------------------------------------------------


cdef struct Stored:
    int64_t first_sequence
    int64_t last_sequence
    int64_t first_offset
    int64_t last_offset
    int64_t timestamp


cdef struct Producer:
    int64_t producer_id
    int64_t epoch
    int64_t next_sequence
    int64_t last_offset  # -1: none was placed in this run
    int64_t count  # of batches in this run
    Stored[BATCHES_KEPT] stored  # the newest, by their number modulo BATCHES_KEPT


cdef class RunTail:
    """See `_plain_produce.RunTail`."""

    cdef readonly object owner
    cdef readonly int64_t base_offset
    cdef readonly int64_t next_offset
    cdef readonly int64_t position
    cdef readonly int64_t size
    cdef readonly int64_t count
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t max_timestamp_offset
    cdef readonly int64_t bytes_since_entry
    cdef public object error
    cdef int64_t leader_epoch, bytes_left, batch_bytes_max, oldest_ms, newest_ms
    cdef int64_t position_max, offset_max, timestamp_max, entries_left
    cdef int64_t index_base, interval_bytes, last_time
    cdef bint keys_required, takes_compressed
    cdef object entry_of
    cdef list views
    cdef Block offsets, positions, times, time_offsets
    cdef Producer[PRODUCERS_MAX] known
    cdef int known_count
    cdef int64_t request  # number of the last request with a batch for this tail

    def __cinit__(self):
        self.views = []

    def __init__(
        self, owner, entry_of, *, int64_t batch_bytes_max, bint keys_required,
        bint takes_compressed, int64_t position_max, int64_t offset_max, int64_t index_base,
        int64_t interval_bytes,
    ):
        self.owner, self.entry_of = owner, entry_of
        self.batch_bytes_max, self.keys_required = batch_bytes_max, keys_required
        self.takes_compressed = takes_compressed
        self.position_max, self.offset_max = position_max, offset_max
        self.index_base, self.interval_bytes = index_base, interval_bytes

    def begin(
        self, int64_t next_offset, int64_t position, int64_t leader_epoch,
        int64_t log_start_offset, int64_t bytes_max, int64_t oldest_ms, int64_t newest_ms,
        int64_t timestamp_max, int64_t entries_max, int64_t bytes_since_entry,
        int64_t max_timestamp, int64_t max_timestamp_offset, int64_t last_time,
    ):
        self.base_offset = self.next_offset = next_offset
        self.position, self.size, self.count = position, 0, 0
        self.leader_epoch, self.log_start_offset = leader_epoch, log_start_offset
        self.bytes_left, self.oldest_ms, self.newest_ms = bytes_max, oldest_ms, newest_ms
        self.timestamp_max, self.entries_left = timestamp_max, entries_max
        self.bytes_since_entry, self.max_timestamp = bytes_since_entry, max_timestamp
        self.max_timestamp_offset, self.last_time = max_timestamp_offset, last_time
        self.offsets.used = self.positions.used = self.times.used = self.time_offsets.used = 0
        self.known_count = 0
        self.request = -1
        self.error = None
        self.views = []

    def __dealloc__(self):
        PyMem_RawFree(self.offsets.data)
        PyMem_RawFree(self.positions.data)
        PyMem_RawFree(self.times.data)
        PyMem_RawFree(self.time_offsets.data)

    def take_buffers(self):
        views, self.views = self.views, []
        return views

    def index_entries(self):
        return (
            content(&self.offsets), content(&self.positions),
            content(&self.times), content(&self.time_offsets),
        )

    @property
    def has_producers(self):
        return self.known_count > 0

    def producers(self):
        cdef list found = []
        cdef int place
        cdef int64_t number
        cdef Producer* known
        cdef Stored* stored
        for place in range(self.known_count):
            known = &self.known[place]
            if known.count == 0:
                continue
            batches = []
            for number in range(max(0, known.count - BATCHES_KEPT), known.count):
                stored = &known.stored[number % BATCHES_KEPT]
                batches.append((
                    stored.first_sequence, stored.last_sequence, stored.first_offset,
                    stored.last_offset, stored.timestamp,
                ))
            found.append((known.last_offset, known.producer_id, known.next_sequence, batches))
        found.sort()
        return found

    def place_replicated(self, object batches):
        cdef Py_buffer view
        cdef bytes_t data
        cdef int64_t size
        cdef Py_ssize_t placed = 0
        PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
        try:
            data = <bytes_t> view.buf
            while placed < view.len:
                size = self.check_replicated(data + placed, view.len - placed)
                if size == 0:
                    break
                self.add(data + placed, size)
                placed += size
            if placed:
                self.views.append(batches if placed == view.len else batches[:placed])
            return placed
        finally:
            PyBuffer_Release(&view)

    cdef int64_t check_replicated(self, bytes_t batch, int64_t left) except -1:
        """Return the size of the first batch if it can be placed next as it is, else 0."""
        cdef int64_t size
        cdef bint is_right
        if left < HEADER_BYTES:
            return 0
        size = <int64_t> <int32_t> ql_get32(batch + LENGTH_AT) + LENGTH_END
        if size > left or not self.has_room(size):
            return 0
        if size >= UNLOCKED_BYTES_MIN:
            with nogil:
                is_right = is_sealed(batch, size)
        else:
            is_right = is_sealed(batch, size)
        if not is_right or ql_get16(batch + ATTRIBUTES_AT) & (TRANSACTIONAL | CONTROL):
            return 0
        if <int64_t> ql_get64(batch) != self.next_offset:
            return 0
        if <int32_t> ql_get32(batch + EPOCH_AT) != self.leader_epoch:
            return 0
        if <int32_t> ql_get32(batch + LAST_DELTA_AT) < 0 or not self.is_next(batch):
            return 0
        return size

    cdef bint has_room(self, int64_t size) noexcept:
        """Return True if a batch of this size is within the limits of the run and the segment."""
        return (
            HEADER_BYTES <= size <= self.bytes_left and self.entries_left > 0
            and self.position + self.size + size <= self.position_max
        )

    cdef int check(self, bytes_t batch, int64_t size, int64_t* inflated_left) except -1:
        """Return 1 if the batch of a client can be placed next."""
        if size > self.batch_bytes_max or not self.has_room(size):
            return 0
        if self.takes_compressed and ql_get16(batch + ATTRIBUTES_AT) & CODEC_BITS:
            if not self.is_sound_inflated(batch, size, inflated_left):
                size = 0
        elif size >= UNLOCKED_BYTES_MIN:
            with nogil:
                if not is_sound(
                    batch, size, self.keys_required, self.oldest_ms, self.newest_ms
                ):
                    size = 0
        elif not is_sound(batch, size, self.keys_required, self.oldest_ms, self.newest_ms):
            size = 0
        if size == 0 or ql_get16(batch + ATTRIBUTES_AT) & TRANSACTIONAL:
            return 0
        return self.is_next(batch)

    cdef int is_sound_inflated(
        self, bytes_t batch, int64_t size, int64_t* inflated_left
    ) except -1:
        """Return 1 if a compressed batch is valid in header and records, and subtract its inflated
        bytes."""
        cdef Py_buffer view
        cdef int is_right
        cdef int64_t packed_size = size - HEADER_BYTES
        if INFLATION_EXPECTED * packed_size > inflated_left[0]:
            return 0
        if not has_sound_header(batch, size, self.newest_ms):
            return 0
        packed = PyMemoryView_FromMemory(<char*> batch + HEADER_BYTES, packed_size, PyBUF_READ)
        try:
            codec = codec_of(ql_get16(batch + ATTRIBUTES_AT))
            records = decompress(codec, packed, inflated_left[0])
        except QuorumlogError:
            return 0
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        is_right = has_sound_records(
            batch, <bytes_t> view.buf, view.len, self.keys_required, self.oldest_ms
        )
        if is_right:
            inflated_left[0] -= view.len
        PyBuffer_Release(&view)
        return is_right

    cdef int is_next(self, bytes_t batch) except -1:
        """Return 1 if a valid batch is within the limits of timestamps and offsets, and the next
        one of its producer."""
        cdef int64_t timestamp, end_offset, producer_id
        cdef Producer* known
        timestamp = <int64_t> ql_get64(batch + MAX_TIMESTAMP_AT)
        if timestamp < 0 or timestamp > self.timestamp_max:
            return 0
        end_offset = self.next_offset + <int32_t> ql_get32(batch + LAST_DELTA_AT) + 1
        if end_offset > self.offset_max:
            return 0
        producer_id = <int64_t> ql_get64(batch + PRODUCER_ID_AT)
        if producer_id == -1:
            return 1
        known = self.find(producer_id)
        if known == NULL:
            return 0
        return (
            known.epoch == <int16_t> ql_get16(batch + PRODUCER_EPOCH_AT)
            and known.next_sequence == <int32_t> ql_get32(batch + SEQUENCE_AT)
        )

    cdef Producer* find(self, int64_t producer_id) except? NULL:
        """Return the state of a producer without an open transaction, NULL if it has none here."""
        cdef int place
        cdef Producer* known
        for place in range(self.known_count):
            if self.known[place].producer_id == producer_id:
                return &self.known[place]
        if self.known_count == PRODUCERS_MAX:
            return NULL
        entry = self.entry_of(producer_id)
        if entry is None or entry[3] >= 0 or entry[2] < 0:
            return NULL
        known = &self.known[self.known_count]
        known.producer_id, known.epoch, known.next_sequence = producer_id, entry[0], entry[2]
        known.last_offset, known.count = NONE, 0
        self.known_count += 1
        return known

    cdef int place(self, object view, uint8_t* batch, int64_t size) except -1:
        """Place a checked batch of a client: stamp it, and add it."""
        self.views.append(view)
        ql_put64(batch, <uint64_t> self.next_offset)
        ql_put32(batch + EPOCH_AT, <uint32_t> self.leader_epoch)
        self.add(batch, size)
        return 0

    cdef int add(self, bytes_t batch, int64_t size) except -1:
        """Add a checked batch to the index and its producer."""
        cdef int64_t base_offset = self.next_offset
        cdef int64_t delta = <int32_t> ql_get32(batch + LAST_DELTA_AT)
        cdef int64_t timestamp = <int64_t> ql_get64(batch + MAX_TIMESTAMP_AT)
        cdef int64_t last_offset = base_offset + delta
        cdef int64_t producer_id, first
        cdef uint32_t relative
        cdef Producer* known
        cdef Stored* stored
        reserve(&self.offsets, 4)
        reserve(&self.positions, 4)
        reserve(&self.times, 8)
        reserve(&self.time_offsets, 4)
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, last_offset
        if self.bytes_since_entry > self.interval_bytes:
            relative = <uint32_t> (last_offset - self.index_base)
            put(&self.offsets, &relative, 4)
            relative = <uint32_t> (self.position + self.size)
            put(&self.positions, &relative, 4)
            if self.max_timestamp >= 0 and self.max_timestamp > self.last_time:
                put(&self.times, &self.max_timestamp, 8)
                relative = <uint32_t> (self.max_timestamp_offset - self.index_base)
                put(&self.time_offsets, &relative, 4)
                self.last_time = self.max_timestamp
            self.bytes_since_entry = 0
            self.entries_left -= 1
        self.bytes_since_entry += size
        self.size += size
        self.bytes_left -= size
        self.next_offset = last_offset + 1
        self.count += 1
        producer_id = <int64_t> ql_get64(batch + PRODUCER_ID_AT)
        if producer_id != -1:
            known = self.find(producer_id)
            first = known.next_sequence
            stored = &known.stored[known.count % BATCHES_KEPT]
            stored.first_sequence, stored.last_sequence = first, (first + delta) & SEQUENCE_MASK
            stored.first_offset, stored.last_offset = base_offset, last_offset
            stored.timestamp = timestamp
            known.next_sequence = (stored.last_sequence + 1) & SEQUENCE_MASK
            known.last_offset = last_offset
            known.count += 1
        return 0


# --- the run --------------------------------------------------------------------------------------


cdef struct Key:
    Py_ssize_t title_at  # in `keys`
    Py_ssize_t title_size
    int64_t partition


cdef struct Part:
    int tail  # its place among the tails
    int64_t partition
    int64_t base_offset
    Py_ssize_t at  # of the batch, in the buffer
    int64_t size


cdef struct Topic:
    Py_ssize_t title_at  # in `names`, as encoded in the request
    Py_ssize_t title_size
    int64_t part_count


cdef struct Placed:
    int64_t correlation_id
    int64_t version
    int64_t topic_count


cdef class ProduceRun:
    """See `_plain_produce.ProduceRun`."""

    cdef object find
    cdef readonly int64_t count
    cdef readonly int64_t size
    cdef readonly int64_t acks
    cdef readonly int64_t timeout_ms
    cdef readonly list tails
    cdef int64_t frame_bytes_max, count_max, inflated_left
    cdef bint is_over
    cdef Key[TAILS_MAX] known
    cdef Block keys, names, placed, topics, parts, answer

    def __cinit__(self):
        self.tails = []

    def __init__(
        self, find, int64_t frame_bytes_max, int64_t count_max, int64_t inflated_bytes_max
    ):
        self.find = find
        self.frame_bytes_max, self.count_max = frame_bytes_max, count_max
        self.inflated_left = inflated_bytes_max

    def __dealloc__(self):
        PyMem_RawFree(self.keys.data)
        PyMem_RawFree(self.names.data)
        PyMem_RawFree(self.placed.data)
        PyMem_RawFree(self.topics.data)
        PyMem_RawFree(self.parts.data)
        PyMem_RawFree(self.answer.data)

    def take(self, object buffer, Py_ssize_t start, Py_ssize_t end):
        cdef Py_buffer view
        cdef uint8_t* data
        cdef int64_t size
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            if not 0 <= start <= end <= view.len:
                raise ValueError(f"[{start}, {end}) of {view.len} bytes")
            data = <uint8_t*> view.buf
            while end - start >= 4:
                size = <int32_t> ql_get32(data + start)
                if size < FRAME_BYTES_MIN or size > end - start - 4:
                    break
                if not self.add(buffer, data, start + 4, size):
                    break
                start += 4 + size
            return start
        finally:
            PyBuffer_Release(&view)

    def take_frame(self, object frame):
        cdef Py_buffer view
        PyObject_GetBuffer(frame, &view, PyBUF_WRITABLE)
        try:
            return self.add(frame, <uint8_t*> view.buf, 0, view.len) != 0
        finally:
            PyBuffer_Release(&view)

    @property
    def responses(self):
        return content(&self.answer)

    def requests(self):
        cdef list found = []
        cdef list topics, parts
        cdef Placed* placed = <Placed*> self.placed.data
        cdef Topic* topic = <Topic*> self.topics.data
        cdef Part* part = <Part*> self.parts.data
        cdef int64_t number, left, rest
        for number in range(self.count):
            topics = []
            for left in range(placed[number].topic_count):
                parts = []
                for rest in range(topic.part_count):
                    parts.append((part.partition, self.tails[part.tail], part.base_offset))
                    part += 1
                title = PyBytes_FromStringAndSize(
                    <char*> self.names.data + topic.title_at, topic.title_size
                )
                topics.append((title, parts))
                topic += 1
            found.append((placed[number].correlation_id, placed[number].version, topics))
        return found

    cdef int add(self, object buffer, uint8_t* data, Py_ssize_t at, int64_t size) except -1:
        """Add the request of a frame and return 1; if it is unusual, end the run and return 0."""
        cdef Cursor cursor
        cdef Placed placed
        cdef int64_t acks = 0, timeout_ms = 0
        cdef Py_ssize_t names = self.names.used, topics = self.topics.used, parts = self.parts.used
        if self.is_over or self.count >= self.count_max or size > self.frame_bytes_max:
            return 0
        cursor.at, cursor.end, cursor.is_bad = data + at, data + at + size, False
        if not (
            self.read_header(&cursor, &placed)
            and self.read_settings(&cursor, &placed, &acks, &timeout_ms)
            and self.read_topics(&cursor, &placed, data, acks)
        ):
            self.names.used, self.topics.used, self.parts.used = names, topics, parts
            self.is_over = True
            return 0
        reserve(&self.placed, sizeof(Placed))
        put(&self.placed, &placed, sizeof(Placed))
        self.place(buffer, data, parts)
        self.acks, self.timeout_ms = acks, timeout_ms
        if acks:
            self.encode(&placed, topics, parts)
        self.count += 1
        self.size += size
        return 1

    cdef bint read_header(self, Cursor* cursor, Placed* placed) noexcept nogil:
        """Read the header of a usual produce request."""
        cdef bytes_t p = skip(cursor, 10)
        cdef int64_t client_id_size, index
        if p == NULL or ql_get16(p) != 0:
            return False
        placed.version = <int16_t> ql_get16(p + 2)
        placed.correlation_id = <int32_t> ql_get32(p + 4)
        client_id_size = <int16_t> ql_get16(p + 8)
        if not VERSION_MIN <= placed.version <= VERSION_MAX:
            return False
        if client_id_size > CLIENT_ID_BYTES_MAX:
            return False
        if client_id_size > 0:
            p = skip(cursor, client_id_size)
            if p == NULL:
                return False
            for index in range(client_id_size):
                if p[index] >= 0x80:
                    return False
        if placed.version >= FLEXIBLE:
            no_tags(cursor)
        return not cursor.is_bad

    cdef bint read_settings(
        self, Cursor* cursor, Placed* placed, int64_t* acks, int64_t* timeout_ms
    ) noexcept nogil:
        """Read the fields before the topics; no transactional id, and the run's acks."""
        cdef bint flexible = placed.version >= FLEXIBLE
        # The length of the transactional id: null is 0, or -1.
        if (next_varint(cursor) if flexible else next16(cursor) + 1) != 0:
            return False
        acks[0] = next16(cursor)
        timeout_ms[0] = next32(cursor)
        placed.topic_count = next_count(cursor, flexible)
        if cursor.is_bad or not -1 <= acks[0] <= 1 or placed.topic_count < 1:
            return False
        return self.count == 0 or (acks[0] == self.acks and timeout_ms[0] == self.timeout_ms)

    cdef bint read_topics(
        self, Cursor* cursor, Placed* placed, uint8_t* data, int64_t acks
    ) except *:
        """Read the topics and check every batch; nothing is placed yet."""
        cdef bint flexible = placed.version >= FLEXIBLE
        cdef int64_t title_size, left, rest
        cdef bytes_t start
        cdef bytes_t title
        cdef Topic topic
        for left in range(placed.topic_count):
            start = cursor.at
            if placed.version >= BY_ID:
                title_size = ID_BYTES
            else:
                title_size = next_varint(cursor) - 1 if flexible else next16(cursor)
            title = skip(cursor, title_size)
            if title == NULL or title_size == 0:
                return False
            topic.title_at, topic.title_size = self.names.used, cursor.at - start
            topic.part_count = next_count(cursor, flexible)
            if cursor.is_bad or topic.part_count < 1:
                return False
            reserve(&self.names, topic.title_size)
            put(&self.names, start, topic.title_size)
            reserve(&self.topics, sizeof(Topic))
            put(&self.topics, &topic, sizeof(Topic))
            for rest in range(topic.part_count):
                if not self.read_part(cursor, placed, data, acks, title, title_size):
                    return False
            if flexible:
                no_tags(cursor)
        if flexible:
            no_tags(cursor)
        return not cursor.is_bad and cursor.at == cursor.end

    cdef bint read_part(
        self, Cursor* cursor, Placed* placed, uint8_t* data, int64_t acks,
        bytes_t title, Py_ssize_t title_size,
    ) except *:
        """Read one partition and check its batch."""
        cdef bint flexible = placed.version >= FLEXIBLE
        cdef Part part
        cdef bytes_t batch
        cdef RunTail tail
        part.partition = next32(cursor)
        part.size = next_count(cursor, flexible)
        batch = skip(cursor, part.size)
        if flexible:
            no_tags(cursor)
        if cursor.is_bad:
            return False
        part.tail = self.tail_of(acks, placed.version >= BY_ID, title, title_size, part.partition)
        if part.tail < 0:
            return False
        tail = <RunTail> self.tails[part.tail]
        if tail.request == self.count:
            return False
        if not tail.check(batch, part.size, &self.inflated_left):
            return False
        tail.request = self.count
        part.at, part.base_offset = batch - data, tail.next_offset
        reserve(&self.parts, sizeof(Part))
        put(&self.parts, &part, sizeof(Part))
        return True

    cdef int tail_of(
        self, int64_t acks, bint by_id, bytes_t title, Py_ssize_t size, int64_t partition
    ) except -2:
        """Return the place of a partition's tail, -1 if its batches cannot be placed."""
        cdef int place
        cdef Key* key
        cdef int count = <int> len(self.tails)
        for place in range(count):
            key = &self.known[place]
            if (
                key.partition == partition and key.title_size == size
                and memcmp(self.keys.data + key.title_at, title, size) == 0
            ):
                return place
        if count == TAILS_MAX:
            return -1
        name = PyBytes_FromStringAndSize(<char*> title, size)
        tail = self.find(acks, by_id, name, partition)
        if tail is None or any(tail is other for other in self.tails):
            return -1  # a topic by its name and by its id
        reserve(&self.keys, size)
        key = &self.known[count]
        key.title_at, key.title_size, key.partition = self.keys.used, size, partition
        put(&self.keys, title, size)
        self.tails.append(<RunTail?> tail)
        return count

    cdef int place(self, object buffer, uint8_t* data, Py_ssize_t parts_at) except -1:
        """Place the batches of a request that was checked."""
        cdef Part* part = <Part*> (self.parts.data + parts_at)
        cdef Part* end = <Part*> (self.parts.data + self.parts.used)
        while part < end:
            (<RunTail> self.tails[part.tail]).place(
                buffer[part.at : part.at + part.size], data + part.at, part.size
            )
            part += 1
        return 0

    cdef int encode(self, const Placed* placed, Py_ssize_t topics_at, Py_ssize_t parts_at) except -1:
        """Append the response to a request: its size, its header and its body."""
        cdef Topic* topic = <Topic*> (self.topics.data + topics_at)
        cdef Part* part = <Part*> (self.parts.data + parts_at)
        cdef bint flexible = placed.version >= FLEXIBLE
        cdef Py_ssize_t begin = self.answer.used
        cdef int64_t left, rest
        reserve(&self.answer, 64)
        put32(&self.answer, 0)  # the size, written below
        put32(&self.answer, placed.correlation_id)
        if flexible:
            put8(&self.answer, 0)
        put_count(&self.answer, placed.topic_count, flexible)
        for left in range(placed.topic_count):
            reserve(&self.answer, topic.title_size + 16)
            put(&self.answer, self.names.data + topic.title_at, topic.title_size)
            put_count(&self.answer, topic.part_count, flexible)
            for rest in range(topic.part_count):
                reserve(&self.answer, 64)
                self.encode_part(part, placed.version)
                part += 1
            if flexible:
                put8(&self.answer, 0)
            topic += 1
        reserve(&self.answer, 16)
        put32(&self.answer, 0)  # throttle time
        if flexible:
            put8(&self.answer, 0)
        ql_put32(self.answer.data + begin, <uint32_t> (self.answer.used - begin - 4))
        return 0

    cdef void encode_part(self, const Part* part, int64_t version) noexcept:
        """Append the result of one partition to the response; its bytes are reserved."""
        cdef Block* out = &self.answer
        cdef RunTail tail = <RunTail> self.tails[part.tail]
        put32(out, part.partition)
        put8(out, 0)  # error code
        put8(out, 0)
        put64(out, part.base_offset)
        put64(out, NONE)  # log append time
        if version >= 5:
            put64(out, tail.log_start_offset)
        if version >= FLEXIBLE:
            put8(out, 1)  # record errors: none
            put8(out, 0)  # error message: null
            put8(out, 0)  # tagged fields
        elif version >= 8:
            put32(out, 0)
            put8(out, 0xFF)
            put8(out, 0xFF)
