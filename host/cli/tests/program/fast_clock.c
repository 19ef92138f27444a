// Sets the wall clock of the server ahead by FAST_CLOCK seconds. Preloaded into the server.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*original)(clockid_t, struct timespec *);
    if (!original) original = dlsym(RTLD_NEXT, "clock_gettime");
    int result = original(clock, time);
    const char *ahead = getenv("FAST_CLOCK");
    if (clock == CLOCK_REALTIME && ahead) time->tv_sec += atol(ahead);
    return result;
}
