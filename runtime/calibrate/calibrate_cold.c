/* calibrate_cold.c - makes caches as cold as in a step. Between two calls of an operation a step passes over
 * everything else that it holds, some of which it reads and some of which it writes: so does calibrate_cool
 * before each call that is timed. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/calibrate/calibrate_cold.h"
#include "runtime/calibrate/calibrate_internal.h"
#include "runtime/device/host_memory.h"

enum { CACHES_MAX = 16, TEXT_MAX = 64 };
#define CACHE_UNKNOWN ((int64_t)64 << 20) /* where the system does not describe it */
#define CACHE_MOST    ((int64_t)1 << 30)

/* ---- sizes ---- */

int64_t calibrate_cache_size(const char *text)
{
    char *end = NULL;
    if (!isdigit((unsigned char)*text))
        return 0;
    const int64_t number = strtoll(text, &end, 10);
    const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    return number > CACHE_MOST >> shift ? CACHE_MOST : number << shift;
}

int64_t calibrate_cache_bytes(const char *root)
{
    int64_t largest = 0;
    for (int index = 0; index < CACHES_MAX; index++) {
        scope_buffer text = {0};
        char path[256];
        (void)snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cache/index%d/size", root, index);
        if (io_read_file(path, TEXT_MAX, &text, NULL) < 0 || buffer_text(&text, "") < 0)
            continue;
        const int64_t bytes = calibrate_cache_size(text.data);
        largest = bytes > largest ? bytes : largest;
    }
    return largest ? largest : CACHE_UNKNOWN;
}

int64_t calibrate_cold_bytes(int64_t cache, int64_t available, int ranks)
{
    const int64_t share = cache / ranks, room = available / (4 * (int64_t)ranks);
    return available > 0 && share > room ? room : share;
}

int64_t calibrate_pass_bytes(int64_t cold, int64_t step, int64_t own)
{
    const int64_t others = step > own ? step - own : 0;
    return cold < others ? cold : others;
}

/* ---- a rank's ---- */

/* Bytes that a rank's step passes over. */
static int64_t step_bytes(const struct plan *plan)
{
    return plan->arena_bytes[MEMORY_DEVICE] + plan->arena_bytes[MEMORY_COMM];
}

int calibrate_cold_open(struct calibrate_rank *rank)
{
    const struct calibrate_options *o = rank->crowd->options;
    const int64_t cold = calibrate_cold_bytes(calibrate_cache_bytes(""), host_memory_available(), o->ranks);
    rank->cold_bytes = calibrate_pass_bytes(cold, step_bytes(o->plan), 0);
    if (rank->cold_bytes < 1)
        return 0;
    if (rank->ops->arena_create(rank->device, MEMORY_DEVICE, rank->cold_bytes, &rank->cold, &rank->err))
        return -1;
    memset(rank->cold.base, 0, (size_t)rank->cold_bytes); /* zeroes stay zeroes, whatever their dtype */
    return 0;
}

void calibrate_cold_close(struct calibrate_rank *rank)
{
    if (rank->cold.base)
        rank->ops->arena_destroy(rank->device, &rank->cold);
}

void calibrate_cool(const struct calibrate_rank *rank, int64_t own_bytes)
{
    const int64_t bytes =
        calibrate_pass_bytes(rank->cold_bytes, step_bytes(rank->crowd->options->plan), own_bytes);
    const int64_t size = dtype_size(rank->kernels->statistic), half = bytes / 2 / size;
    char *base = rank->cold.base;
    double squares;
    if (half < 1)
        return;
    rank->kernels->norm_squared(&squares, base + half * size, half, 0, NULL);
    rank->kernels->scale(base, 0.5, half, NULL);
}
