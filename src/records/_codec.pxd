# The functions of the compiled codec that other compiled modules call.

from libc.stdint cimport int64_t, uint8_t


cdef bint is_sealed(const uint8_t* p, Py_ssize_t size) noexcept nogil


cdef bint is_sound(
    const uint8_t* p, Py_ssize_t size, bint keys_required, int64_t oldest_ms, int64_t newest_ms
) noexcept nogil


cdef bint has_sound_header(const uint8_t* p, Py_ssize_t size, int64_t newest_ms) noexcept nogil


cdef bint has_sound_records(
    const uint8_t* p, const uint8_t* records, Py_ssize_t size, bint keys_required,
    int64_t oldest_ms
) noexcept nogil
