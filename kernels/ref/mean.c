/* mean.c - the reference of the mean over the positions of each sequence, as far as its length. */
#include "kernels/ref/real.h"

void REF(mean_forward)(void *out_, const void *in_, const int32_t *lengths, int B, int T, int C, void *stream)
{
    real *out = out_;
    const real *in = in_;
    (void)stream;
    for (int64_t b = 0; b < B; b++)
        for (int i = 0; i < C; i++) {
            double sum = 0;
            for (int64_t t = 0; t < lengths[b]; t++)
                sum += (double)in[(b * T + t) * C + i];
            out[b * C + i] = lengths[b] ? (real)(sum / lengths[b]) : 0;
        }
}

void REF(mean_backward)(void *din_, const void *dout_, const int32_t *lengths, int B, int T, int C, int beta,
                        void *stream)
{
    real *din = din_;
    const real *dout = dout_;
    (void)stream;
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            for (int i = 0; i < C; i++) {
                real *to = &din[(b * T + t) * C + i];
                const double share = t < lengths[b] ? (double)dout[b * C + i] / lengths[b] : 0;
                *to = (real)((beta ? (double)*to : 0) + share);
            }
}
