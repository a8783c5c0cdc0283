/* lr_trainer.c - the schedules of the Hugging Face Trainer (transformers/optimization.py of 5). See lr.h.
 *
 * Update k, from 0, has the factor of number k: a warm-up begins at 0, and only the step after the last would
 * have the minimum. */
#include <math.h>

#include "runtime/train/lr_internal.h"

static double at_least_1(int64_t steps)
{
    return steps > 1 ? (double)steps : 1;
}

/* Share of the warm-up that is done; below 1 during the warm-up. */
static double risen(const struct lr_schedule *s, int64_t step)
{
    return step < s->warmup_steps ? (double)step / at_least_1(s->warmup_steps) : 1;
}

static double shaped(enum lr_shape shape, double x, double cycles)
{
    switch (shape) {
    case LR_SHAPE_LINEAR:
        return 1 - x;
    case LR_SHAPE_SQRT:
        return 1 - sqrt(x);
    case LR_SHAPE_COSINE:
        break;
    }
    return 0.5 * (1 + cos(M_PI * cycles * 2 * x));
}

static double down_to(const struct lr_schedule *s, double share)
{
    return fmax(0, s->minimum + (s->peak - s->minimum) * share);
}

/* The factor: the peak between warm-up and decay. */
static double stable_at(const struct lr_schedule *s, int64_t step)
{
    const int64_t stable =
        s->stable_steps ? s->stable_steps : s->total_steps - s->warmup_steps - s->decay_steps;
    const int64_t falls = s->warmup_steps + stable;
    if (step < s->warmup_steps)
        return down_to(s, s->warmup_shape == LR_SHAPE_LINEAR ? risen(s, step)
                          : s->warmup_shape == LR_SHAPE_SQRT ? 1 - sqrt(1 - risen(s, step))
                                                             : 0.5 * (1 - cos(M_PI * risen(s, step))));
    if (step < falls)
        return s->peak;
    if (step >= falls + s->decay_steps)
        return s->minimum;
    return down_to(s, shaped(s->decay_shape, (double)(step - falls) / at_least_1(s->decay_steps), s->cycles));
}

static double root_at(const struct lr_schedule *s, int64_t step)
{
    enum { USUAL = 10000 };
    const double scale = s->timescale      ? (double)s->timescale
                         : s->warmup_steps ? (double)s->warmup_steps
                                           : USUAL;
    return s->peak / sqrt(((double)(step - s->warmup_steps) + scale) / scale);
}

double lr_trainer_at(const struct lr_schedule *s, int64_t step)
{
    const double done = (double)(step - s->warmup_steps) /
                        at_least_1(s->total_steps - s->warmup_steps); /* share of the fall */
    if (s->kind == LR_HF_STABLE)
        return stable_at(s, step);
    if (step < s->warmup_steps)
        return s->peak * risen(s, step);
    switch (s->kind) {
    case LR_HF_LINEAR:
        return s->peak * fmax(0, 1 - done);
    case LR_HF_RESTARTS:
        return done >= 1 ? 0 : s->peak * 0.5 * (1 + cos(M_PI * fmod(s->cycles * done, 1)));
    case LR_HF_POLYNOMIAL:
        return done >= 1 ? s->minimum : s->minimum + (s->peak - s->minimum) * pow(1 - done, s->power);
    case LR_HF_INVERSE_SQRT:
        return root_at(s, step);
    case LR_HF_CONSTANT:
        return s->peak;
    default: /* LR_HF_COSINE, whose minimum may be 0 */
        return down_to(s, shaped(LR_SHAPE_COSINE, done, s->cycles));
    }
}

int lr_trainer_check(const struct lr_schedule *s, const char *name, struct muster_error *err)
{
    if ((s->kind == LR_HF_POLYNOMIAL || s->kind == LR_HF_COSINE || s->kind == LR_HF_STABLE) &&
        s->minimum > s->peak)
        return error_set(err, MUSTER_E_INVALID, "%s: the minimum %g is above the learning rate %g", name,
                         s->minimum, s->peak);
    if (s->kind != LR_HF_STABLE)
        return 0;
    if (!s->decay_steps)
        return error_set(err, MUSTER_E_INVALID,
                         "%s needs the number of its last steps, in which the rate falls "
                         "(training.decay_steps, num_decay_steps)",
                         name);
    if (!s->stable_steps && s->warmup_steps + s->decay_steps > s->total_steps)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: %lld steps of warm-up and %lld of decay are more than the %lld there are", name,
                         (long long)s->warmup_steps, (long long)s->decay_steps, (long long)s->total_steps);
    return 0;
}
