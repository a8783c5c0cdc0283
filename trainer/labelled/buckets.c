/* buckets.c - see labelled_internal.h: samples ordered by length, and the padding that this saves. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/data/order.h"
#include "trainer/labelled/labelled.h"
#include "trainer/labelled/labelled_internal.h"

struct sized {
    int64_t index; /* sample of the epoch */
    int64_t drawn; /* place in the drawn order, which decides between samples of equal length */
    int length;
};

struct buckets {
    struct buckets_options options;
    pthread_mutex_t mutex;
    struct sized *sorted;
    int64_t *index; /* the window's samples in their order */
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

/* Computes the window around sample g: its bounds and its order. */
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
    /* The first and the last step of an epoch may have fewer samples in the window. */
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

/* ---- padding ---- */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct padding padding_count(const struct labelled *set, int64_t step, int64_t micro_batch)
{
    struct padding found = {.samples = smaller(labelled_samples(set), PADDING_SAMPLES)};
    for (int64_t first = 0; first < found.samples; first += step) {
        const int64_t end = smaller(first + step, found.samples);
        for (int64_t from = first; from < end; from += micro_batch) {
            int longest = 1, drawn = 1; /* the trainer computes at least one position */
            for (int64_t g = from; g < smaller(from + micro_batch, end); g++) {
                const int length = labelled_length(set, (uint64_t)g, true),
                          other = labelled_length(set, (uint64_t)g, false);
                found.tokens += length;
                longest = length > longest ? length : longest;
                drawn = other > drawn ? other : drawn;
            }
            found.computed += micro_batch * longest;
            found.drawn += micro_batch * drawn;
        }
    }
    return found;
}
