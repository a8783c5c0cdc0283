/* batch.c - see batch.h. */
#include "trainer/formats/batch.h"

#include "proto/base/error.h"

enum { BATCH_MOST = 1000000000 }; /* of each size: products of one and of a million ranks fit */

static bool product(const struct batch_sizes *s, int ranks, int64_t *out)
{
    return !__builtin_mul_overflow(s->micro, s->accumulation, out) &&
           !__builtin_mul_overflow(*out, (int64_t)ranks, out);
}

static int refuse(const struct batch_sizes *s, int ranks, struct muster_error *err)
{
    return error_set(err, MUSTER_E_INVALID,
                     "train_batch_size %lld is not train_micro_batch_size_per_gpu %lld x "
                     "gradient_accumulation_steps %lld x %d ranks",
                     (long long)s->total, (long long)s->micro, (long long)s->accumulation, ranks);
}

static int check_given(const struct batch_sizes *s, struct muster_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } given[] = {{"train_batch_size", s->total},
                 {"train_micro_batch_size_per_gpu", s->micro},
                 {"gradient_accumulation_steps", s->accumulation}};
    for (int i = 0; i < 3; i++)
        if (given[i].value < 0 || given[i].value > BATCH_MOST)
            return error_set(err, MUSTER_E_INVALID, "%s %lld is outside 1 to %d", given[i].name,
                             (long long)given[i].value, BATCH_MOST);
    if (!s->total && !s->micro)
        return error_set(err, MUSTER_E_INVALID,
                         "neither train_batch_size nor train_micro_batch_size_per_gpu is given; give one of "
                         "the two");
    return 0;
}

int batch_complete(struct batch_sizes *sizes, int ranks, bool strict, bool *changed, struct muster_error *err)
{
    struct batch_sizes s = *sizes;
    *changed = false;
    if (check_given(&s, err) < 0)
        return -1;
    if (s.total && s.micro) {
        const int64_t at_once = s.micro * ranks;
        const int64_t given = s.accumulation;
        if (!strict)
            s.accumulation = (s.total + at_once - 1) / at_once;
        else if (!s.accumulation)
            s.accumulation = s.total / s.micro / ranks;
        *changed = given && given != s.accumulation;
    } else if (s.total) {
        s.accumulation = s.accumulation ? s.accumulation : 1;
        s.micro = s.total / ranks / s.accumulation;
    } else {
        s.accumulation = s.accumulation ? s.accumulation : 1;
        if (!product(&s, ranks, &s.total) || s.total > BATCH_MOST)
            return error_set(
                err, MUSTER_E_INVALID,
                "train_micro_batch_size_per_gpu %lld x gradient_accumulation_steps %lld x %d ranks "
                "is more than %d samples a step",
                (long long)s.micro, (long long)s.accumulation, ranks, BATCH_MOST);
    }
    /* a micro-batch that was given runs with empty rows where it does not divide; one of our own must fit */
    const bool exact = strict || !sizes->micro;
    int64_t all;
    if (s.micro < 1 || s.accumulation < 1 || (exact && (!product(&s, ranks, &all) || s.total != all)))
        return refuse(&s, ranks, err);
    *sizes = s;
    return 0;
}
