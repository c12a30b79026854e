"""A library that is preloaded into a node and makes its disk slow on demand: while the file that
SLOW_DISK_FILE names exists, each sync takes so many milliseconds longer as the file says."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void linger(void)
{
    const char *path = getenv("SLOW_DISK_FILE");
    char text[16] = {0};
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    if (read(file, text, sizeof text - 1) > 0) {
        long ms = strtol(text, NULL, 10);
        struct timespec time = {ms / 1000, ms % 1000 * 1000000};
        nanosleep(&time, NULL);
    }
    close(file);
}

int fsync(int descriptor)
{
    linger();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(descriptor);
}

int fdatasync(int descriptor)
{
    linger();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(descriptor);
}
"""


class NoSlowDisk(Exception):
    """This machine cannot make it; says why."""


def build_slow_disk(library: Path) -> None:
    """Compile the library; raises NoSlowDisk."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoSlowDisk("no C compiler")
    command = [compiler, "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library), "-ldl"]
    done = subprocess.run(command, input=SOURCE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoSlowDisk(done.stderr.strip()[-200:])
