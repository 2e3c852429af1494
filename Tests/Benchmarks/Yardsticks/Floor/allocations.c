// Carillon · allocations.c
// SPDX-License-Identifier: Apache-2.0

// Counts a process's allocations on the heap: malloc, calloc, realloc and the aligned ones.
//
//   cc -O2 -shared -fPIC -o allocations.so allocations.c
//   COUNT_ALLOCATIONS=file LD_PRELOAD=./allocations.so program
//
// The first eight bytes of the file are the count so far, in the machine's byte order; a process
// that `exec` replaces is counted too. All threads share the counter, so do not measure times with
// it.

#define _GNU_SOURCE

#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// The C library's own names of its functions, which need no lookup before they can be called.
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static _Atomic uint64_t before_start;
static _Atomic uint64_t *counter = &before_start;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("COUNT_ALLOCATIONS");
    int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0 || ftruncate(file, sizeof *counter) != 0) return;
    void *page = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) counter = page;
}

static void count(void) { atomic_fetch_add_explicit(counter, 1, memory_order_relaxed); }

void *malloc(size_t size) {
    count();
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    count();
    return __libc_calloc(number, size);
}

void *realloc(void *old, size_t size) {
    count();
    return __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size) {
    count();
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size) {
    *result = memalign(alignment, size);
    return *result ? 0 : 12;
}
