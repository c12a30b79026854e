# cython: language_level=3, boundscheck=False, wraparound=False, binding=True
"""Threads that send ranges of files, without the interpreter lock; see `range_sender.py`.

A thread of Python that sends takes the interpreter's lock between its system calls, as often as the
loop lets go of it for one of its own; the two then wake each other more than they work. These
threads see no Python object: they take jobs from one list, put them on another, and make a
descriptor readable where that was empty.

Only where there is eventfd and Linux's sendfile; elsewhere `CAN_SEND` is false.

Rules: a job belongs to the list it is on, and to one thread in between; the lock is held for moving
jobs alone. `is_over` is the one field that is written while a thread has the job. The pool is freed
by whoever leaves it last, since nobody waits for a thread that hangs in a dead device.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <stdint.h>
    typedef struct ql_job {
        struct ql_job *next;
        int64_t number, position, end, sent, began_ms;
        int socket, file, error, is_cold, probes, is_over;
        int64_t head_size, tail_size;
        char bytes[]; /* head and tail */
    } ql_job;

    #ifdef __linux__
    #include <errno.h>
    #include <fcntl.h>
    #include <poll.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/eventfd.h>
    #include <sys/sendfile.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #include <time.h>
    #include <unistd.h>
    #ifndef RWF_NOWAIT
    #define RWF_NOWAIT 8
    #endif
    enum { QL_CAN_SEND = 1, QL_STACK_BYTES = 256 << 10, QL_ENDS_EARLY = -1, QL_IS_COLD = -2 };
    enum { QL_PAGE_BYTES = 4096 };

    typedef struct {
        pthread_mutex_t lock;
        pthread_cond_t work;
        ql_job *first, *last, *ended;
        int64_t piece, patience_ms, bytes_per_ms;
        int threads, idle, is_closed, is_ready; /* is_ready: a descriptor, of the ended ones */
    } ql_pool;

    static int64_t ql_now_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }

    /* Whether to go on after a call that gave -1: wait until there is room, but not for ever. */
    static int ql_goes_on(ql_pool *pool, ql_job *job) {
        if (__atomic_load_n(&job->is_over, __ATOMIC_RELAXED)) return 0;
        if (errno == EINTR) return 1;
        if (errno != EAGAIN && errno != EWOULDBLOCK) {
            job->error = errno;
            return 0;
        }
        if (ql_now_ms() - job->began_ms > pool->patience_ms + job->sent / pool->bytes_per_ms) return 0;
        struct pollfd room = { job->socket, POLLOUT, 0 };
        return poll(&room, 1, (int)pool->patience_ms) > 0;
    }

    static int ql_send_bytes(ql_pool *pool, ql_job *job, const char *bytes, int64_t size, int more) {
        while (size) {
            ssize_t count = send(job->socket, bytes, (size_t)size, MSG_NOSIGNAL | more);
            if (count < 0) {
                if (!ql_goes_on(pool, job)) return 0;
                continue;
            }
            job->sent += count;
            bytes += count;
            size -= count;
        }
        return 1;
    }

    /* Whether the page cache does not have it, as its first and its last byte tell. */
    static int ql_is_cold(int file, int64_t position, int64_t size) {
        char byte;
        struct iovec into = { &byte, 1 };
        const int64_t places[] = { position, position + size - 1 };
        for (int i = 0; i < (size > QL_PAGE_BYTES ? 2 : 1); i++)
            if (preadv2(file, &into, 1, (off_t)places[i], RWF_NOWAIT) < 0 && errno == EAGAIN)
                return 1;
        return 0;
    }

    /* Bytes, a range and bytes, as far as there is room now; returns how many went. */
    static int64_t ql_send_now(int socket, int file, int64_t position, int64_t size,
                               const char *head, int64_t head_size, const char *tail,
                               int64_t tail_size, int probes, int *fault) {
        int64_t sent = 0, whole = head_size + size + tail_size;
        *fault = 0;
        if (probes && ql_is_cold(file, position, size)) {
            *fault = QL_IS_COLD;
            return 0;
        }
        while (sent < whole) {
            ssize_t count;
            if (sent < head_size) {
                count = send(socket, head + sent, (size_t)(head_size - sent), MSG_NOSIGNAL | MSG_MORE);
            } else if (sent < head_size + size) {
                off_t at = (off_t)(position + sent - head_size);
                count = sendfile(socket, file, &at, (size_t)(size - (sent - head_size)));
                if (!count) {
                    *fault = QL_ENDS_EARLY;
                    return sent;
                }
            } else {
                const char *rest = tail + (sent - head_size - size);
                count = send(socket, rest, (size_t)(whole - sent), MSG_NOSIGNAL);
            }
            if (count >= 0) {
                sent += count;
            } else if (errno != EINTR) {
                if (errno != EAGAIN && errno != EWOULDBLOCK) *fault = errno;
                return sent;
            }
        }
        return sent;
    }

    static void ql_run(ql_pool *pool, ql_job *job) {
        job->began_ms = ql_now_ms();
        if (__atomic_load_n(&job->is_over, __ATOMIC_RELAXED)) return;
        if (job->probes && (job->is_cold = ql_is_cold(job->file, job->position, job->end - job->position)))
            return;
        if (!ql_send_bytes(pool, job, job->bytes, job->head_size, MSG_MORE)) return;
        off_t at = (off_t)job->position;
        while (at < job->end) {
            int64_t size = job->end - at < pool->piece ? job->end - at : pool->piece;
            ssize_t count = sendfile(job->socket, job->file, &at, (size_t)size);
            if (count == 0) {
                job->error = QL_ENDS_EARLY;
                return;
            }
            if (count > 0) {
                job->sent += count;
                if (__atomic_load_n(&job->is_over, __ATOMIC_RELAXED)) return;
            } else if (!ql_goes_on(pool, job)) return;
        }
        ql_send_bytes(pool, job, job->bytes + job->head_size, job->tail_size, 0);
    }

    static void ql_free(ql_pool *pool) {
        for (ql_job *job = pool->ended, *next; job; job = next) { /* nobody asked for them */
            next = job->next;
            free(job);
        }
        close(pool->is_ready);
        pthread_cond_destroy(&pool->work);
        pthread_mutex_destroy(&pool->lock);
        free(pool);
    }

    static void *ql_work(void *given) {
        ql_pool *pool = given;
        pthread_mutex_lock(&pool->lock);
        for (;;) {
            while (!pool->first && !pool->is_closed) {
                pool->idle++;
                pthread_cond_wait(&pool->work, &pool->lock);
                pool->idle--;
            }
            ql_job *job = pool->first;
            if (!job) break;
            pool->first = job->next;
            pthread_mutex_unlock(&pool->lock);
            ql_run(pool, job);
            close(job->socket);
            pthread_mutex_lock(&pool->lock);
            job->next = pool->ended;
            pool->ended = job;
            if (!job->next) {
                uint64_t one = 1;
                ssize_t ignored = write(pool->is_ready, &one, sizeof one);
                (void)ignored;
            }
        }
        int is_last = --pool->threads == 0;
        pthread_mutex_unlock(&pool->lock);
        if (is_last) ql_free(pool);
        return NULL;
    }

    static ql_pool *ql_pool_new(int64_t piece, int64_t patience_ms, int64_t bytes_per_ms) {
        ql_pool *pool = calloc(1, sizeof *pool);
        if (!pool) return NULL;
        pool->is_ready = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (pool->is_ready < 0) {
            free(pool);
            return NULL;
        }
        pthread_mutex_init(&pool->lock, NULL);
        pthread_cond_init(&pool->work, NULL);
        pool->piece = piece;
        pool->patience_ms = patience_ms;
        pool->bytes_per_ms = bytes_per_ms;
        return pool;
    }

    /* One thread more, where all others have work; signals are for the threads of the interpreter. */
    static void ql_start(ql_pool *pool, int threads_max) {
        if (pool->threads >= threads_max) return;
        pthread_t thread;
        pthread_attr_t how;
        sigset_t all, before;
        sigfillset(&all);
        pthread_attr_init(&how);
        pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&how, QL_STACK_BYTES);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        if (!pthread_create(&thread, &how, ql_work, pool)) pool->threads++;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&how);
    }

    /* Returns 0 where there is no descriptor, no memory, or no thread; errno says. */
    static ql_job *ql_begin(ql_pool *pool, int threads_max, int64_t number, int socket, int file,
                            int64_t position, int64_t size, const char *head, int64_t head_size,
                            const char *tail, int64_t tail_size, int probes) {
        ql_job *job = calloc(1, sizeof *job + (size_t)(head_size + tail_size));
        if (!job) return NULL;
        job->socket = fcntl(socket, F_DUPFD_CLOEXEC, 0); /* the number may be another one's soon */
        if (job->socket < 0) {
            free(job);
            return NULL;
        }
        job->number = number;
        job->file = file;
        job->position = position;
        job->end = position + size;
        job->probes = probes;
        job->head_size = head_size;
        job->tail_size = tail_size;
        memcpy(job->bytes, head, (size_t)head_size);
        memcpy(job->bytes + head_size, tail, (size_t)tail_size);
        pthread_mutex_lock(&pool->lock);
        if (!pool->idle || pool->first) ql_start(pool, threads_max);
        int has_thread = pool->threads > 0;
        if (has_thread) {
            if (pool->first) pool->last->next = job; else pool->first = job;
            pool->last = job;
            pthread_cond_signal(&pool->work);
        }
        pthread_mutex_unlock(&pool->lock);
        if (!has_thread) {
            close(job->socket);
            free(job);
            job = NULL;
        }
        return job;
    }

    static ql_job *ql_ended(ql_pool *pool) {
        uint64_t count;
        ssize_t ignored = read(pool->is_ready, &count, sizeof count);
        (void)ignored;
        pthread_mutex_lock(&pool->lock);
        ql_job *ended = pool->ended;
        pool->ended = NULL;
        pthread_mutex_unlock(&pool->lock);
        return ended;
    }

    static void ql_stop(ql_job *job) { __atomic_store_n(&job->is_over, 1, __ATOMIC_RELAXED); }
    static void ql_drop(ql_job *job) { free(job); }

    static void ql_close(ql_pool *pool) {
        pthread_mutex_lock(&pool->lock);
        pool->is_closed = 1;
        int is_last = pool->threads == 0;
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->lock);
        if (is_last) ql_free(pool);
    }

    #else
    enum { QL_CAN_SEND = 0 };
    typedef struct { int is_ready; } ql_pool;
    static ql_pool *ql_pool_new(int64_t a, int64_t b, int64_t c) {
        (void)a; (void)b; (void)c;
        return 0;
    }
    static ql_job *ql_begin(ql_pool *pool, int threads_max, int64_t number, int socket, int file,
                            int64_t position, int64_t size, const char *head, int64_t head_size,
                            const char *tail, int64_t tail_size, int probes) {
        (void)pool; (void)threads_max; (void)number; (void)socket; (void)file; (void)position;
        (void)size; (void)head; (void)head_size; (void)tail; (void)tail_size; (void)probes;
        return 0;
    }
    static ql_job *ql_ended(ql_pool *pool) { (void)pool; return 0; }
    static int64_t ql_send_now(int socket, int file, int64_t position, int64_t size,
                               const char *head, int64_t head_size, const char *tail,
                               int64_t tail_size, int probes, int *fault) {
        (void)socket; (void)file; (void)position; (void)size; (void)head; (void)head_size;
        (void)tail; (void)tail_size; (void)probes;
        *fault = -1;
        return 0;
    }
    static void ql_stop(ql_job *job) { (void)job; }
    static void ql_drop(ql_job *job) { (void)job; }
    static void ql_close(ql_pool *pool) { (void)pool; }
    #endif
    """
    ctypedef struct ql_job:
        ql_job *next
        int64_t number
        int64_t sent
        int error
        int is_cold

    ctypedef struct ql_pool:
        int is_ready

    enum:
        QL_CAN_SEND

    ql_pool *ql_pool_new(int64_t piece, int64_t patience_ms, int64_t bytes_per_ms)
    ql_job *ql_begin(ql_pool *pool, int threads_max, int64_t number, int socket, int file,
                     int64_t position, int64_t size, const char *head, int64_t head_size,
                     const char *tail, int64_t tail_size, int probes)
    ql_job *ql_ended(ql_pool *pool)
    int64_t ql_send_now(int socket, int file, int64_t position, int64_t size, const char *head,
                        int64_t head_size, const char *tail, int64_t tail_size, int probes,
                        int *fault) nogil
    void ql_stop(ql_job *job)
    void ql_drop(ql_job *job)
    void ql_close(ql_pool *pool)

CAN_SEND = bool(QL_CAN_SEND)


def send_now(int socket, int file, int64_t position, int64_t size, bytes head, bytes tail,
             bint probes):
    cdef const char *before = PyBytes_AS_STRING(head)
    cdef const char *behind = PyBytes_AS_STRING(tail)
    cdef int64_t head_size = PyBytes_GET_SIZE(head)
    cdef int64_t tail_size = PyBytes_GET_SIZE(tail)
    cdef int64_t sent
    cdef int fault
    with nogil:
        sent = ql_send_now(socket, file, position, size, before, head_size, behind, tail_size,
                           probes, &fault)
    return sent, fault


cdef class Sender:
    cdef ql_pool *pool
    cdef int threads
    cdef int64_t given
    cdef dict jobs  # their numbers: where they are

    def __cinit__(self, int threads, int64_t piece, int64_t patience_ms, int64_t bytes_per_ms):
        self.jobs = {}
        self.threads = threads
        self.pool = ql_pool_new(piece, patience_ms, bytes_per_ms)
        if self.pool == NULL:
            raise OSError("no descriptor or memory for threads that send")

    def __dealloc__(self):
        self.close()

    @property
    def descriptor(self):
        return self.pool.is_ready

    @property
    def under_way(self):
        return len(self.jobs)

    def begin(self, int socket, int file, int64_t position, int64_t size, bytes head, bytes tail,
              bint probes):
        assert self.pool != NULL, "it is closed"
        cdef ql_job *job = ql_begin(
            self.pool, self.threads, self.given, socket, file, position, size,
            PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head),
            PyBytes_AS_STRING(tail), PyBytes_GET_SIZE(tail), probes,
        )
        if job == NULL:
            return -1
        number = self.given
        self.given += 1
        self.jobs[number] = <size_t>job
        return number

    def stop(self, number):
        cdef size_t place = self.jobs.get(number, 0)
        if place:
            ql_stop(<ql_job *>place)

    def ended(self):
        cdef ql_job *job = ql_ended(self.pool)
        cdef ql_job *following
        found = []
        while job != NULL:
            found.append((job.number, job.sent, job.error, bool(job.is_cold)))
            following = job.next
            del self.jobs[job.number]
            ql_drop(job)
            job = following
        found.reverse()
        return found

    def close(self):
        if self.pool != NULL:
            ql_close(self.pool)
            self.pool = NULL
