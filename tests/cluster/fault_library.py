"""A library that is preloaded into a node, with faults of its disk and of its wall clock.

The file that FAULTS_FILE names has the present faults as five 64-bit integers; `write_faults`
changes them while the node runs. The library replaces the calls of libc by which a node writes
files and reads the wall clock: `pwritev64v2` (`os.pwritev`), `fsync`, `fdatasync`,
`clock_gettime`, `gettimeofday` and `time`. The extension modules of the package write no files.
Debian's libfiu has no replacement of `pwritev64v2`, so that it reaches no write to a log.

The monotonic clock is correct. A wait until a time of the wall clock takes as long as without a
jump.
"""

import shutil
import struct
import subprocess
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct faults { int64_t sync_ms, sync_errors, write_errors, short_writes, wall_clock_s; };

static const struct faults none;
static const volatile struct faults *faults = &none;

__attribute__((constructor)) static void map_faults(void)
{
    const char *path = getenv("FAULTS_FILE");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        faults = mapped;
    close(file);
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (real == NULL) \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int is_drawn(int64_t percent)
{
    return percent > 0 && random() % 100 < percent;
}

/* --- the disk --- */

static int fails_to_sync(void)
{
    int64_t ms = faults->sync_ms;
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    if (ms > 0)
        nanosleep(&pause, NULL);
    if (!is_drawn(faults->sync_errors))
        return 0;
    errno = EIO;
    return 1;
}

int fsync(int descriptor)
{
    REAL(fsync);
    return fails_to_sync() ? -1 : real(descriptor);
}

int fdatasync(int descriptor)
{
    REAL(fdatasync);
    return fails_to_sync() ? -1 : real(descriptor);
}

ssize_t pwritev64v2(int descriptor, const struct iovec *parts, int count, off64_t at, int flags)
{
    REAL(pwritev64v2);
    if (is_drawn(faults->write_errors)) {
        errno = EIO;
        return -1;
    }
    if (count > 0 && is_drawn(faults->short_writes)) {
        struct iovec half = {parts->iov_base, (parts->iov_len + 1) / 2};
        return real(descriptor, &half, 1, at, flags);
    }
    return real(descriptor, parts, count, at, flags);
}

/* --- the wall clock --- */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    REAL(clock_gettime);
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += faults->wall_clock_s;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    REAL(gettimeofday);
    int result = real(now, zone);
    if (result == 0)
        now->tv_sec += faults->wall_clock_s;
    return result;
}

time_t time(time_t *now)
{
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now != NULL)
        *now = found.tv_sec;
    return found.tv_sec;
}

/* A deadline for the kernel, which has the correct time. One of the monotonic clock is small. */
static struct timespec correct(const struct timespec *deadline)
{
    struct timespec found = *deadline;
    if (found.tv_sec > 1000000000)
        found.tv_sec -= faults->wall_clock_s;
    return found;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline)
{
    REAL(pthread_cond_timedwait);
    struct timespec found = correct(deadline);
    return real(condition, mutex, &found);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict deadline)
{
    REAL(sem_timedwait);
    struct timespec found = correct(deadline);
    return real(semaphore, &found);
}

long syscall(long number, ...)
{
    REAL(syscall);
    long of[6];
    va_list list;
    va_start(list, number);
    for (int place = 0; place < 6; place++)
        of[place] = va_arg(list, long);
    va_end(list);
    struct timespec found;
    if (number == SYS_futex && of[1] & FUTEX_CLOCK_REALTIME && of[3] != 0) {
        found = correct((const struct timespec *)of[3]);
        of[3] = (long)&found;
    }
    return real(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFaults:
    """The faults of one node; shares are percentages of calls."""

    sync_ms: int = 0  # the time that each sync takes longer
    sync_errors: int = 0  # syncs that fail with EIO
    write_errors: int = 0  # writes that fail with EIO and write nothing
    short_writes: int = 0  # writes that write half of the first buffer
    wall_clock_s: int = 0  # the error of the wall clock


class NoFaultLibrary(Exception):
    """The library cannot be built on this machine; the message has the reason."""


def build_fault_library(library: Path) -> None:
    """Compile the library. Raise NoFaultLibrary."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoFaultLibrary("no C compiler")
    command = [compiler, "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library), "-ldl"]
    done = subprocess.run(command, input=SOURCE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoFaultLibrary(done.stderr.strip()[-200:])


def write_faults(path: Path, faults: NodeFaults) -> None:
    """Set the faults of the processes that have this FAULTS_FILE. They map the file, so that it is
    never truncated."""
    with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
        file.write(struct.pack("=5q", *astuple(faults)))
