# Checksums and hashes in C: the CRC-32C of batches, SipHash for keys of the map.

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
    #define QL_CRC_TARGET __attribute__((target("sse4.2")))
    #define QL_CRC_WORD(crc, word) _mm_crc32_u64(crc, word)
    #define QL_CRC_BYTE(crc, byte) _mm_crc32_u8(crc, byte)
    static int ql_crc_in_processor(void) { return __builtin_cpu_supports("sse4.2"); }
    #elif defined(__ARM_FEATURE_CRC32) && !defined(QUORUMLOG_PORTABLE_C)
    #include <arm_acle.h>
    #define QL_CRC_TARGET
    #define QL_CRC_WORD(crc, word) __crc32cd((uint32_t)(crc), word)
    #define QL_CRC_BYTE(crc, byte) __crc32cb(crc, byte)
    static int ql_crc_in_processor(void) { return 1; }
    #endif
    #ifdef QL_CRC_WORD
    /* An instruction waits three cycles for the one before: three runs side by side hide that. A
       CRC is linear, so the runs are put together by tables that carry one over zeros. */
    enum { QL_CRC_LONG = 2048, QL_CRC_SHORT = 128 }; /* bytes of each run */
    static uint32_t ql_crc_over_long[4][256], ql_crc_over_short[4][256];
    static void ql_crc_prepare_over(uint32_t over[4][256], int64_t size) {
        static const uint8_t zeros[QL_CRC_LONG];
        for (int t = 0; t < 4; t++)
            for (uint32_t n = 0; n < 256; n++) {
                uint32_t rest = n & (n - 1); /* without its lowest bit */
                over[t][n] = rest ? over[t][rest] ^ over[t][n ^ rest]
                                  : ql_crc_by_tables(n << 8 * t, zeros, size);
            }
    }
    static uint32_t ql_crc_carry(uint32_t over[4][256], uint32_t crc) {
        return over[0][crc & 0xFF] ^ over[1][crc >> 8 & 0xFF] ^ over[2][crc >> 16 & 0xFF]
            ^ over[3][crc >> 24];
    }
    #define QL_CRC_THREE(over, run) \\
        for (; size >= 3 * (run); size -= 3 * (run), p += 3 * (run)) { \\
            uint64_t first = crc, second = 0, third = 0; \\
            for (int at = 0; at < (run); at += 8) { \\
                first = QL_CRC_WORD(first, ql_load64(p + at)); \\
                second = QL_CRC_WORD(second, ql_load64(p + (run) + at)); \\
                third = QL_CRC_WORD(third, ql_load64(p + 2 * (run) + at)); \\
            } \\
            crc = ql_crc_carry(over, (uint32_t)first) ^ (uint32_t)second; \\
            crc = ql_crc_carry(over, crc) ^ (uint32_t)third; \\
        }
    QL_CRC_TARGET
    static uint32_t ql_crc_by_processor(uint32_t crc, const uint8_t *p, int64_t size) {
        QL_CRC_THREE(ql_crc_over_long, QL_CRC_LONG)
        QL_CRC_THREE(ql_crc_over_short, QL_CRC_SHORT)
        uint64_t wide = crc;
        for (; size >= 8; size -= 8, p += 8) wide = QL_CRC_WORD(wide, ql_load64(p));
        crc = (uint32_t)wide;
        while (size-- > 0) crc = QL_CRC_BYTE(crc, *p++);
        return crc;
    }
    static void ql_crc_prepare_processor(void) {
        ql_crc_prepare_over(ql_crc_over_long, QL_CRC_LONG);
        ql_crc_prepare_over(ql_crc_over_short, QL_CRC_SHORT);
    }
    #else
    #define ql_crc_by_processor ql_crc_by_tables
    static void ql_crc_prepare_processor(void) {}
    static int ql_crc_in_processor(void) { return 0; }
    #endif
    static int ql_crc_fast = 0;
    static void ql_crc_start(void) {
        ql_crc_prepare();
        ql_crc_prepare_processor();
        ql_crc_fast = ql_crc_in_processor();
    }
    static uint32_t ql_crc32c(const uint8_t *p, int64_t size) {
        return ~(ql_crc_fast ? ql_crc_by_processor(~0u, p, size) : ql_crc_by_tables(~0u, p, size));
    }

    #ifdef __GNUC__
    #define ql_fetch(place) __builtin_prefetch(place)
    #else
    #define ql_fetch(place) ((void)(place))
    #endif

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
    void ql_fetch(const void* place) noexcept nogil
    void ql_crc_start() noexcept nogil
    uint32_t ql_crc32c(bytes_t p, int64_t size) noexcept nogil
    uint32_t ql_crc_by_tables(uint32_t crc, bytes_t p, int64_t size) noexcept nogil
    void ql_siphash(bytes_t p, int64_t size, const uint64_t* key, uint64_t* hash) noexcept nogil

ql_crc_start()


def crc32c_both(object data):
    """Return the CRC-32C of `data` by both implementations; for tests."""
    cdef Held held = Held()
    cdef Py_ssize_t size
    cdef bytes_t start = held.hold(data, 0, &size)
    return ql_crc32c(start, size), <uint32_t> ~ql_crc_by_tables(0xFFFFFFFF, start, size)


def siphash(object key, object data):
    """Return the 16-byte hash of `data` under a key of 16 bytes; for tests."""
    cdef Held held = Held()
    cdef Py_ssize_t size, key_size
    cdef bytes_t secret = held.hold(key, 16, &key_size)
    cdef bytes_t start = held.hold(data, 0, &size)
    cdef uint64_t[2] words
    cdef uint64_t[2] hash
    words[0], words[1] = ql_load64(secret), ql_load64(secret + 8)
    ql_siphash(start, size, words, hash)
    return hash[0].to_bytes(8, "little") + hash[1].to_bytes(8, "little")
