/* lr.c - see lr.h. */
#include "runtime/train/lr.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "proto/base/error.h"
#include "runtime/train/lr_internal.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* --- after PyTorch --- */

/* Steps from the peak to the minimum. */
static int64_t decay_length(const struct lr_schedule *s)
{
    return s->decay_steps ? s->decay_steps : s->total_steps - 1 - s->warmup_steps;
}

static int64_t wsd_length(const struct lr_schedule *s)
{
    return s->decay_steps ? s->decay_steps : larger(s->total_steps / 5, 1);
}

/* Share of the way from the peak to the minimum after `done` of `length` steps. */
static double way(int64_t done, int64_t length)
{
    if (done <= 0)
        return 0;
    return done >= length ? 1 : (double)done / (double)length;
}

static double between(const struct lr_schedule *s, double share_of_peak)
{
    return s->minimum + (s->peak - s->minimum) * share_of_peak;
}

static double plain_at(const struct lr_schedule *s, int64_t step)
{
    if (step < s->warmup_steps)
        return s->peak * (double)(step + 1) / (double)s->warmup_steps;
    const int64_t behind = step - s->warmup_steps;
    if (s->kind == LR_CONSTANT || s->kind == LR_PLATEAU)
        return s->peak;
    if (step >= s->total_steps)
        return s->minimum;
    switch (s->kind) {
    case LR_LINEAR:
        return between(s, 1 - way(behind, decay_length(s)));
    case LR_WSD: /* its last step reaches the minimum */
        return between(s, 1 - sqrt(way(step + 1 - (s->total_steps - wsd_length(s)), wsd_length(s))));
    default: /* LR_COSINE */
        return between(s, 0.5 * (1 + cos(M_PI * way(behind, decay_length(s)))));
    }
}

/* --- after DeepSpeed; t: its last_batch_iteration --- */

/* Share of the warm-up that is done, t < warm. */
static double warmed(const struct lr_schedule *s, int64_t t, int64_t warm)
{
    return s->warmup == LR_WARMUP_LOG ? log((double)(t + 1)) / log((double)warm) : (double)t / (double)warm;
}

static double warmup_at(const struct lr_schedule *s, int64_t t)
{
    const int64_t warm = larger(s->warmup_steps, 2);
    double share = 1;
    if (t < 0)
        return s->warmup_minimum;
    if (t < warm)
        share = warmed(s, t, warm);
    else if (s->kind == LR_WARMUP_DECAY)
        share = fmax(0, (double)(s->total_steps - t) / (double)larger(s->total_steps - warm, 1));
    return s->warmup_minimum + (s->peak - s->warmup_minimum) * share;
}

static double warmup_cosine_at(const struct lr_schedule *s, int64_t t)
{
    const int64_t warm = larger(s->warmup_steps, 2);
    if (t < 0)
        return 0;
    if (t < warm)
        return s->warmup_minimum + (s->peak - s->warmup_minimum) * warmed(s, t, warm);
    double progress = fmin(1, (double)(t - warm + 1) / (double)larger(s->total_steps - warm, 1));
    return fmax(0, between(s, 0.5 * (1 + cos(M_PI * progress))));
}

static int64_t fall_length(const struct lr_schedule *s)
{
    return s->decay_steps ? s->decay_steps : s->warmup_steps;
}

/* Height of the rate within the cycle, from the minimum (0) to the peak (1). */
static double cycle_height(const struct lr_schedule *s, int64_t t)
{
    const double all = (double)(s->warmup_steps + fall_length(s)), rise = (double)s->warmup_steps / all;
    const double x = (double)(t + 1) / all, within = x - floor(x);
    return within <= rise ? within / rise : (within - 1) / (rise - 1);
}

/* Intervals of the decay after the cycle; 0: within the cycle. */
static double decayed_intervals(const struct lr_schedule *s, int64_t t)
{
    const int64_t all = s->warmup_steps + fall_length(s);
    return t < all || !s->decay_interval ? 0 : (double)(t - all + 1) / (double)s->decay_interval;
}

static bool is_behind_cycle(const struct lr_schedule *s, int64_t t)
{
    return t >= s->warmup_steps + fall_length(s);
}

static double one_cycle_at(const struct lr_schedule *s, int64_t t)
{
    if (t < 0)
        return s->minimum;
    if (is_behind_cycle(s, t))
        return s->minimum / (1 + s->decay_rate * decayed_intervals(s, t));
    return between(s, cycle_height(s, t));
}

/* --- both --- */

double lr_at(const struct lr_schedule *schedule, int64_t step)
{
    step = larger(step, 0);
    if (schedule->kind >= LR_HF_LINEAR)
        return lr_trainer_at(schedule, step);
    switch (schedule->kind) {
    case LR_WARMUP:
    case LR_WARMUP_DECAY:
        return warmup_at(schedule, step - 1);
    case LR_WARMUP_COSINE:
        return warmup_cosine_at(schedule, step - 1);
    case LR_ONE_CYCLE:
        return one_cycle_at(schedule, step - 1);
    default:
        return plain_at(schedule, step);
    }
}

double lr_momentum_at(const struct lr_schedule *schedule, int64_t step, double usual)
{
    const struct lr_schedule *s = schedule;
    const int64_t t = larger(step, 0) - 1;
    if (s->kind != LR_ONE_CYCLE || (s->momentum_low == 0 && s->momentum_high == 0))
        return usual;
    if (t < 0)
        return s->momentum_low; /* DeepSpeed begins there, before its first step falls from the high value */
    if (is_behind_cycle(s, t))
        return s->momentum_high * (1 + s->momentum_rate * decayed_intervals(s, t));
    return s->momentum_high - (s->momentum_high - s->momentum_low) * cycle_height(s, t);
}

static const char *kind_name(enum lr_kind kind)
{
    static const char *const names[] = {
#define LR_KIND_NAME(symbol, name, meaning) name,
        LR_KINDS(LR_KIND_NAME)
#undef LR_KIND_NAME
    };
    assert(kind < LR_KIND_COUNT);
    return names[kind];
}

int lr_check(const struct lr_schedule *schedule, struct muster_error *err)
{
    const struct lr_schedule *s = schedule;
    const char *name = kind_name(s->kind);
    if (s->kind >= LR_HF_LINEAR)
        return lr_trainer_check(s, name, err);
    const bool has_minimum =
        s->kind != LR_CONSTANT && s->kind != LR_WARMUP && s->kind != LR_WARMUP_DECAY && s->kind != LR_PLATEAU;
    if (has_minimum && s->minimum > s->peak)
        return error_set(err, MUSTER_E_INVALID, "%s: the minimum %g is above the learning rate %g", name,
                         s->minimum, s->peak);
    if (s->kind == LR_WSD && wsd_length(s) + s->warmup_steps > s->total_steps)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: %lld steps of warm-up and %lld of decay are more than the %lld there are", name,
                         (long long)s->warmup_steps, (long long)wsd_length(s), (long long)s->total_steps);
    if (s->kind < LR_WARMUP || s->kind == LR_PLATEAU)
        return 0;
    if (s->kind == LR_ONE_CYCLE && s->warmup_steps < 1) /* other DeepSpeed schedules take at least two */
        return error_set(err, MUSTER_E_INVALID, "%s needs at least 1 step of warm-up", name);
    if (s->kind != LR_ONE_CYCLE && s->warmup_minimum > s->peak)
        return error_set(err, MUSTER_E_INVALID, "%s: the warm-up begins at %g, above the learning rate %g",
                         name, s->warmup_minimum, s->peak);
    if (s->kind == LR_ONE_CYCLE && s->momentum_low > s->momentum_high)
        return error_set(err, MUSTER_E_INVALID, "%s: the low momentum %g is above the high one %g", name,
                         s->momentum_low, s->momentum_high);
    if (s->kind == LR_ONE_CYCLE && (s->decay_rate != 0 || s->momentum_rate != 0) && !s->decay_interval)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: a decay behind the cycle needs the number of steps it counts (decay interval)",
                         name);
    return 0;
}
