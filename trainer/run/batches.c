/* batches.c - see batches.h. */
#include "trainer/run/batches.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"

/* ---- sources ---- */

static int read_text_sample(const struct batch_source *source, uint64_t g, void *const *to,
                            struct muster_error *err)
{
    data_positions(source->from, g, to[2]);
    return data_sample(source->from, g, to[0], to[1], err);
}

struct batch_source batch_source_texts(const struct data *data, int positions)
{
    const size_t bytes = (size_t)positions * sizeof(int32_t);
    return (struct batch_source){.from = data,
                                 .arrays = 3, /* the last is of a model that is packed (muster_model_pack) */
                                 .bytes = {bytes, bytes, bytes},
                                 .samples = data_samples(data),
                                 .read = read_text_sample};
}

static int read_picture_sample(const struct batch_source *source, uint64_t g, void *const *to,
                               struct muster_error *err)
{
    return pictures_sample(source->from, g, to[0], to[1], err) < 0 ? -1 : 1;
}

struct batch_source batch_source_pictures(const struct pictures *pictures)
{
    return (struct batch_source){
        .from = pictures,
        .arrays = 2,
        .bytes = {(size_t)pictures_elements(pictures) * sizeof(float), sizeof(int32_t)},
        .samples = pictures_samples(pictures),
        .read = read_picture_sample};
}

static int read_labelled_sample(const struct batch_source *source, uint64_t g, void *const *to,
                                struct muster_error *err)
{
    (void)err; /* labelled texts are mapped, and were checked */
    labelled_sample(source->from, g, to[0], to[1], to[2]);
    return 1;
}

/* Types are 0, as the memory is from the beginning. */
static int read_typed_sample(const struct batch_source *source, uint64_t g, void *const *to,
                             struct muster_error *err)
{
    (void)err;
    labelled_sample(source->from, g, to[0], to[2], to[3]);
    return 1;
}

struct batch_source batch_source_labelled(const struct labelled *set, int positions, bool types)
{
    const size_t tokens = (size_t)positions * sizeof(int32_t);
    if (types)
        return (struct batch_source){.from = set,
                                     .arrays = 4,
                                     .bytes = {tokens, tokens, sizeof(int32_t), sizeof(int32_t)},
                                     .samples = labelled_samples(set),
                                     .read = read_typed_sample};
    return (struct batch_source){.from = set,
                                 .arrays = 3,
                                 .bytes = {tokens, sizeof(int32_t), sizeof(int32_t)},
                                 .samples = labelled_samples(set),
                                 .read = read_labelled_sample};
}

bool batch_source_reserve(const struct batch_source *source, size_t samples,
                          void *arrays[BATCH_SOURCE_ARRAYS])
{
    bool there = true;
    for (int i = 0; i < source->arrays; i++) {
        arrays[i] = mem_calloc(samples, source->bytes[i]);
        there = there && arrays[i];
    }
    return there;
}

int batch_source_read(const struct batch_source *source, uint64_t g, void *const arrays[BATCH_SOURCE_ARRAYS],
                      int64_t at, struct muster_error *err)
{
    void *to[BATCH_SOURCE_ARRAYS];
    for (int i = 0; i < source->arrays; i++)
        to[i] = (char *)arrays[i] + (size_t)at * source->bytes[i];
    return source->read(source, g, to, err);
}

/* ---- the thread ---- */

enum { BATCHES = 3, NONE = -1 };

struct made_batch {
    void *arrays[BATCH_SOURCE_ARRAYS];
    uint64_t *ids;
    int64_t first;   /* first sample of the step; NONE: empty */
    int64_t counted; /* targets that count; -1: the samples could not be read */
    struct muster_error failure;
};

struct next_batch {
    struct next_batch_options options;
    int64_t samples;
    struct made_batch batches[BATCHES]; /* the caller's, the next, and the batch that the thread makes */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct made_batch *asked; /* batch that the thread is to make; NULL: it sleeps */
    int64_t asked_first;
    int64_t waited_ns; /* time of the caller */
    bool running, ends;
};

static void make_batch(const struct next_batch *next, int64_t first, struct made_batch *made)
{
    const struct next_batch_options *o = &next->options;
    made->first = first;
    made->counted = 0;
    for (int64_t i = 0; i < next->samples && made->counted >= 0; i++) {
        made->ids[i] = (uint64_t)(first + train_batch_row(&o->batch, i));
        const int counted = batch_source_read(&o->source, made->ids[i], made->arrays, i, &made->failure);
        made->counted = counted < 0 ? -1 : made->counted + counted;
    }
}

static void *make_batches(void *argument)
{
    struct next_batch *next = argument;
    (void)pthread_mutex_lock(&next->mutex);
    while (!next->ends) {
        if (!next->asked) {
            (void)pthread_cond_wait(&next->changed, &next->mutex);
            continue;
        }
        struct made_batch *made = next->asked;
        const int64_t first = next->asked_first;
        (void)pthread_mutex_unlock(&next->mutex);
        make_batch(next, first, made);
        (void)pthread_mutex_lock(&next->mutex);
        next->asked = NULL;
        (void)pthread_cond_broadcast(&next->changed);
    }
    (void)pthread_mutex_unlock(&next->mutex);
    return NULL;
}

GUARD_DEFINE(next_batch, struct next_batch *, next_batch_destroy);

/* A rank without samples has memory for one, so that there are addresses. */
static bool reserve(struct next_batch *next)
{
    const size_t samples = next->samples ? (size_t)next->samples : 1;
    bool there = true;
    for (int i = 0; i < BATCHES; i++) {
        struct made_batch *made = &next->batches[i];
        made->first = NONE;
        made->ids = mem_calloc(samples, sizeof *made->ids);
        there = batch_source_reserve(&next->options.source, samples, made->arrays) && made->ids && there;
    }
    return there;
}

struct next_batch *next_batch_create(const struct next_batch_options *options, struct muster_error *err)
{
    GUARD(guard_next_batch) struct next_batch *next = mem_calloc(1, sizeof *next);
    if (next) {
        next->options = *options;
        next->samples = train_batch_samples(&options->batch);
        (void)pthread_mutex_init(&next->mutex, NULL); /* neither can fail without attributes */
        (void)pthread_cond_init(&next->changed, NULL);
    }
    if (!next || !reserve(next)) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for %d batches of %lld samples", BATCHES,
                        next ? (long long)next->samples : 0);
        return NULL;
    }
    const int failed = thread_start(&next->thread, 0, make_batches, next);
    if (failed) {
        (void)thread_error(err, failed, "the thread that makes batches");
        return NULL;
    }
    next->running = true;
    return take_pointer(&next);
}

void next_batch_destroy(struct next_batch *next)
{
    if (!next)
        return;
    if (next->running) {
        (void)pthread_mutex_lock(&next->mutex);
        next->ends = true;
        (void)pthread_cond_broadcast(&next->changed);
        (void)pthread_mutex_unlock(&next->mutex);
        (void)pthread_join(next->thread, NULL);
    }
    for (int i = 0; i < BATCHES; i++) {
        for (int array = 0; array < BATCH_SOURCE_ARRAYS; array++)
            mem_free(next->batches[i].arrays[array]);
        mem_free(next->batches[i].ids);
    }
    (void)pthread_cond_destroy(&next->changed);
    (void)pthread_mutex_destroy(&next->mutex);
    mem_free(next);
}

/* The batch of a step, if the thread has made it. Otherwise a batch that is not `kept`, made here while the
 * thread sleeps. */
static struct made_batch *find_batch(struct next_batch *next, int64_t first, const struct made_batch *kept)
{
    struct made_batch *other = NULL;
    for (int i = 0; i < BATCHES; i++) {
        if (next->batches[i].first == first)
            return &next->batches[i];
        if (&next->batches[i] != kept)
            other = &next->batches[i];
    }
    make_batch(next, first, other);
    return other;
}

int next_batch_take(struct next_batch *next, int64_t first, struct step_batch *out, struct muster_error *err)
{
    const struct instant begun = clock_now(NULL);
    const int64_t step = next->options.batch.global_batch;
    (void)pthread_mutex_lock(&next->mutex);
    while (next->asked)
        (void)pthread_cond_wait(&next->changed, &next->mutex);
    const struct made_batch *now = find_batch(next, first, NULL),
                            *after = find_batch(next, first + step, now);
    for (int i = 0; i < BATCHES; i++)
        if (&next->batches[i] != now && &next->batches[i] != after)
            next->asked = &next->batches[i];
    next->asked->first = NONE; /* until it is made */
    next->asked_first = first + 2 * step;
    (void)pthread_cond_broadcast(&next->changed);
    *out = (struct step_batch){{0}, now->ids, next->samples, after->counted};
    for (int array = 0; array < BATCH_SOURCE_ARRAYS; array++)
        out->arrays[array] = now->arrays[array];
    (void)pthread_mutex_unlock(&next->mutex);
    next->waited_ns += instant_diff_ns(clock_now(NULL), begun);
    if (now->counted < 0 && err)
        *err = now->failure;
    return now->counted < 0 ? -1 : 0;
}

int64_t next_batch_waited_ns(const struct next_batch *next)
{
    return next->waited_ns;
}
