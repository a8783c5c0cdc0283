/* faults.c - see faults.h. */
#include "tests/support/faults.h"

#include <stdatomic.h>

#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"

static atomic_long live, countdown = -1;
static atomic_bool happened;

static int allow(void *context, size_t size)
{
    (void)context;
    (void)size;
    long left = atomic_load(&countdown);
    while (left >= 0) {
        if (atomic_compare_exchange_weak(&countdown, &left, left - 1)) {
            if (left == 0) {
                atomic_store(&happened, true);
                return 0;
            }
            return 1;
        }
    }
    return 1;
}

static void allocated(void *context, void *block, size_t size)
{
    (void)context;
    (void)block;
    (void)size;
    atomic_fetch_add(&live, 1);
}

static void freed(void *context, void *block)
{
    (void)context;
    (void)block;
    atomic_fetch_sub(&live, 1);
}

static const struct mem_hook counting = {.allow = allow, .allocated = allocated, .freed = freed};

void faults_begin(void)
{
    atomic_store(&live, 0);
    atomic_store(&countdown, -1);
    atomic_store(&happened, false);
    mem_hook_set(&counting);
}

void faults_fail_after(long count)
{
    atomic_store(&happened, false);
    atomic_store(&countdown, count);
}

bool faults_happened(void)
{
    return atomic_load(&happened);
}

long faults_live_blocks(void)
{
    return atomic_load(&live);
}

long faults_end(void)
{
    mem_hook_set(NULL);
    return atomic_load(&live);
}

static void sweep(int (*body)(void *context), void *context, bool absorbs)
{
    for (long n = 0; n < 100000; n++) {
        faults_begin();
        faults_fail_after(n);
        int result = body(context);
        bool hit = faults_happened();
        long leaked = faults_end();
        if (leaked)
            fail_msg("allocation %ld failing leaks %ld blocks", n, leaked);
        if (hit && result >= 0 && !absorbs)
            fail_msg("allocation %ld fails, and the body does not", n);
        if (!hit) {
            if (result < 0)
                fail_msg("the body fails with no fault injected");
            return;
        }
    }
    fail_msg("more than 100,000 allocations: the sweep does not end");
}

void faults_sweep(int (*body)(void *context), void *context)
{
    sweep(body, context, false);
}

void faults_sweep_absorbed(int (*body)(void *context), void *context)
{
    sweep(body, context, true);
}
