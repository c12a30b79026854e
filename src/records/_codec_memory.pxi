# Memory of the compiled codec: growable blocks, memory readable by Python, buffers held for C.


cdef class Memory:
    """A block of bytes readable by Python and Arrow; freed with its last reader."""

    cdef char* data
    cdef Py_ssize_t size

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


cdef struct Growing:
    char* data
    Py_ssize_t used
    Py_ssize_t capacity


cdef int grow(Growing* block, Py_ssize_t more) except -1:
    """Reserve `more` bytes after the used ones."""
    cdef Py_ssize_t needed = block.used + more
    cdef Py_ssize_t capacity
    cdef char* data
    if needed <= block.capacity:
        return 0
    capacity = max(needed, 2 * block.capacity, 64)
    data = <char*> PyMem_RawRealloc(block.data, capacity)
    if data == NULL:
        raise MemoryError(f"{capacity} bytes for a column")
    if capacity >= HUGE_SIZE_MIN:
        ql_want_huge_pages(data, capacity)
    block.data = data
    block.capacity = capacity
    return 0


cdef Memory take(Growing* block):
    """Move the used bytes to a Memory and empty the block.

    Only a block that is mostly unused is cut. To cut a little off each block would make the
    allocator give the next one fresh pages instead of these, at several times the cost of filling
    them (glibc raises its mmap threshold by the sizes that are freed, and they would always be
    below the sizes asked for).
    """
    cdef Memory memory = Memory.__new__(Memory)
    cdef char* data = block.data
    if data == NULL or block.used < block.capacity // 2:
        data = <char*> PyMem_RawRealloc(block.data, max(block.used, 1))
        if data == NULL:
            data = block.data  # a failed realloc leaves the block unchanged
    if data == NULL:
        raise MemoryError("an empty column")
    memory.data = data
    memory.size = block.used
    block.data = NULL
    block.used = block.capacity = 0
    return memory


cdef enum:
    HELD_MAX = 17  # a table: four columns of bytes at three buffers, two of others at two, the rows


cdef class Held:
    """Holds buffers of other objects while C reads them."""

    cdef Py_buffer[HELD_MAX] views
    cdef int count

    def __cinit__(self):
        self.count = 0

    def __dealloc__(self):
        cdef int index
        for index in range(self.count):
            PyBuffer_Release(&self.views[index])

    cdef bytes_t hold(self, object owner, Py_ssize_t least, Py_ssize_t* size) except? NULL:
        """Return the bytes of `owner`, NULL for None; raises ValueError below `least` bytes."""
        cdef Py_buffer* view
        size[0] = 0
        if owner is None:
            return NULL
        assert self.count < HELD_MAX, "more buffers than any caller has"
        view = &self.views[self.count]
        PyObject_GetBuffer(owner, view, PyBUF_SIMPLE)
        self.count += 1
        if view.len < least:
            raise ValueError(f"a buffer of {view.len} bytes, {least} are needed")
        size[0] = view.len
        return <bytes_t> view.buf
