/* z_score.c - see z_score.h. */
#include "trainer/report/z_score.h"

#include <math.h>

/* Of a figure that does not change: a difference in its last digits is none. */
static double least_deviation(double mean)
{
    return 1e-6 * fabs(mean) + 1e-30;
}

double z_score_add(struct z_score *s, double value)
{
    static const double outlier = 4;
    if (!isfinite(value))
        return INFINITY;
    const double deviation = fmax(sqrt(s->variance), least_deviation(s->mean));
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
