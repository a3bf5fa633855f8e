/* SPDX-License-Identifier: MIT */
/* Preloaded into a server under test: counts the bytes in its heap, in a file that tools/soak
 * reads.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The C library's own, under the names that stay when these are replaced. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

typedef struct heap_count {
    _Atomic(int64_t) bytes, blocks;
} heap_count;

static heap_count unmapped; /* until the file is there, or for good when there is none */
static heap_count *count = &unmapped;

/* WEIR_SOAK_LEAK=N leaks every N-th block that is freed, to show that a leak is noticed. */
static unsigned leak_every;
static _Atomic(unsigned) frees;

/* Before there is a second thread. */
__attribute__((constructor)) static void map_count(void)
{
    const char *path = getenv("WEIR_SOAK_HEAP"), *leak = getenv("WEIR_SOAK_LEAK");
    leak_every = leak != NULL ? (unsigned)atoi(leak) : 0;
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    heap_count *mapped = mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED)
        return;
    mapped->bytes = unmapped.bytes;
    mapped->blocks = unmapped.blocks;
    count = mapped;
}

static void *taken(void *block)
{
    if (block != NULL) {
        atomic_fetch_add_explicit(&count->bytes, (int64_t)malloc_usable_size(block),
                                  memory_order_relaxed);
        atomic_fetch_add_explicit(&count->blocks, 1, memory_order_relaxed);
    }
    return block;
}

static void given_back(void *block)
{
    if (block == NULL)
        return;
    atomic_fetch_sub_explicit(&count->bytes, (int64_t)malloc_usable_size(block),
                              memory_order_relaxed);
    atomic_fetch_sub_explicit(&count->blocks, 1, memory_order_relaxed);
}

void *malloc(size_t size)
{
    return taken(__libc_malloc(size));
}

void *calloc(size_t number, size_t size)
{
    return taken(__libc_calloc(number, size));
}

void *realloc(void *block, size_t size)
{
    size_t before = block != NULL ? malloc_usable_size(block) : 0;
    void *other = __libc_realloc(block, size);
    if (other == NULL && size > 0)
        return NULL; /* the block is as it was */
    if (block != NULL) {
        atomic_fetch_sub_explicit(&count->bytes, (int64_t)before, memory_order_relaxed);
        atomic_fetch_sub_explicit(&count->blocks, 1, memory_order_relaxed);
    }
    return taken(other);
}

void *memalign(size_t alignment, size_t size)
{
    return taken(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return taken(__libc_memalign(alignment, size));
}

int posix_memalign(void **to, size_t alignment, size_t size)
{
    void *block = taken(__libc_memalign(alignment, size));
    if (block == NULL)
        return ENOMEM;
    *to = block;
    return 0;
}

void free(void *block)
{
    if (leak_every > 0 && atomic_fetch_add(&frees, 1) % leak_every == 0)
        return;
    given_back(block);
    __libc_free(block);
}
