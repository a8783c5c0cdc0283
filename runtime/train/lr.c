/* lr.c - see lr.h. */
#include "runtime/train/lr.h"

#include <math.h>

double lr_at(const struct lr_schedule *schedule, int64_t step)
{
    const struct lr_schedule *s = schedule;
    if (step < 0)
        step = 0;
    if (step < s->warmup_steps)
        return s->peak * (double)(step + 1) / (double)s->warmup_steps;
    int64_t last = s->total_steps - 1 - s->warmup_steps; /* steps from peak to minimum */
    int64_t done = step - s->warmup_steps;
    if (last <= 0 || done >= last)
        return done > 0 || step >= s->total_steps ? s->minimum : s->peak;
    return s->minimum + 0.5 * (s->peak - s->minimum) * (1.0 + cos(M_PI * (double)done / (double)last));
}
