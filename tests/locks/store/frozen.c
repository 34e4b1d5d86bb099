/*
 * A machine that was frozen: its monotonic clock has stood still meanwhile, as that of a virtual machine that was
 * paused. The tests preload this into a server, and write into a file for how many nanoseconds it has.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *frozen_ns;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FROZEN_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *frozen_ns, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        abort();
    frozen_ns = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (failed == 0 && clock == CLOCK_MONOTONIC && frozen_ns) {
        int64_t ns = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec - *frozen_ns;
        now->tv_sec = ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
    }
    return failed;
}
