/* scratch.c - see scratch.h. */
#include "kernels/cpu/scratch.h"

#include <pthread.h>
#include <sys/mman.h>

#include "kernels/cpu/team.h"

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static int key_error;

static const size_t bytes = SCRATCH_BYTES;

static void scratch_free(void *memory)
{
    (void)munmap(memory, bytes); /* cannot fail: it is a whole mapping of ours */
}

static void make_key(void)
{
    key_error = pthread_key_create(&key, scratch_free);
}

uint16_t *cpu_scratch(void)
{
    static _Thread_local uint16_t *own;
    uint16_t *lent = team_lent();
    if (lent)
        return lent;
    if (own)
        return own;
    (void)pthread_once(&key_once, make_key); /* cannot fail: both arguments are valid */
    if (key_error)
        return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (pthread_setspecific(key, memory)) {
        scratch_free(memory);
        return NULL;
    }
    return own = memory;
}
