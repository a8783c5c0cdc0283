/* mem.c - see mem.h. */
#include "proto/base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(const struct mem_hook *) hook;

void mem_hook_set(const struct mem_hook *new_hook)
{
    atomic_store(&hook, new_hook);
}

static int allowed(const struct mem_hook *h, size_t size)
{
    return !h || h->allow(h->context, size);
}

void *mem_calloc(size_t count, size_t size)
{
    const struct mem_hook *h = atomic_load_explicit(&hook, memory_order_acquire);
    if (!allowed(h, count * size))
        return NULL;
    void *block = calloc(count ? count : 1, size ? size : 1);
    if (h && block)
        h->allocated(h->context, block, count * size);
    return block;
}

void *mem_realloc(void *block, size_t count, size_t size)
{
    const struct mem_hook *h = atomic_load_explicit(&hook, memory_order_acquire);
    if ((size && count > SIZE_MAX / size) || !allowed(h, count * size))
        return NULL;
    size_t bytes = count * size;
    bool fresh = !block;
    void *moved = realloc(block, bytes > 0 ? bytes : 1);
    if (h && moved && fresh)
        h->allocated(h->context, moved, bytes);
    return moved;
}

char *mem_strndup(const char *text, size_t length)
{
    size_t used = strnlen(text, length);
    char *copy = mem_calloc(used + 1, 1);
    if (copy)
        memcpy(copy, text, used);
    return copy;
}

char *mem_strdup(const char *text)
{
    return mem_strndup(text, strlen(text));
}

char *mem_printf(const char *format, ...)
{
    va_list args;
    char shortly[256]; /* most texts are short: formatted once */
    va_start(args, format);
    int length = vsnprintf(shortly, sizeof shortly, format, args);
    va_end(args);
    if (length < 0)
        return NULL;
    if ((size_t)length < sizeof shortly)
        return mem_strndup(shortly, (size_t)length);
    char *text = mem_calloc((size_t)length + 1, 1);
    if (!text)
        return NULL;
    va_start(args, format);
    (void)vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

void mem_free(void *block)
{
    const struct mem_hook *h = atomic_load_explicit(&hook, memory_order_acquire);
    if (h && block)
        h->freed(h->context, block);
    free(block);
}
