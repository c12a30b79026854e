# The parts of the compiled produce requests that other compiled modules use.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #ifndef QL_BYTES
    #define QL_BYTES
    static inline uint16_t ql_get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
    static inline uint32_t ql_get32(const uint8_t *p) {
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    static inline uint64_t ql_get64(const uint8_t *p) {
        return (uint64_t)ql_get32(p) << 32 | ql_get32(p + 4);
    }
    static inline void ql_put16(uint8_t *p, uint16_t raw) {
        p[0] = (uint8_t)(raw >> 8); p[1] = (uint8_t)raw;
    }
    static inline void ql_put32(uint8_t *p, uint32_t raw) {
        p[0] = (uint8_t)(raw >> 24); p[1] = (uint8_t)(raw >> 16);
        p[2] = (uint8_t)(raw >> 8); p[3] = (uint8_t)raw;
    }
    static inline void ql_put64(uint8_t *p, uint64_t raw) {
        ql_put32(p, (uint32_t)(raw >> 32)); ql_put32(p + 4, (uint32_t)raw);
    }
    #endif
    """
    uint16_t ql_get16(const uint8_t* p) noexcept nogil
    uint32_t ql_get32(const uint8_t* p) noexcept nogil
    uint64_t ql_get64(const uint8_t* p) noexcept nogil
    void ql_put16(uint8_t* p, uint16_t raw) noexcept nogil
    void ql_put32(uint8_t* p, uint32_t raw) noexcept nogil
    void ql_put64(uint8_t* p, uint64_t raw) noexcept nogil

ctypedef const uint8_t* bytes_t


# --- the cursor -----------------------------------------------------------------------------------


cdef struct Cursor:
    bytes_t at
    bytes_t end
    bint is_bad  # a read went beyond the end, or met an unusual value


cdef inline bytes_t skip(Cursor* cursor, int64_t size) noexcept nogil:
    """Move over `size` bytes and return their start, NULL if there are fewer."""
    cdef bytes_t start = cursor.at
    if cursor.is_bad or size < 0 or size > cursor.end - start:
        cursor.is_bad = True
        return NULL
    cursor.at = start + size
    return start


cdef inline int64_t next16(Cursor* cursor) noexcept nogil:
    cdef bytes_t p = skip(cursor, 2)
    return 0 if p == NULL else <int16_t> ql_get16(p)


cdef inline int64_t next32(Cursor* cursor) noexcept nogil:
    cdef bytes_t p = skip(cursor, 4)
    return 0 if p == NULL else <int32_t> ql_get32(p)


cdef inline int64_t next64(Cursor* cursor) noexcept nogil:
    cdef bytes_t p = skip(cursor, 8)
    return 0 if p == NULL else <int64_t> ql_get64(p)


cdef inline int64_t next_varint(Cursor* cursor) noexcept nogil:
    """Read an unsigned varint of at most 31 bits in at most 5 bytes."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef bytes_t p
    while shift < 35:
        p = skip(cursor, 1)
        if p == NULL:
            return 0
        value |= <uint64_t> (p[0] & 0x7F) << shift
        if p[0] < 0x80:
            if value > 0x7FFFFFFF:
                break
            return <int64_t> value
        shift += 7
    cursor.is_bad = True
    return 0


cdef inline int64_t next_count(Cursor* cursor, bint flexible) noexcept nogil:
    """Read the length of an array or of bytes; null is -1."""
    return next_varint(cursor) - 1 if flexible else next32(cursor)


cdef inline void no_tags(Cursor* cursor) noexcept nogil:
    """Read an empty list of tagged fields."""
    cdef bytes_t p = skip(cursor, 1)
    if p != NULL and p[0] != 0:
        cursor.is_bad = True
