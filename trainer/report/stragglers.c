/* stragglers.c - see stragglers.h. */
#include "trainer/report/stragglers.h"

#include <math.h>
#include <stddef.h>

enum { PARTS_NEEDED = 8 };

/* The wait of a rank in a part; part -1: in all parts. */
static double waited(const double *waited_ms, int rank, int part)
{
    const double *parts = waited_ms + (ptrdiff_t)rank * STRAGGLER_PARTS;
    double sum = 0;
    for (int i = 0; i < STRAGGLER_PARTS; i++)
        sum += parts[i];
    return part < 0 ? sum : parts[part];
}

/* The median of the other ranks' waits; the lower median of an even number, so that half of the ranks must
 * wait. It is found by counting: worlds are small compared with a window of steps. */
static double others_median(const double *waited_ms, int ranks, int rank, int part)
{
    for (int i = 0; i < ranks; i++) {
        const double value = waited(waited_ms, i, part);
        int below = 0, equal = 0;
        if (i == rank)
            continue;
        for (int j = 0; j < ranks; j++) {
            const double other = waited(waited_ms, j, part);
            below += j != rank && other < value;
            equal += j != rank && other == value;
        }
        const int wanted = (ranks - 2) / 2; /* index among the ranks - 1 others, from 0 */
        if (below <= wanted && wanted < below + equal)
            return value;
    }
    return 0;
}

static int least_waiting(const double *waited_ms, int ranks)
{
    int least = 0;
    for (int i = 1; i < ranks; i++)
        if (waited(waited_ms, i, -1) < waited(waited_ms, least, -1))
            least = i;
    return least;
}

void straggler_find(const struct straggler_options *o, const double *waited_ms, double step_ms,
                    struct straggler *out)
{
    *out = (struct straggler){.rank = -1};
    if (o->ranks < 2 || o->steps < 1 || !(step_ms > 0))
        return;
    const int rank = least_waiting(waited_ms, o->ranks);
    const double needed = o->least_ms > o->least_share * step_ms ? o->least_ms : o->least_share * step_ms;
    const double steps = (double)o->steps, part_steps = steps / STRAGGLER_PARTS;
    out->late_ms = (others_median(waited_ms, o->ranks, rank, -1) - waited(waited_ms, rank, -1)) / steps;
    out->share = out->late_ms / step_ms;
    for (int part = 0; part < STRAGGLER_PARTS; part++)
        out->parts += others_median(waited_ms, o->ranks, rank, part) - waited(waited_ms, rank, part) >=
                      needed * part_steps;
    if (out->late_ms >= needed && out->parts >= PARTS_NEEDED)
        out->rank = rank;
}

enum straggler_change straggler_follow(struct straggler_streak *streak, int rank, double window_ms)
{
    const bool ended = streak->named && rank != streak->rank;
    if (rank != streak->rank)
        *streak = (struct straggler_streak){.rank = rank};
    streak->lasted_ms += window_ms;
    if (ended || rank < 0 || streak->named || streak->lasted_ms < STRAGGLER_LASTS_MS)
        return ended ? STRAGGLER_ENDED : STRAGGLER_AS_BEFORE;
    streak->named = true;
    return STRAGGLER_NAMED;
}

void straggler_window_begin(struct straggler_window *window, int64_t steps)
{
    *window = (struct straggler_window){.steps = steps};
}

bool straggler_window_add(struct straggler_window *window, double waited_ms, double step_ms)
{
    window->waited_ms[window->done * STRAGGLER_PARTS / window->steps] += waited_ms;
    window->step_ms += step_ms / (double)window->steps;
    return ++window->done == window->steps;
}

/* ---- z-scores ---- */

double z_score_add(struct z_score *s, double value)
{
    static const double outlier = 4;
    if (!isfinite(value))
        return INFINITY;
    /* a difference in the last digits of a constant figure does not count */
    const double least = 1e-6 * fabs(s->mean) + 1e-30, deviation = fmax(sqrt(s->variance), least);
    double difference = value - s->mean;
    const double score = s->count < Z_SCORE_LEAST ? 0 : difference / deviation;
    if (fabs(score) > outlier)
        difference = copysign(outlier * deviation, difference);
    s->count++;
    /* A plain mean at first. West's weighted update of the variance. */
    const double weight = 1.0 / (double)(s->count < Z_SCORE_MEMORY ? s->count : Z_SCORE_MEMORY);
    s->mean += weight * difference;
    s->variance = (1 - weight) * (s->variance + weight * difference * difference);
    return score;
}
