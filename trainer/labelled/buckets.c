/* buckets.c - see buckets.h. */
#include "trainer/labelled/buckets.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/data/order.h"

struct sized {
    int64_t index; /* of the epoch's samples */
    int64_t drawn; /* its place in the drawn order, which decides between two of one length */
    int length;
};

struct buckets {
    struct buckets_options options;
    pthread_mutex_t mutex;
    struct sized *sorted;
    int64_t *index; /* of the window's samples in their order */
    uint64_t from, end;
};

struct buckets *buckets_create(const struct buckets_options *options, struct muster_error *err)
{
    const int64_t n = options->samples;
    const int64_t room = options->window < n / options->step ? options->window * options->step : n;
    GUARD(guard_buckets) struct buckets *buckets = mem_calloc(1, sizeof *buckets);
    if (buckets) {
        buckets->options = *options;
        (void)pthread_mutex_init(&buckets->mutex, NULL); /* cannot fail without attributes */
        buckets->sorted = mem_calloc((size_t)room, sizeof *buckets->sorted);
        buckets->index = mem_calloc((size_t)room, sizeof *buckets->index);
    }
    if (!buckets || !buckets->sorted || !buckets->index) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to sort %lld samples by length", (long long)room);
        return NULL;
    }
    return take_pointer(&buckets);
}

void buckets_destroy(struct buckets *buckets)
{
    if (!buckets)
        return;
    (void)pthread_mutex_destroy(&buckets->mutex);
    mem_free(buckets->sorted);
    mem_free(buckets->index);
    mem_free(buckets);
}

static int compare(const void *a_, const void *b_)
{
    const struct sized *a = a_, *b = b_;
    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    return a->drawn < b->drawn ? -1 : a->drawn > b->drawn;
}

static uint64_t buckets_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t buckets_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The window around sample g: its bounds, and the order in it. */
static void sort_window(struct buckets *buckets, uint64_t g)
{
    const struct buckets_options *o = &buckets->options;
    const uint64_t n = (uint64_t)o->samples, B = (uint64_t)o->step, steps = (uint64_t)o->window;
    const uint64_t epoch = g / n, begun = epoch * n, first = begun / B;
    const uint64_t window = (g / B - first) / steps, step = first + window * steps;
    buckets->from = buckets_later(begun, step * B);
    buckets->end = buckets_earlier(begun + n, (step + steps) * B);
    const uint64_t count = buckets->end - buckets->from;
    for (uint64_t i = 0; i < count; i++) {
        const int64_t index = (int64_t)order_permute(o->seed, epoch, buckets->from - begun + i, n);
        buckets->sorted[i] = (struct sized){index, (int64_t)i, o->length(o->context, index)};
    }
    qsort(buckets->sorted, (size_t)count, sizeof *buckets->sorted, compare);
    /* The steps at both ends of an epoch may have fewer samples in it. */
    const uint64_t here = (buckets->end - 1) / B - step + 1;
    uint64_t taken = 0;
    for (uint64_t i = 0; i < here; i++) {
        const uint64_t which = step + order_permute(~o->seed ^ (epoch << 32), window, i, here);
        const uint64_t end = buckets_earlier(buckets->end, (which + 1) * B);
        for (uint64_t at = buckets_later(buckets->from, which * B); at < end; at++)
            buckets->index[at - buckets->from] = buckets->sorted[taken++].index;
    }
}

int64_t buckets_at(struct buckets *buckets, uint64_t g)
{
    (void)pthread_mutex_lock(&buckets->mutex);
    if (g < buckets->from || g >= buckets->end)
        sort_window(buckets, g);
    const int64_t index = buckets->index[g - buckets->from];
    (void)pthread_mutex_unlock(&buckets->mutex);
    return index;
}
