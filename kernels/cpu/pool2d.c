/* pool2d.c - pooling, a plane at a time (rules: kernels/ref/pool2d.c). Windows of 2 x 2 without an edge,
 * which most models have, are a loop of their own that the compiler vectorises. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/value.h"

#include <math.h>
#include <string.h>

struct pool {
    const struct pool2d *p;
    int rows, columns;
    int64_t in, out, planes;
};

static struct pool pool_of(const struct pool2d *p, int N)
{
    struct pool v = {.p = p,
                     .rows = conv2d_size(p->height, p->kernel, p->stride, p->padding),
                     .columns = conv2d_size(p->width, p->kernel, p->stride, p->padding),
                     .in = (int64_t)p->height * p->width,
                     .planes = (int64_t)N * p->channels};
    v.out = (int64_t)v.rows * v.columns;
    return v;
}

static int is_pairs(const struct pool2d *p)
{
    return p->kernel == 2 && p->stride == 2 && !p->padding;
}

/* Whether b replaces the maximum so far: b is larger, or NaN. */
static int beats(float b, float a)
{
    return (b > a) | (b != b);
}

static float larger(float a, float b)
{
    return beats(b, a) ? b : a;
}

/* Two elements side by side. Of bf16 they are one word: loops over single elements of 16 bits that are two
 * apart do not vectorise. */
struct pair {
    float left, right;
};

static inline __attribute__((always_inline)) struct pair load_pair(const VALUE *from)
{
#ifdef CPU_BF16
    uint32_t word; /* the variants of bf16 are of x86: the left one is its lower half */
    memcpy(&word, from, sizeof word);
    return (struct pair){narrow_float(word << 16), narrow_float(word & 0xffff0000u)};
#else
    return (struct pair){from[0], from[1]};
#endif
}

static inline __attribute__((always_inline)) void store_pair(VALUE *to, float left, float right)
{
#ifdef CPU_BF16
    const uint32_t word = narrow_to_bf16(left) | (uint32_t)narrow_to_bf16(right) << 16;
    memcpy(to, &word, sizeof word);
#else
    to[0] = left, to[1] = right;
#endif
}

static void pairs_forward(const struct pool *v, VALUE *restrict out, const VALUE *restrict in)
{
    for (int i = 0; i < v->rows; i++, out += v->columns) {
        const VALUE *above = in + (int64_t)2 * i * v->p->width, *below = above + v->p->width;
#pragma omp simd
        for (int j = 0; j < v->columns; j++) {
            const struct pair top = load_pair(above + 2 * j), low = load_pair(below + 2 * j);
            STORE(out[j], larger(larger(larger(top.left, top.right), low.left), low.right));
        }
    }
}

/* Each of the four gets the gradient or nothing; beta: a constant at every call. */
static inline __attribute__((always_inline)) void pairs_backward(const struct pool *v, VALUE *restrict din,
                                                                 const VALUE *restrict in,
                                                                 const VALUE *restrict dout, const int beta)
{
    const int width = v->p->width;
    for (int i = 0; i < v->rows; i++, dout += v->columns) {
        const VALUE *above = in + (int64_t)2 * i * width, *below = above + width;
        VALUE *dabove = din + (int64_t)2 * i * width, *dbelow = dabove + width;
#pragma omp simd
        for (int j = 0; j < v->columns; j++) {
            const struct pair top = load_pair(above + 2 * j), low = load_pair(below + 2 * j);
            const struct pair dtop = load_pair(dabove + 2 * j), dlow = load_pair(dbelow + 2 * j);
            const float whole = LOAD(dout[j]), two = larger(top.left, top.right),
                        three = larger(two, low.left);
            const float to_d = beats(low.right, three) ? whole : 0,
                        but_d = beats(low.right, three) ? 0 : whole;
            const float to_c = beats(low.left, two) ? but_d : 0, but_c = beats(low.left, two) ? 0 : but_d;
            const float to_b = beats(top.right, top.left) ? but_c : 0;
            const float to_a = beats(top.right, top.left) ? 0 : but_c;
            store_pair(dabove + 2 * j, beta ? dtop.left + to_a : to_a, beta ? dtop.right + to_b : to_b);
            store_pair(dbelow + 2 * j, beta ? dlow.left + to_c : to_c, beta ? dlow.right + to_d : to_d);
        }
    }
}

static void add_to(VALUE *sum, float gradient)
{
    STORE(*sum, LOAD(*sum) + gradient);
}

static int64_t winner(const struct pool2d *p, const VALUE *plane, int i, int j)
{
    int row = i * p->stride - p->padding, column = j * p->stride - p->padding;
    int bottom = row + p->kernel < p->height ? row + p->kernel : p->height;
    int right = column + p->kernel < p->width ? column + p->kernel : p->width;
    row = row > 0 ? row : 0, column = column > 0 ? column : 0;
    int64_t best = (int64_t)row * p->width + column;
    for (int y = row; y < bottom; y++)
        for (int x = column; x < right; x++) {
            int64_t at = (int64_t)y * p->width + x;
            if (LOAD(plane[at]) > LOAD(plane[best]) || isnan(LOAD(plane[at])))
                best = at;
        }
    return best;
}

void CPU(max_pool2d_forward)(void *out_, const void *in_, const struct pool2d *p, int N, void *stream)
{
    const struct pool v = pool_of(p, N);
    (void)stream;
    CPU_PARALLEL_FOR(v.planes * v.in >= CPU_PARALLEL_MIN)
    for (int64_t plane = 0; plane < v.planes; plane++) {
        VALUE *out = (VALUE *)out_ + plane * v.out;
        const VALUE *in = (const VALUE *)in_ + plane * v.in;
        if (is_pairs(p))
            pairs_forward(&v, out, in);
        for (int at = 0; !is_pairs(p) && at < v.out; at++)
            out[at] = in[winner(p, in, at / v.columns, at % v.columns)];
    }
}

void CPU(max_pool2d_backward)(void *din_, const void *in_, const void *dout_, const struct pool2d *p, int N,
                              int beta, void *stream)
{
    const struct pool v = pool_of(p, N);
    (void)stream;
    CPU_PARALLEL_FOR(v.planes * v.in >= CPU_PARALLEL_MIN)
    for (int64_t plane = 0; plane < v.planes; plane++) {
        VALUE *din = (VALUE *)din_ + plane * v.in;
        const VALUE *in = (const VALUE *)in_ + plane * v.in, *dout = (const VALUE *)dout_ + plane * v.out;
        if (!beta && !(is_pairs(p) && p->height == 2 * v.rows && p->width == 2 * v.columns))
            memset(din, 0, (size_t)v.in * sizeof *din);
        if (is_pairs(p) && beta)
            pairs_backward(&v, din, in, dout, 1);
        else if (is_pairs(p))
            pairs_backward(&v, din, in, dout, 0);
        for (int at = 0; !is_pairs(p) && at < v.out; at++)
            add_to(&din[winner(p, in, at / v.columns, at % v.columns)], LOAD(dout[at]));
    }
}

/* ---- means ---- */

/* Rows or columns of window i: from..end - 1. */
struct span {
    int from, end;
};

static struct span span_of(int i, int size, int windows)
{
    return (struct span){(int)((int64_t)i * size / windows),
                         (int)((((int64_t)i + 1) * size + windows - 1) / windows)};
}

static float mean_of(const VALUE *plane, int width, struct span rows, struct span columns)
{
    float sum = 0;
    if (columns.end - columns.from == width) { /* one piece */
        const VALUE *from = plane + (int64_t)rows.from * width;
        const int64_t count = (int64_t)(rows.end - rows.from) * width;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < count; i++)
            sum += LOAD(from[i]);
        return sum / (float)count;
    }
    for (int y = rows.from; y < rows.end; y++) {
        const VALUE *row = plane + (int64_t)y * width;
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int x = columns.from; x < columns.end; x++)
            part += LOAD(row[x]);
        sum += part;
    }
    return sum / (float)((int64_t)(rows.end - rows.from) * (columns.end - columns.from));
}

void CPU(avg_pool2d_forward)(void *out_, const void *in_, int64_t planes, int height, int width,
                             int out_height, int out_width, void *stream)
{
    const int64_t in = (int64_t)height * width, out = (int64_t)out_height * out_width;
    (void)stream;
    CPU_PARALLEL_FOR(planes * in >= CPU_PARALLEL_MIN)
    for (int64_t plane = 0; plane < planes; plane++)
        for (int at = 0; at < out; at++)
            STORE(((VALUE *)out_)[plane * out + at],
                  mean_of((const VALUE *)in_ + plane * in, width, span_of(at / out_width, height, out_height),
                          span_of(at % out_width, width, out_width)));
}

static void share_out(VALUE *plane, int width, struct span rows, struct span columns, float gradient)
{
    const float share = gradient / (float)((int64_t)(rows.end - rows.from) * (columns.end - columns.from));
    for (int y = rows.from; y < rows.end; y++)
        for (int x = columns.from; x < columns.end; x++)
            add_to(&plane[(int64_t)y * width + x], share);
}

void CPU(avg_pool2d_backward)(void *din_, const void *dout, int64_t planes, int height, int width,
                              int out_height, int out_width, int beta, void *stream)
{
    const int64_t in = (int64_t)height * width, out = (int64_t)out_height * out_width;
    (void)stream;
    CPU_PARALLEL_FOR(planes * in >= CPU_PARALLEL_MIN)
    for (int64_t plane = 0; plane < planes; plane++) {
        VALUE *din = (VALUE *)din_ + plane * in;
        if (!beta)
            memset(din, 0, (size_t)in * sizeof *din);
        for (int at = 0; at < out; at++)
            share_out(din, width, span_of(at / out_width, height, out_height),
                      span_of(at % out_width, width, out_width),
                      LOAD(((const VALUE *)dout)[plane * out + at]));
    }
}
