/* conv2d.c - convolution as matrix products: the squares under the filter become columns of a matrix
 * (im2col), a tile of output rows at a time, so that the tile is in the cache when OpenBLAS reads it.
 *
 * Pictures are divided into parts, whose number depends on their count alone: each part is one thread's work,
 * with a tile of its own, and for the weights' gradient a sum of its own, added up in order at the end. */
#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <string.h>

enum { CONV_PARTS = 16, TILE_BYTES = 256 << 10, LINE_FLOATS = 16 };

struct conv {
    const struct conv2d *c;
    int rows, columns, depth; /* of the output; elements of a filter */
    int tile_rows;            /* output rows of a tile */
    int64_t in, out;          /* elements of a picture, of its output */
    int64_t tile, weights;    /* floats of work memory for a part: a tile, a gradient */
    int parts;
};

static int64_t lines(int64_t floats)
{
    return (floats + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

static struct conv conv_of(const struct conv2d *c, int N)
{
    struct conv v = {.c = c,
                     .rows = conv2d_size(c->height, c->kernel, c->stride, c->padding),
                     .columns = conv2d_size(c->width, c->kernel, c->stride, c->padding),
                     .depth = c->channels * c->kernel * c->kernel,
                     .parts = N < CONV_PARTS ? N : CONV_PARTS};
    int64_t row = (int64_t)v.depth * v.columns * (int64_t)sizeof(float);
    v.tile_rows = row >= TILE_BYTES ? 1 : (int)(TILE_BYTES / row);
    v.tile_rows = v.tile_rows < v.rows ? v.tile_rows : v.rows;
    v.in = (int64_t)c->channels * c->height * c->width;
    v.out = (int64_t)c->filters * v.rows * v.columns;
    v.tile = lines((int64_t)v.depth * v.tile_rows * v.columns);
    v.weights = lines((int64_t)c->filters * v.depth) + lines(c->filters);
    return v;
}

size_t CPU(conv2d_work)(const struct conv2d *c, int N)
{
    const struct conv v = conv_of(c, N);
    return (size_t)((v.tile + v.weights) * v.parts) * sizeof(float);
}

/* Output columns from..end - 1 whose element x of the filter is inside of the picture. */
struct inside {
    int from, end;
};

static struct inside inside_of(const struct conv *v, int x)
{
    const struct conv2d *c = v->c;
    int left = c->padding - x, right = c->width + c->padding - x;
    struct inside s = {left <= 0 ? 0 : (left + c->stride - 1) / c->stride,
                       right <= 0 ? 0 : (right + c->stride - 1) / c->stride};
    s.end = s.end < v->columns ? s.end : v->columns;
    s.from = s.from < s.end ? s.from : s.end;
    return s;
}

/* One row of the output in one row of the matrix: element x of the filter over a row of the picture. */
static void row_to_columns(const struct conv *v, float *restrict to, const float *restrict row, int x)
{
    const struct inside s = inside_of(v, x);
    const int stride = v->c->stride, at = x - v->c->padding;
    for (int j = 0; j < s.from; j++)
        to[j] = 0;
    if (stride == 1)
        memcpy(to + s.from, row + s.from + at, (size_t)(s.end - s.from) * sizeof *to);
    else
        for (int j = s.from; j < s.end; j++)
            to[j] = row[j * stride + at];
    for (int j = s.end; j < v->columns; j++)
        to[j] = 0;
}

static void row_from_columns(const struct conv *v, float *restrict row, const float *restrict from, int x)
{
    const struct inside s = inside_of(v, x);
    const int stride = v->c->stride, at = x - v->c->padding;
    if (stride == 1)
        for (int j = s.from; j < s.end; j++)
            row[j + at] += from[j];
    else
        for (int j = s.from; j < s.end; j++)
            row[j * stride + at] += from[j];
}

/* The matrix (depth, rows of the tile * columns) of output rows first..first + count - 1. */
static void to_columns(const struct conv *v, float *to, const float *picture, int first, int count)
{
    const struct conv2d *c = v->c;
    for (int channel = 0; channel < c->channels; channel++)
        for (int y = 0; y < c->kernel; y++)
            for (int x = 0; x < c->kernel; x++)
                for (int i = first; i < first + count; i++, to += v->columns) {
                    int row = i * c->stride + y - c->padding;
                    if (row < 0 || row >= c->height)
                        memset(to, 0, (size_t)v->columns * sizeof *to);
                    else
                        row_to_columns(v, to, picture + ((int64_t)channel * c->height + row) * c->width, x);
                }
}

static void add_columns(const struct conv *v, float *picture, const float *from, int first, int count)
{
    const struct conv2d *c = v->c;
    for (int channel = 0; channel < c->channels; channel++)
        for (int y = 0; y < c->kernel; y++)
            for (int x = 0; x < c->kernel; x++)
                for (int i = first; i < first + count; i++, from += v->columns) {
                    int row = i * c->stride + y - c->padding;
                    if (row >= 0 && row < c->height)
                        row_from_columns(v, picture + ((int64_t)channel * c->height + row) * c->width, from,
                                         x);
                }
}

/* A filter of one element at every element: the picture is the matrix. */
static int is_plain(const struct conv *v)
{
    return v->c->kernel == 1 && v->c->stride == 1 && !v->c->padding;
}

static int tile_count(const struct conv *v, int first)
{
    int left = v->rows - first;
    return left < v->tile_rows ? left : v->tile_rows;
}

/* ---- forward ---- */

static void forward_picture(const struct conv *v, float *out, const float *in, const float *weight,
                            const float *bias, float *tile)
{
    const int plane = v->rows * v->columns;
    for (int filter = 0; bias && filter < v->c->filters; filter++)
        for (int p = 0; p < plane; p++)
            out[(int64_t)filter * plane + p] = bias[filter];
    for (int first = 0; first < v->rows; first += v->tile_rows) {
        int count = tile_count(v, first) * v->columns, at = first * v->columns;
        const float *columns = is_plain(v) ? in + at : tile;
        if (!is_plain(v))
            to_columns(v, tile, in, first, tile_count(v, first));
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, v->c->filters, count, v->depth, 1, weight,
                    v->depth, columns, is_plain(v) ? plane : count, bias ? 1 : 0, out + at, plane);
    }
}

void CPU(conv2d_forward)(void *out_, const void *in_, const void *weight, const void *bias,
                         const struct conv2d *c, int N, void *work, void *stream)
{
    float *out = out_;
    const float *in = in_;
    const struct conv v = conv_of(c, N);
    (void)stream;
    CPU_PARALLEL_FOR(v.parts > 1)
    for (int part = 0; part < v.parts; part++)
        for (int n = part; n < N; n += v.parts)
            forward_picture(&v, out + n * v.out, in + n * v.in, weight, bias, (float *)work + part * v.tile);
}

/* ---- backward ---- */

static void backward_picture(const struct conv *v, float *din, const float *dout, const float *weight,
                             int beta, float *tile)
{
    const int plane = v->rows * v->columns;
    if (!beta && !is_plain(v))
        memset(din, 0, (size_t)v->in * sizeof *din);
    for (int first = 0; first < v->rows; first += v->tile_rows) {
        int count = tile_count(v, first) * v->columns, at = first * v->columns;
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, v->depth, count, v->c->filters, 1, weight,
                    v->depth, dout + at, plane, is_plain(v) && beta ? 1 : 0, is_plain(v) ? din + at : tile,
                    is_plain(v) ? plane : count);
        if (!is_plain(v))
            add_columns(v, din, tile, first, tile_count(v, first));
    }
}

void CPU(conv2d_backward_input)(void *din_, const void *dout_, const void *weight, const struct conv2d *c,
                                int N, int beta, void *work, void *stream)
{
    float *din = din_;
    const float *dout = dout_;
    const struct conv v = conv_of(c, N);
    (void)stream;
    CPU_PARALLEL_FOR(v.parts > 1)
    for (int part = 0; part < v.parts; part++)
        for (int n = part; n < N; n += v.parts)
            backward_picture(&v, din + n * v.in, dout + n * v.out, weight, beta,
                             (float *)work + part * v.tile);
}

/* Adds one picture to the gradients of its part. */
static void weight_picture(const struct conv *v, float *dweight, float *dbias, const float *dout,
                           const float *in, float *tile)
{
    const int plane = v->rows * v->columns;
    for (int filter = 0; dbias && filter < v->c->filters; filter++) {
        const float *row = dout + (int64_t)filter * plane;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int p = 0; p < plane; p++)
            sum += row[p];
        dbias[filter] += sum;
    }
    for (int first = 0; dweight && first < v->rows; first += v->tile_rows) {
        int count = tile_count(v, first) * v->columns, at = first * v->columns;
        const float *columns = is_plain(v) ? in + at : tile;
        if (!is_plain(v))
            to_columns(v, tile, in, first, tile_count(v, first));
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, v->c->filters, v->depth, count, 1, dout + at,
                    plane, columns, is_plain(v) ? plane : count, 1, dweight, v->depth);
    }
}

/* to = beta*to + the parts' sums, in the order of the parts. */
static void add_parts(float *to, const float *from, int64_t apart, int parts, int64_t count, int beta)
{
    CPU_PARALLEL_FOR(count * parts >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(count); chunk++) {
        const int64_t first = chunk * CPU_CHUNK, end = first + cpu_chunk_size(count, chunk);
        for (int64_t i = first; i < end && !beta; i++)
            to[i] = 0;
        for (int part = 0; part < parts; part++)
            for (int64_t i = first; i < end; i++)
                to[i] += from[part * apart + i];
    }
}

void CPU(conv2d_backward_weight)(void *dweight, void *dbias, const void *dout_, const void *in_,
                                 const struct conv2d *c, int N, int beta, void *work, void *stream)
{
    const float *dout = dout_, *in = in_;
    const struct conv v = conv_of(c, N);
    const int64_t weights = (int64_t)c->filters * v.depth;
    float *tiles = work, *sums = tiles + v.parts * v.tile;
    (void)stream;
    CPU_PARALLEL_FOR(v.parts > 1)
    for (int part = 0; part < v.parts; part++) {
        float *own = sums + part * v.weights;
        memset(own, 0, (size_t)v.weights * sizeof *own);
        for (int n = part; n < N; n += v.parts)
            weight_picture(&v, dweight ? own : NULL, dbias ? own + lines(weights) : NULL, dout + n * v.out,
                           in + n * v.in, tiles + part * v.tile);
    }
    if (dweight)
        add_parts(dweight, sums, v.weights, v.parts, weights, beta);
    if (dbias)
        add_parts(dbias, sums + lines(weights), v.weights, v.parts, c->filters, beta);
}
