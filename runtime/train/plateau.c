/* plateau.c - see plateau.h. */
#include "runtime/train/plateau.h"

#include <math.h>
#include <stdio.h>

#include "proto/base/error.h"

void plateau_begin(const struct plateau_rule *rule, double rate, struct plateau_state *state)
{
    *state = (struct plateau_state){.rate = rate, .best = rule->mode == PLATEAU_MIN ? INFINITY : -INFINITY};
}

static bool is_better(const struct plateau_rule *rule, double metric, double best)
{
    const bool relative = rule->threshold_mode == PLATEAU_RELATIVE;
    if (rule->mode == PLATEAU_MIN)
        return metric < (relative ? best * (1.0 - rule->threshold) : best - rule->threshold);
    return metric > (relative ? best * (rule->threshold + 1.0) : best + rule->threshold);
}

static bool plateau_reduce(const struct plateau_rule *rule, struct plateau_state *state)
{
    const double lower = fmax(state->rate * rule->factor, rule->minimum);
    const bool falls = state->rate - lower > rule->least_fall;
    if (falls)
        state->rate = lower;
    state->cooldown = rule->cooldown;
    state->waits = 0;
    return falls;
}

bool plateau_judge(const struct plateau_rule *rule, struct plateau_state *state, double metric)
{
    if (is_better(rule, metric, state->best)) {
        state->best = metric;
        state->waits = 0;
    } else {
        state->waits++;
    }
    if (state->cooldown > 0) {
        state->cooldown--;
        state->waits = 0;
    }
    return state->waits > rule->patience && plateau_reduce(rule, state);
}

int plateau_format(const struct plateau_state *s, struct buffer *out)
{
    return buffer_printf(out, "rate %.17g, best %.17g, waits %lld, cooldown %lld", s->rate, s->best,
                         (long long)s->waits, (long long)s->cooldown);
}

int plateau_parse(const char *text, struct plateau_state *state, struct muster_error *err)
{
    long long waits, cooldown;
    double rate, best;
    int used = 0;
    if (sscanf(text, "rate %lg, best %lg, waits %lld, cooldown %lld%n", &rate, &best, &waits, &cooldown,
               &used) != 4 ||
        text[used] || !(rate >= 0) || isinf(rate) || isnan(best) || waits < 0 || cooldown < 0)
        return error_set(err, MUSTER_E_INVALID, "'%.80s' is no state of ReduceLROnPlateau", text);
    *state = (struct plateau_state){.rate = rate, .best = best, .waits = waits, .cooldown = cooldown};
    return 0;
}
