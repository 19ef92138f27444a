// Makes syncs of write-ahead logs fail, or a read of one hang, as the file named by FAILING_SYNC says. Preloaded into
// the server.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(int fd, const char *name) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return strstr(path, name) != NULL;
}

// Returns the first letter of the mode: with `f`, syncs fail, and with `s` they hang; with `a` and `p`, a read of the
// accounts or of the people hangs; with `k`, a read of the accounts on the thread `keys`; anything else does nothing.
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
    if (is(fd, ".db-wal") && mode() == 'f') {
        errno = EIO;
        return -1;
    }
    while (mode() == 's') usleep(20000);
    int (*original)(int) = dlsym(RTLD_NEXT, name);
    return original(fd);
}

int fsync(int fd) { return sync_with("fsync", fd); }
int fdatasync(int fd) { return sync_with("fdatasync", fd); }

static void hang(int fd) {
    static int is_hanging;
    char letter = mode(), mark[4096], thread[16] = "";
    if (letter != 'a' && letter != 'p' && letter != 'k') return;
    if (!is(fd, letter == 'p' ? "people.db" : "accounts.db")) return;
    pthread_getname_np(pthread_self(), thread, sizeof thread);
    if (letter == 'k' && strcmp(thread, "keys")) return;
    // The writer, whose thread has no name, could hang in a transaction, and no command could write.
    if (letter == 'a' && strcmp(thread, "keys") && strncmp(thread, "worker-", 7)) return;
    if (__sync_lock_test_and_set(&is_hanging, 1)) return;
    snprintf(mark, sizeof mark, "%s.hangs", getenv("FAILING_SYNC"));
    close(open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    while (mode() == letter) usleep(20000);
    unlink(mark);
    __sync_lock_release(&is_hanging);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    ssize_t (*original)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
    hang(fd);
    return original(fd, data, size, at);
}

ssize_t pread(int fd, void *data, size_t size, off_t at) { return pread64(fd, data, size, at); }
