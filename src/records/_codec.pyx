# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, binding=True
"""The codec in C: the same functions, results and faults as `_plain.py`, which documents them.

Rules that keep it safe against invalid input:

- Every read is bounded by the end of the innermost enclosing item: varints by their record's
  end, lengths by the rest of the record, records by the body. No pointer is formed beyond that end.
- Sizes are compared before they are added to pointers. Sums have 64 bits, their terms at most 31.
- Allocations depend on the body's size and the requested rows, never on the content of a record.
  The number of records is checked against the body's size first.
- Writers compute the exact size in a first pass and check at the end that they wrote as much.

The loops run without the GIL; they use raw pointers only, whose owners the callers hold. A
concurrent write to a buffer breaks the second rule of every two-pass loop: input must not change
until the call returns.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_FillInfo
from cpython.buffer cimport PyBuffer_Release, PyObject_GetBuffer
from cpython.tuple cimport PyTuple_GET_ITEM
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from .batch import BatchHeader
from .columns import BinaryColumn, DecodedColumns, HeaderColumn
from .record import Body, ColumnTooLarge, Malformed, Record

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1

cdef extern from *:
    """
    #include <stdint.h>
    #ifdef __linux__
    #include <sys/mman.h>
    #endif
    /* Large fresh memory costs more in page faults than in copying: ask for huge pages. */
    static void ql_want_huge_pages(char *data, Py_ssize_t size) {
    #ifdef MADV_HUGEPAGE
        const uintptr_t huge = (uintptr_t)2 << 20;
        uintptr_t start = ((uintptr_t)data + huge - 1) & ~(huge - 1);
        uintptr_t end = ((uintptr_t)data + (uintptr_t)size) & ~(huge - 1);
        if (start < end) (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
    #endif
    }
    #if defined(__GNUC__) && !defined(QUORUMLOG_PORTABLE_C)
    #define ql_add_overflows(a, b, r) __builtin_add_overflow((int64_t)(a), (int64_t)(b), (r))
    #define ql_sub_overflows(a, b, r) __builtin_sub_overflow((int64_t)(a), (int64_t)(b), (r))
    #define ql_likely(x) __builtin_expect(!!(x), 1)
    /* bytes of a varint: 1 + bits / 7 without a division */
    #define ql_varint_size(raw) \
        (((Py_ssize_t)(63 - __builtin_clzll((unsigned long long)(raw) | 1)) * 9 + 73) >> 6)
    #else /* standard C, for compilers without these built-ins */
    static int ql_add_overflows(int64_t a, int64_t b, int64_t *r) {
        *r = (int64_t)((uint64_t)a + (uint64_t)b);
        return ((a ^ *r) & (b ^ *r)) < 0;
    }
    static int ql_sub_overflows(int64_t a, int64_t b, int64_t *r) {
        *r = (int64_t)((uint64_t)a - (uint64_t)b);
        return ((a ^ b) & (a ^ *r)) < 0;
    }
    #define ql_likely(x) (x)
    static Py_ssize_t ql_varint_size(uint64_t raw) {
        Py_ssize_t size = 1;
        while (raw >>= 7) size++;
        return size;
    }
    #endif
    """
    void ql_want_huge_pages(char* data, Py_ssize_t size) noexcept nogil
    bint ql_add_overflows(int64_t a, int64_t b, int64_t* r) noexcept nogil
    bint ql_sub_overflows(int64_t a, int64_t b, int64_t* r) noexcept nogil
    bint ql_likely(bint x) noexcept nogil
    Py_ssize_t ql_varint_size(uint64_t raw) noexcept nogil

ctypedef const uint8_t* bytes_t

# Faults: the numbers of `record.Fault`; a test compares them.
cdef enum:
    FINE = 0
    COUNT = 1
    TRUNCATED = 2
    VARINT = 3
    LENGTH = 4
    KEY_LENGTH = 5
    VALUE_LENGTH = 6
    HEADER_COUNT = 7
    HEADER_KEY = 8
    HEADER_VALUE = 9
    TRAILING = 10
    OFFSET = 11
    TIMESTAMP = 12
    LEFTOVER = 13
    KEY_MISSING = 14
    TIMESTAMP_MAX = 15
    TIMESTAMP_MIN = 16
    TOO_LARGE = 100  # for ColumnTooLarge, not in `record.Fault`

# The bits of `columns.WANT_*`; a test compares them.
cdef enum:
    WANT_KEY = 1
    WANT_VALUE = 2
    WANT_OFFSET = 4
    WANT_TIMESTAMP = 8
    WANT_TIMESTAMP_TYPE = 16
    WANT_HEADERS = 32

FAULT_NUMBERS = {
    "COUNT": COUNT, "TRUNCATED": TRUNCATED, "VARINT": VARINT, "LENGTH": LENGTH,
    "KEY_LENGTH": KEY_LENGTH, "VALUE_LENGTH": VALUE_LENGTH, "HEADER_COUNT": HEADER_COUNT,
    "HEADER_KEY": HEADER_KEY, "HEADER_VALUE": HEADER_VALUE, "TRAILING": TRAILING,
    "OFFSET": OFFSET, "TIMESTAMP": TIMESTAMP, "LEFTOVER": LEFTOVER,
    "KEY_MISSING": KEY_MISSING, "TIMESTAMP_MAX": TIMESTAMP_MAX,
    "TIMESTAMP_MIN": TIMESTAMP_MIN,
}
WANT_NUMBERS = {
    "WANT_KEY": WANT_KEY, "WANT_VALUE": WANT_VALUE, "WANT_OFFSET": WANT_OFFSET,
    "WANT_TIMESTAMP": WANT_TIMESTAMP, "WANT_TIMESTAMP_TYPE": WANT_TIMESTAMP_TYPE,
    "WANT_HEADERS": WANT_HEADERS,
}

cdef Py_ssize_t HUGE_SIZE_MIN = 4 * 1024 * 1024
cdef int64_t RECORD_SIZE_MIN = 7
cdef int64_t INT32_LAST = 2147483647
cdef int64_t TIMESTAMP_MS_LAST = 9223372036854775

include "_codec_memory.pxi"
include "_codec_read.pxi"
include "_codec_build.pxi"
include "_codec_write.pxi"
include "_codec_partition.pxi"
include "_codec_hash.pxi"
include "_codec_clean.pxi"
include "_codec_check.pxi"
