/* evaluation.c - see evaluation.h. */
#include "runtime/train/evaluation.h"

#include <math.h>
#include <stdio.h>

#include "proto/base/error.h"

void evaluation_begin(struct evaluation_state *state)
{
    *state = (struct evaluation_state){.last_step = -1, .best_step = -1};
}

static double metric_of(const struct evaluation_rule *rule, double loss)
{
    return rule->metric == EVALUATION_PERPLEXITY ? exp(loss) : loss;
}

bool evaluation_judge(const struct evaluation_rule *rule, struct evaluation_state *state, int64_t step,
                      double loss)
{
    const bool number = isfinite(loss), first = state->best_step < 0;
    const bool best = number && (first || loss < state->best_loss);
    const bool gains =
        number && (first || metric_of(rule, loss) < metric_of(rule, state->gained_loss) - rule->min_gain);
    state->count++;
    state->last_step = step;
    state->last_loss = loss;
    state->waits = gains ? 0 : state->waits + 1;
    if (gains)
        state->gained_loss = loss;
    if (best) {
        state->best_step = step;
        state->best_loss = loss;
    }
    return best;
}

bool evaluation_stops(const struct evaluation_rule *rule, const struct evaluation_state *state)
{
    return rule->patience > 0 && state->waits >= rule->patience;
}

#define EVALUATION_TEXT                                                                                      \
    "count %lld, last %lld with %.17g, best %lld with %.17g, gained %.17g, waits %lld, kept %lld"
#define EVALUATION_SCAN                                                                                      \
    "count %lld, last %lld with %lg, best %lld with %lg, gained %lg, waits %lld, kept %lld%n"

int evaluation_format(const struct evaluation_state *s, struct buffer *out)
{
    return buffer_printf(out, EVALUATION_TEXT, (long long)s->count, (long long)s->last_step, s->last_loss,
                         (long long)s->best_step, s->best_loss, s->gained_loss, (long long)s->waits,
                         (long long)s->kept_step);
}

int evaluation_parse(const char *text, struct evaluation_state *state, struct muster_error *err)
{
    long long count, last, best, waits, kept;
    double last_loss, best_loss, gained;
    int used = 0;
    if (sscanf(text, EVALUATION_SCAN, &count, &last, &last_loss, &best, &best_loss, &gained, &waits, &kept,
               &used) != 8 ||
        text[used] || count < 0 || last < -1 || best < -1 || best > last || waits < 0 || waits > count ||
        kept < 0 || !isfinite(best_loss) || !isfinite(gained))
        return error_set(err, MUSTER_E_INVALID, "'%.80s' is no state of evaluations", text);
    *state = (struct evaluation_state){.count = count,
                                       .last_step = last,
                                       .last_loss = last_loss,
                                       .best_step = best,
                                       .best_loss = best_loss,
                                       .gained_loss = gained,
                                       .waits = waits,
                                       .kept_step = kept};
    return 0;
}
