/* mean.c - the reference of the mean over the positions of each sequence, as far as its length. */
#include "kernels/ref/real.h"

void REF(mean_forward)(void *out_, const void *in_, const int32_t *lengths, int B, int T, int C, void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    (void)stream;
    for (int64_t b = 0; b < B; b++)
        for (int i = 0; i < C; i++) {
            double sum = 0;
            for (int64_t t = 0; t < lengths[b]; t++)
                sum += LOAD(in[(b * T + t) * C + i]);
            STORE(out[b * C + i], lengths[b] ? sum / lengths[b] : 0.0);
        }
}

void REF(mean_backward)(void *din_, const void *dout_, const int32_t *lengths, int B, int T, int C, int beta,
                        void *stream)
{
    VALUE *din = din_;
    const VALUE *dout = dout_;
    (void)stream;
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            for (int i = 0; i < C; i++) {
                VALUE *to = &din[(b * T + t) * C + i];
                const double share = t < lengths[b] ? LOAD(dout[b * C + i]) / lengths[b] : 0;
                STORE(*to, (beta ? LOAD(*to) : 0) + share);
            }
}
