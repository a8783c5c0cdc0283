/* mem.h - host memory for the control plane: every allocation of ours goes through here, so that tests can
 * count leaks and inject failures. Bulk memory (parameters, activations) is planned and comes from device
 * arenas, never from here. */
#ifndef MUSTER_PROTO_BASE_MEM_H
#define MUSTER_PROTO_BASE_MEM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zeroed memory for count elements of size bytes, or NULL (overflow of the product counts as failure). */
void *mem_calloc(size_t count, size_t size) __attribute__((malloc, alloc_size(1, 2)));
/* As realloc for count elements; on NULL the old block is untouched. New bytes are not zeroed. */
void *mem_realloc(void *block, size_t count, size_t size);
/* A copy of text, of at most length bytes of it (mem_strndup), or NULL. */
char *mem_strdup(const char *text);
char *mem_strndup(const char *text, size_t length);
/* printf into fresh memory, or NULL. */
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Accepts NULL. */
void mem_free(void *block);

/* Tests only: a hook that is called before every allocation (returns false to make it fail) and for every
 * block that is allocated or freed; a block that mem_realloc moves stays one block. Set while no other
 * thread allocates; NULL removes it. */
struct mem_hook {
    int (*allow)(void *context, size_t size);
    void (*allocated)(void *context, void *block, size_t size);
    void (*freed)(void *context, void *block);
    void *context;
};
void mem_hook_set(const struct mem_hook *hook);

#ifdef __cplusplus
}
#endif
#endif
