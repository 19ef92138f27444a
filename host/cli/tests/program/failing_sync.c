// Makes syncs of write-ahead logs fail, as the file named by FAILING_SYNC says. Preloaded into the server.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_log(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 4) return 0;
    path[length] = 0;
    return strcmp(path + length - 4, "-wal") == 0;
}

// Returns the first letter of the mode: `f` fails, and anything else does nothing.
static char mode(void) {
    char letter = 0;
    const char *path = getenv("FAILING_SYNC");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    if (read(file, &letter, 1) != 1) letter = 0;
    close(file);
    return letter;
}

static int sync_with(const char *name, int fd) {
    if (is_log(fd) && mode() == 'f') {
        errno = EIO;
        return -1;
    }
    int (*original)(int) = dlsym(RTLD_NEXT, name);
    return original(fd);
}

int fsync(int fd) { return sync_with("fsync", fd); }
int fdatasync(int fd) { return sync_with("fdatasync", fd); }
