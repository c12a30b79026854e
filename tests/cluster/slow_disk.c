/* Preloaded into a node, it makes the disk slow on demand: while the file named by SLOW_DISK_FILE
 * exists, each sync takes so many milliseconds longer as the file says. */
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
