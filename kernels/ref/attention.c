/* attention.c - the reference of causal multi-head attention (Vaswani et al. 2017, arXiv 1706.03762).
 *
 * For one (b, h) and position t, over t2 <= t: s = q.k scale, p = exp(s - lse), out = sum p v, where
 * lse = log sum exp(s) is formed with the maximum subtracted. Backward recomputes p from lse (Dao et al.
 * 2022, arXiv 2205.14135, section 3.1): with D = dout.out, dp = dout.v and ds = p (dp - D), dq = scale sum ds
 * k, dk = scale sum ds q, dv = sum p dout. */
#include "kernels/ref/real.h"

#include <math.h>

/* Where one head's vectors stand: q, k and v of position t begin at base + t*stride + 0, C and 2C. */
struct head {
    size_t qkv, out; /* offsets of position 0 */
    size_t lse;
};

static struct head head_at(int b, int h, int T, int C, int NH)
{
    size_t HS = (size_t)C / NH;
    return (struct head){.qkv = (size_t)b * T * 3 * C + h * HS,
                         .out = (size_t)b * T * C + h * HS,
                         .lse = ((size_t)b * NH + h) * T};
}

static double dot(const real *a, const real *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static void forward_row(real *out, real *lse, const real *q, const real *keys, const real *values, int t,
                        int HS, size_t stride)
{
    double scale = 1.0 / sqrt((double)HS), maximum = -INFINITY, sum = 0;
    for (int t2 = 0; t2 <= t; t2++)
        maximum = fmax(maximum, dot(q, keys + (size_t)t2 * stride, HS) * scale);
    for (int t2 = 0; t2 <= t; t2++)
        sum += exp(dot(q, keys + (size_t)t2 * stride, HS) * scale - maximum);
    *lse = (real)(maximum + log(sum));
    for (int i = 0; i < HS; i++) {
        double o = 0;
        for (int t2 = 0; t2 <= t; t2++)
            o += exp(dot(q, keys + (size_t)t2 * stride, HS) * scale - maximum) / sum *
                 (double)values[(size_t)t2 * stride + i];
        out[i] = (real)o;
    }
}

void REF(attention_forward)(void *out_, void *lse_, const void *qkv_, int B, int T, int C, int NH, void *work,
                            void *stream)
{
    real *out = out_, *lse = lse_;
    const real *qkv = qkv_;
    size_t stride = (size_t)3 * C;
    (void)work;
    (void)stream;
    for (int b = 0; b < B; b++)
        for (int h = 0; h < NH; h++) {
            struct head at = head_at(b, h, T, C, NH);
            for (int t = 0; t < T; t++)
                forward_row(out + at.out + (size_t)t * C, lse + at.lse + t, qkv + at.qkv + (size_t)t * stride,
                            qkv + at.qkv + C, qkv + at.qkv + 2 * (size_t)C, t, C / NH, stride);
        }
}

/* The contributions of query t to its own dq and to dk, dv of every t2 <= t. */
static void backward_row(real *dqkv, const real *dout, const real *qkv, const real *out, double lse, int t,
                         int C, int HS)
{
    size_t stride = (size_t)3 * C;
    double scale = 1.0 / sqrt((double)HS), D = dot(dout, out, HS);
    const real *q = qkv + (size_t)t * stride;
    real *dq = dqkv + (size_t)t * stride;
    for (int t2 = 0; t2 <= t; t2++) {
        const real *k = qkv + (size_t)t2 * stride + C, *v = k + C;
        real *dk = dqkv + (size_t)t2 * stride + C, *dv = dk + C;
        double p = exp(dot(q, k, HS) * scale - lse);
        double ds = p * (dot(dout, v, HS) - D) * scale;
        for (int i = 0; i < HS; i++) {
            dq[i] = (real)((double)dq[i] + ds * (double)k[i]);
            dk[i] = (real)((double)dk[i] + ds * (double)q[i]);
            dv[i] = (real)((double)dv[i] + p * (double)dout[i]);
        }
    }
}

void REF(attention_backward)(void *dqkv_, const void *dout_, const void *qkv_, const void *out_,
                             const void *lse_, int B, int T, int C, int NH, void *work, void *stream)
{
    real *dqkv = dqkv_;
    const real *dout = dout_, *qkv = qkv_, *out = out_, *lse = lse_;
    (void)work;
    (void)stream;
    for (size_t i = 0; i < (size_t)B * T * 3 * C; i++)
        dqkv[i] = 0;
    for (int b = 0; b < B; b++)
        for (int h = 0; h < NH; h++) {
            struct head at = head_at(b, h, T, C, NH);
            for (int t = 0; t < T; t++)
                backward_row(dqkv + at.qkv, dout + at.out + (size_t)t * C, qkv + at.qkv,
                             out + at.out + (size_t)t * C, (double)lse[at.lse + t], t, C, C / NH);
        }
}

size_t REF(attention_work)(int B, int T, int C, int NH)
{
    (void)B;
    (void)T;
    (void)C;
    (void)NH;
    return 0;
}
