/* goodput.c - see goodput.h. */
#include "launcher/policy/goodput.h"

#include <math.h>
#include <stdbool.h>

/* The last steps of round i that a later round makes again; all of them at most. */
static int64_t lost_of(const struct goodput_round *rounds, int count, int i)
{
    const int64_t steps = rounds[i].last_step - rounds[i].first_step;
    for (int j = i + 1; j < count; j++)
        if (rounds[j].first_step >= 0) {
            const int64_t lost = rounds[i].last_step - rounds[j].first_step + 1;
            return lost < 0 ? 0 : lost > steps ? steps : lost;
        }
    return 0;
}

double goodput_of(const struct goodput_round *rounds, int count, int64_t started_at, int64_t now)
{
    double good = 0;
    bool any = false;
    for (int i = 0; i < count; i++) {
        const int64_t steps = rounds[i].last_step - rounds[i].first_step;
        if (rounds[i].first_step < 0 || steps <= 0)
            continue;
        any = true;
        good += (double)(rounds[i].last_at - rounds[i].first_at) *
                (double)(steps - lost_of(rounds, count, i)) / (double)steps;
    }
    const double all = (double)(now - started_at);
    if (!any || all <= 0)
        return NAN;
    const double share = good / all;
    return share > 1 ? 1 : share > 0 ? share : 0; /* fmin and fmax would have each start load libm */
}

int64_t goodput_steps_again(const struct goodput_round *rounds, int count)
{
    int64_t again = 0;
    for (int i = 0; i < count; i++)
        if (rounds[i].first_step >= 0)
            for (int j = i + 1; j < count; j++)
                if (rounds[j].first_step >= 0) {
                    const int64_t lost = rounds[i].last_step - rounds[j].first_step + 1;
                    again += lost > 0 ? lost : 0;
                    break;
                }
    return again;
}
