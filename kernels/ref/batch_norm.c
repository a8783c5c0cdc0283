/* batch_norm.c - the reference of batch normalisation (Ioffe, Szegedy 2015, arXiv 1502.03167), as PyTorch's
 * nn.BatchNorm2d, and of its running statistics (kernels.h).
 *
 * Backward, with M the number of elements of a channel, r = 1/sqrt(var + epsilon), xhat = (in - mean) r:
 * dbias = sum dout; dweight = sum dout xhat; din = weight r (dout - dbias/M - xhat dweight/M). */
#include "kernels/ref/real.h"

#include <math.h>

/* The planes of channel c in row n. */
static const VALUE *plane_of(const void *base, const struct batch_norm *b, int n, int c)
{
    return (const VALUE *)base + ((int64_t)n * b->channels + c) * b->plane;
}

static void normalise(VALUE *out, const VALUE *in, const struct batch_norm *b, int N, int c, double mean,
                      double r, double weight, double bias)
{
    for (int n = 0; n < N; n++) {
        const VALUE *from = plane_of(in, b, n, c);
        VALUE *to = out + (from - in);
        for (int64_t i = 0; i < b->plane; i++)
            STORE(to[i], (LOAD(from[i]) - mean) * r * weight + bias);
    }
}

/* Sums of a channel over the first `rows` rows. */
static double sum_of(const VALUE *in, const struct batch_norm *b, int rows, int c)
{
    double sum = 0;
    for (int n = 0; n < rows; n++)
        for (int64_t i = 0; i < b->plane; i++)
            sum += LOAD(plane_of(in, b, n, c)[i]);
    return sum;
}

static double squares_of(const VALUE *in, const struct batch_norm *b, int rows, int c, double mean)
{
    double sum = 0;
    for (int n = 0; n < rows; n++)
        for (int64_t i = 0; i < b->plane; i++) {
            double off = LOAD(plane_of(in, b, n, c)[i]) - mean;
            sum += off * off;
        }
    return sum;
}

void REF(batch_norm_forward)(void *out, void *mean_, void *var_, const void *in, const void *weight,
                             const void *bias, const struct batch_norm *b, int N,
                             const struct step_scalars *scalars, void *stream)
{
    STATISTIC *mean = mean_, *var = var_;
    const int rows = batch_norm_rows(b, N, scalars->samples);
    const double count = (double)rows * (double)b->plane;
    (void)stream;
    for (int c = 0; c < b->channels; c++) {
        const double m = rows ? sum_of(in, b, rows, c) / count : 0;
        const double v = rows ? squares_of(in, b, rows, c, m) / count : 1;
        STORE(mean[c], m);
        STORE(var[c], v);
        normalise(out, in, b, N, c, m, 1.0 / sqrt(v + b->epsilon), LOAD(((const WEIGHT *)weight)[c]),
                  LOAD(((const WEIGHT *)bias)[c]));
    }
}

void REF(batch_norm_fixed)(void *out, const void *in, const void *weight, const void *bias, const void *mean,
                           const void *var, const struct batch_norm *b, int N, void *stream)
{
    (void)stream;
    for (int c = 0; c < b->channels; c++)
        normalise(out, in, b, N, c, LOAD(((const WEIGHT *)mean)[c]),
                  1.0 / sqrt(LOAD(((const WEIGHT *)var)[c]) + b->epsilon), LOAD(((const WEIGHT *)weight)[c]),
                  LOAD(((const WEIGHT *)bias)[c]));
}

/* A channel's gradients once its sums are known. */
struct channel {
    double mean, r, weight, dbias, dweight, count;
};

static void input_gradient(VALUE *din, const VALUE *dout, const VALUE *in, const struct batch_norm *b,
                           int rows, int N, int c, const struct channel *s, int beta)
{
    for (int n = 0; n < N; n++)
        for (int64_t i = 0; i < b->plane; i++) {
            const int64_t at = plane_of(in, b, n, c) - in + i;
            const double xhat = (LOAD(in[at]) - s->mean) * s->r;
            double d =
                s->weight * s->r * (LOAD(dout[at]) - s->dbias / s->count - xhat * s->dweight / s->count);
            STORE(din[at], (n < rows ? d : 0) + (beta ? LOAD(din[at]) : 0.0));
        }
}

void REF(batch_norm_backward)(void *din, void *dweight_, void *dbias_, const void *dout_, const void *in_,
                              const void *mean, const void *var, const void *weight,
                              const struct batch_norm *b, int N, const int beta[3],
                              const struct step_scalars *scalars, void *stream)
{
    GRADIENT *dweight = dweight_, *dbias = dbias_;
    const VALUE *dout = dout_, *in = in_;
    const int rows = batch_norm_rows(b, N, scalars->samples);
    (void)stream;
    for (int c = 0; c < b->channels; c++) {
        struct channel s = {.mean = LOAD(((const STATISTIC *)mean)[c]),
                            .r = 1.0 / sqrt(LOAD(((const STATISTIC *)var)[c]) + b->epsilon),
                            .weight = LOAD(((const WEIGHT *)weight)[c]),
                            .count = (double)rows * (double)b->plane};
        for (int n = 0; n < rows; n++)
            for (int64_t i = 0; i < b->plane; i++) {
                const int64_t at = plane_of(in, b, n, c) - in + i;
                s.dbias += LOAD(dout[at]);
                s.dweight += LOAD(dout[at]) * (LOAD(in[at]) - s.mean) * s.r;
            }
        if (din)
            input_gradient(din, dout, in, b, rows, N, c, &s, beta[0]);
        if (dweight)
            STORE(dweight[c], s.dweight + (beta[1] ? LOAD(dweight[c]) : 0.0));
        if (dbias)
            STORE(dbias[c], s.dbias + (beta[2] ? LOAD(dbias[c]) : 0.0));
    }
}

void REF(batch_norm_change)(void *dmean_, void *dvar_, void *dcount_, const void *mean, const void *var,
                            const void *running_mean, const void *running_var, const struct batch_norm *b,
                            int N, const int beta[3], const struct step_scalars *scalars, void *stream)
{
    GRADIENT *dmean = dmean_, *dvar = dvar_, *dcount = dcount_;
    const int rows = batch_norm_rows(b, N, scalars->samples);
    const double count = (double)rows * (double)b->plane;
    const double later = (double)batch_norm_later(b, N, scalars->samples);
    const double part = rows ? b->momentum * pow(1.0 - b->momentum, later) / b->ranks : 0;
    (void)stream;
    for (int c = 0; c < b->channels; c++) {
        const double unbiased =
            LOAD(((const STATISTIC *)var)[c]) * (count > 1 ? count / (count - 1) : 1); /* a count of one: 0 */
        const double off = LOAD(((const STATISTIC *)mean)[c]) - LOAD(((const WEIGHT *)running_mean)[c]);
        if (dmean)
            STORE(dmean[c], part * off + (beta[0] ? LOAD(dmean[c]) : 0.0));
        if (dvar)
            STORE(dvar[c], part * (unbiased - LOAD(((const WEIGHT *)running_var)[c])) +
                               (beta[1] ? LOAD(dvar[c]) : 0.0));
    }
    if (dcount)
        STORE(*dcount, (rows && b->counts ? 1.0 : 0.0) + (beta[2] ? LOAD(*dcount) : 0.0));
}

void REF(batch_norm_step)(void *values_, const void *change_, int64_t n, void *moved, enum dtype dtype_moved,
                          const struct step_scalars *scalars, void *stream)
{
    STATISTIC *values = values_;
    const STATISTIC *change = change_;
    if (scalars->skip)
        return;
    for (int64_t i = 0; i < n; i++)
        STORE(values[i], LOAD(values[i]) + LOAD(change[i]));
    if (moved)
        REF(cast)(moved, dtype_moved, values, REF_STATISTIC, n, stream);
}
