/* schedule_dump - writes the learning rate and the momentum of every step, for schedules_torch_test.py to
 * compare.
 *
 *     schedule_dump KIND STEPS MEMBER=VALUE...
 *
 * MEMBER is a member of struct lr_schedule. Output, a line a step: rate momentum.
 *
 *     schedule_dump plateau RATE MEMBER=VALUE... <METRICS
 *
 * MEMBER is a member of struct plateau_rule. Output, a line a metric: the rate after it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/train/lr.h"
#include "runtime/train/plateau.h"

static const char *const kinds[] = {
#define LR_KIND_NAME(symbol, name, meaning) name,
    LR_KINDS(LR_KIND_NAME)
#undef LR_KIND_NAME
};

#define MEMBER_NUMBER(member)                                                                                \
    if (!strncmp(text, #member "=", sizeof #member))                                                         \
        return schedule->member = strtod(text + sizeof #member, NULL), 0;
#define MEMBER_COUNT(member)                                                                                 \
    if (!strncmp(text, #member "=", sizeof #member))                                                         \
        return schedule->member = strtoll(text + sizeof #member, NULL, 10), 0;

#define MEMBER_SHAPE(member)                                                                                 \
    if (!strncmp(text, #member "=", sizeof #member))                                                         \
        return schedule->member = (enum lr_shape)strtol(text + sizeof #member, NULL, 10), 0;

static int set_member(struct lr_schedule *schedule, const char *text)
{
    MEMBER_NUMBER(peak)
    MEMBER_NUMBER(minimum)
    MEMBER_NUMBER(warmup_minimum)
    MEMBER_NUMBER(decay_rate)
    MEMBER_NUMBER(momentum_low)
    MEMBER_NUMBER(momentum_high)
    MEMBER_NUMBER(momentum_rate)
    MEMBER_COUNT(warmup_steps)
    MEMBER_COUNT(total_steps)
    MEMBER_COUNT(decay_steps)
    MEMBER_COUNT(decay_interval)
    MEMBER_NUMBER(cycles)
    MEMBER_NUMBER(power)
    MEMBER_COUNT(timescale)
    MEMBER_COUNT(stable_steps)
    MEMBER_SHAPE(warmup_shape)
    MEMBER_SHAPE(decay_shape)
    if (strcmp(text, "warmup=linear") != 0)
        return -1;
    schedule->warmup = LR_WARMUP_LINEAR;
    return 0;
}

static int set_plateau(struct plateau_rule *schedule, const char *text)
{
    MEMBER_NUMBER(threshold)
    MEMBER_NUMBER(factor)
    MEMBER_NUMBER(minimum)
    MEMBER_NUMBER(least_fall)
    MEMBER_COUNT(patience)
    MEMBER_COUNT(cooldown)
    if (!strcmp(text, "mode=max"))
        schedule->mode = PLATEAU_MAX;
    else if (!strcmp(text, "threshold_mode=abs"))
        schedule->threshold_mode = PLATEAU_ABSOLUTE;
    else
        return -1;
    return 0;
}

/* Every state goes through its text, as by a checkpoint. */
static int dump_plateau(int argc, char *argv[])
{
    struct plateau_rule rule = {.factor = 0.1, .patience = 10, .threshold = 1e-4, .least_fall = 1e-8};
    struct plateau_state state;
    double metric;
    for (int i = 3; i < argc; i++)
        if (set_plateau(&rule, argv[i]) < 0)
            return 2;
    plateau_begin(&rule, strtod(argv[2], NULL), &state);
    while (scanf("%lg", &metric) == 1) {
        scope_buffer text = {0};
        (void)plateau_judge(&rule, &state, metric);
        if (plateau_format(&state, &text) < 0 || plateau_parse(text.data, &state, NULL) < 0)
            return 1;
        (void)printf("%.17g\n", state.rate);
    }
    return fflush(stdout) ? 1 : 0;
}

int main(int argc, char *argv[])
{
    if (argc > 2 && !strcmp(argv[1], "plateau"))
        return dump_plateau(argc, argv);
    struct lr_schedule schedule = {.kind = LR_KIND_COUNT};
    struct muster_error err = {0};
    for (int i = 0; argc > 2 && i < LR_KIND_COUNT; i++)
        if (!strcmp(kinds[i], argv[1]))
            schedule.kind = (enum lr_kind)i;
    if (schedule.kind == LR_KIND_COUNT) {
        (void)fprintf(stderr, "usage: schedule_dump KIND STEPS MEMBER=VALUE...\n");
        return 2;
    }
    for (int i = 3; i < argc; i++)
        if (set_member(&schedule, argv[i]) < 0) {
            (void)fprintf(stderr, "schedule_dump: no member: %s\n", argv[i]);
            return 2;
        }
    if (lr_check(&schedule, &err) < 0) {
        (void)fprintf(stderr, "schedule_dump: %s\n", err.text);
        return 2;
    }
    for (int64_t step = 0, steps = strtoll(argv[2], NULL, 10); step < steps; step++)
        (void)printf("%.17g %.17g\n", lr_at(&schedule, step), lr_momentum_at(&schedule, step, 0.95));
    return fflush(stdout) ? 1 : 0;
}
