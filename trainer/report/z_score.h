/* z_score.h - how far a figure of a step is from its own recent mean, in standard deviations. Pure. */
#ifndef MUSTER_TRAINER_REPORT_Z_SCORE_H
#define MUSTER_TRAINER_REPORT_Z_SCORE_H

#include <stdint.h>

/* A zeroed struct has seen nothing. */
struct z_score {
    double mean, variance; /* exponentially weighted: of about Z_SCORE_MEMORY steps */
    int64_t count;
};

enum { Z_SCORE_MEMORY = 100, Z_SCORE_LEAST = 30 };

/* The score of value against those before it, which is then one of them; 0 until Z_SCORE_LEAST of them are
 * there. A value that is not finite has the score infinity and is left out of the mean. One beyond 4
 * deviations counts as 4, so that an outlier does not hide the next. */
double z_score_add(struct z_score *score, double value);

#endif
