/* pool2d.c - the reference of pooling: the largest of each window, and means of windows that cover the
 * picture. */
#include "kernels/ref/real.h"

#include <math.h>
#include <string.h>

static int at_least(int a, int b)
{
    return a > b ? a : b;
}

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

static void add_to(VALUE *sum, double value)
{
    STORE(*sum, LOAD(*sum) + value);
}

/* ---- the largest ---- */

/* The element of a plane that wins window (i, j): the first of the largest, or the last NaN. */
static int64_t winner(const struct pool2d *p, const VALUE *plane, int i, int j)
{
    int row = i * p->stride - p->padding, column = j * p->stride - p->padding;
    int64_t best = (int64_t)at_least(row, 0) * p->width + at_least(column, 0);
    for (int y = at_least(row, 0); y < at_most(row + p->kernel, p->height); y++)
        for (int x = at_least(column, 0); x < at_most(column + p->kernel, p->width); x++) {
            int64_t at = (int64_t)y * p->width + x;
            if (LOAD(plane[at]) > LOAD(plane[best]) || isnan(LOAD(plane[at])))
                best = at;
        }
    return best;
}

void REF(max_pool2d_forward)(void *out_, const void *in_, const struct pool2d *p, int N, void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    int rows = conv2d_size(p->height, p->kernel, p->stride, p->padding);
    int columns = conv2d_size(p->width, p->kernel, p->stride, p->padding);
    (void)stream;
    for (int64_t plane = 0; plane < (int64_t)N * p->channels; plane++, in += (int64_t)p->height * p->width)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++)
                *out++ = in[winner(p, in, i, j)];
}

void REF(max_pool2d_backward)(void *din_, const void *in_, const void *dout_, const struct pool2d *p, int N,
                              int beta, void *stream)
{
    VALUE *din = din_;
    const VALUE *in = in_, *dout = dout_;
    int rows = conv2d_size(p->height, p->kernel, p->stride, p->padding);
    int columns = conv2d_size(p->width, p->kernel, p->stride, p->padding);
    int64_t size = (int64_t)p->height * p->width, planes = (int64_t)N * p->channels;
    (void)stream;
    if (!beta)
        memset(din, 0, (size_t)(planes * size) * sizeof *din);
    for (int64_t plane = 0; plane < planes; plane++, in += size, din += size)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++)
                add_to(&din[winner(p, in, i, j)], LOAD(*dout++));
}

/* ---- means ---- */

/* Rows (or columns) of window i: from..end - 1. */
struct span {
    int from, end;
};

static struct span span_of(int i, int size, int windows)
{
    return (struct span){(int)((int64_t)i * size / windows),
                         (int)((((int64_t)i + 1) * size + windows - 1) / windows)};
}

void REF(avg_pool2d_forward)(void *out_, const void *in_, int64_t planes, int height, int width,
                             int out_height, int out_width, void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    (void)stream;
    for (int64_t plane = 0; plane < planes; plane++, in += (int64_t)height * width)
        for (int i = 0; i < out_height; i++)
            for (int j = 0; j < out_width; j++) {
                const struct span rows = span_of(i, height, out_height),
                                  columns = span_of(j, width, out_width);
                double sum = 0;
                for (int y = rows.from; y < rows.end; y++)
                    for (int x = columns.from; x < columns.end; x++)
                        sum += LOAD(in[(int64_t)y * width + x]);
                STORE(*out, sum / (rows.end - rows.from) / (columns.end - columns.from));
                out++;
            }
}

void REF(avg_pool2d_backward)(void *din_, const void *dout_, int64_t planes, int height, int width,
                              int out_height, int out_width, int beta, void *stream)
{
    VALUE *din = din_;
    const VALUE *dout = dout_;
    (void)stream;
    if (!beta)
        memset(din, 0, (size_t)(planes * height * width) * sizeof *din);
    for (int64_t plane = 0; plane < planes; plane++, din += (int64_t)height * width)
        for (int i = 0; i < out_height; i++)
            for (int j = 0; j < out_width; j++) {
                const struct span rows = span_of(i, height, out_height),
                                  columns = span_of(j, width, out_width);
                double share = LOAD(*dout++) / (rows.end - rows.from) / (columns.end - columns.from);
                for (int y = rows.from; y < rows.end; y++)
                    for (int x = columns.from; x < columns.end; x++)
                        add_to(&din[(int64_t)y * width + x], share);
            }
}
