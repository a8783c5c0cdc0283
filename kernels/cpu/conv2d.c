/* conv2d.c - convolution as matrix products. The squares under the filter become columns of a matrix
 * (im2col), a tile of output rows at a time: the tile is in the cache when it is multiplied. Between
 * picture and tile lies a strip: the rows of the picture that a tile needs, with the zeros around them. Every
 * row of the matrix is therefore a piece of a row of the strip.
 *
 * Pictures are divided into parts, whose number depends on their count alone. A part is the work of one
 * thread. It has its own tile and its own sum of the weights' gradient; the sums are added up in order at the
 * end.
 *
 * Values of bf16: a tile is of bf16 where it is a factor and of float where it is a result. The gradient of a
 * picture, in which results of many tiles meet, is added up in float and rounded once. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/product/product.h"
#include "kernels/cpu/value.h"

#include <string.h>

enum { CONV_PARTS = 16, TILE_BYTES = 256 << 10, TILE_COLUMNS = 64, LINE_FLOATS = 16 };

struct conv {
    const struct conv2d *c;
    int rows, columns, depth;      /* size of the output; elements of a filter */
    int tile_rows;                 /* output rows of a tile */
    int strip_rows, strip_columns; /* size of a channel, zeros included */
    int64_t in, out;               /* elements of a picture, of its output */
    /* floats of work memory for a part: sum of a picture's gradient, weights of a gradient */
    int64_t tile, strip, sum, weights;
    int parts;
    enum kernels_products by;
};

static int64_t lines(int64_t floats)
{
    return (floats + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

/* Tiles of nearly the same height: a small one costs as many passes over the weights as a large one. A
 * product of few columns reads the weights for little: with at least 64 a step of ResNet-18 takes 0.75 of the
 * time. */
static int tile_rows_of(const struct conv *v)
{
    const int64_t row = (int64_t)v->depth * v->columns * (int64_t)sizeof(VALUE);
    const int fit = row >= TILE_BYTES ? 1 : (int)(TILE_BYTES / row);
    const int least = (TILE_COLUMNS + v->columns - 1) / v->columns, most = fit > least ? fit : least;
    const int tiles = (v->rows + most - 1) / most;
    return tiles > 1 ? (v->rows + tiles - 1) / tiles : v->rows;
}

static struct conv conv_of(const struct conv2d *c, int N, enum kernels_products by)
{
    struct conv v = {.c = c,
                     .rows = conv2d_size(c->height, c->kernel, c->stride, c->padding),
                     .columns = conv2d_size(c->width, c->kernel, c->stride, c->padding),
                     .depth = c->channels * c->kernel * c->kernel,
                     .strip_columns = c->width + 2 * c->padding,
                     .parts = N < CONV_PARTS ? N : CONV_PARTS,
                     .by = by};
    v.tile_rows = tile_rows_of(&v);
    v.strip_rows = (v.tile_rows - 1) * c->stride + c->kernel;
    v.in = (int64_t)c->channels * c->height * c->width;
    v.out = (int64_t)c->filters * v.rows * v.columns;
    /* a line more of both: rows are copied in whole vectors */
    v.tile = lines((int64_t)v.depth * v.tile_rows * v.columns) + LINE_FLOATS;
    v.strip = lines((int64_t)c->channels * v.strip_rows * v.strip_columns) + LINE_FLOATS;
    v.sum = CPU_NARROW ? lines(v.in) : 0;
    v.weights = lines((int64_t)c->filters * v.depth) + lines(c->filters);
    return v;
}

size_t CPU(conv2d_work)(const struct conv2d *c, int N)
{
    const struct conv v = conv_of(c, N, KERNELS_OPENBLAS);
    return (size_t)((v.tile + v.strip + v.sum + v.weights) * v.parts) * sizeof(float);
}

/* A part's work memory. */
struct scratch {
    void *tile, *strip; /* of VALUE as a factor, of float as a result */
    float *sum;
};

static struct scratch scratch_of(const struct conv *v, void *work, int part)
{
    float *tile = (float *)work + part * (v->tile + v->strip + v->sum);
    return (struct scratch){tile, tile + v->tile, tile + v->tile + v->strip};
}

/* ---- between picture and strip ---- */

/* Rows first..end - 1 of a strip's channel lie in the picture; row r of it is row r + offset there. */
struct span {
    int first, end, offset;
};

static struct span span_of(const struct conv *v, int output_row)
{
    const int offset = output_row * v->c->stride - v->c->padding, last = v->c->height - offset;
    struct span s = {offset < 0 ? -offset : 0, v->strip_rows < last ? v->strip_rows : last, offset};
    s.first = s.first < v->strip_rows ? s.first : v->strip_rows;
    s.end = s.end > s.first ? s.end : s.first;
    return s;
}

static void clear_rows(const struct conv *v, VALUE *strip, int first, int end)
{
    memset(strip + first * v->strip_columns, 0,
           (size_t)(end - first) * (size_t)v->strip_columns * sizeof *strip);
}

/* The strip of the tile that begins at an output row. Its sides are zero beforehand (clear_strip) and stay
 * so. */
static void take_strip(const struct conv *v, VALUE *strip, const VALUE *picture, int output_row)
{
    const struct conv2d *c = v->c;
    const struct span s = span_of(v, output_row);
    for (int channel = 0; channel < c->channels; channel++, strip += v->strip_rows * v->strip_columns) {
        clear_rows(v, strip, 0, s.first);
        clear_rows(v, strip, s.end, v->strip_rows);
        for (int row = s.first; row < s.end; row++)
            memcpy(strip + row * v->strip_columns + c->padding,
                   picture + ((int64_t)channel * c->height + row + s.offset) * c->width,
                   (size_t)c->width * sizeof *strip);
    }
}

static void clear_strip(const struct conv *v, void *strip)
{
    memset(strip, 0, (size_t)v->strip * sizeof(float));
}

static void add_strip(const struct conv *v, float *picture, const float *strip, int output_row)
{
    const struct conv2d *c = v->c;
    const struct span s = span_of(v, output_row);
    for (int channel = 0; channel < c->channels; channel++, strip += v->strip_rows * v->strip_columns)
        for (int row = s.first; row < s.end; row++) {
            const float *restrict from = strip + row * v->strip_columns + c->padding;
            float *restrict to = picture + ((int64_t)channel * c->height + row + s.offset) * c->width;
            for (int x = 0; x < c->width; x++)
                to[x] += from[x];
        }
}

/* ---- between strip and columns ---- */

#define VECTOR(floats) __attribute__((vector_size(4 * (floats)), aligned(4), may_alias))
typedef float widest VECTOR(CPU_LANES);
typedef float eight VECTOR(8);
typedef float four VECTOR(4);
typedef char piece __attribute__((vector_size(CPU_LANES * sizeof(VALUE)), aligned(sizeof(VALUE)), may_alias));

/* Copies whole vectors. The excess lands in the next row, which is written later, or in the spare line after
 * the tile. */
static inline void copy_row(VALUE *to, const VALUE *from, int count)
{
    for (int j = 0; j < count; j += CPU_LANES)
        *(piece *)(to + j) = *(const piece *)(from + j);
}

static inline void add_row(float *to, const float *from, int count)
{
    int j = 0;
    for (; j + CPU_LANES <= count; j += CPU_LANES)
        *(widest *)(to + j) += *(const widest *)(from + j);
    if (CPU_LANES > 8 && j + 8 <= count) {
        *(eight *)(to + j) += *(const eight *)(from + j);
        j += 8;
    }
    if (j + 4 <= count) {
        *(four *)(to + j) += *(const four *)(from + j);
        j += 4;
    }
    for (; j < count; j++)
        to[j] += from[j];
}

/* The place in the strip of an element of the filter under the first output. */
static int64_t strip_place(const struct conv *v, int channel, int y, int x)
{
    return ((int64_t)channel * v->strip_rows + y) * v->strip_columns + x;
}

/* The matrix (depth, count * columns) of as many output rows. */
static void to_columns(const struct conv *v, VALUE *to, const VALUE *strip, int count)
{
    const struct conv2d *c = v->c;
    const int64_t down = (int64_t)c->stride * v->strip_columns;
    const int columns = v->columns, stride = c->stride;
    for (int channel = 0; channel < c->channels; channel++)
        for (int y = 0; y < c->kernel; y++)
            for (int x = 0; x < c->kernel; x++) {
                const VALUE *from = strip + strip_place(v, channel, y, x);
                for (int i = 0; i < count; i++, from += down, to += columns) {
                    if (stride == 1)
                        copy_row(to, from, columns);
                    else
                        for (int j = 0; j < columns; j++)
                            to[j] = from[j * stride];
                }
            }
}

static void add_columns(const struct conv *v, float *strip, const float *from, int count)
{
    const struct conv2d *c = v->c;
    const int64_t down = (int64_t)c->stride * v->strip_columns;
    const int columns = v->columns, stride = c->stride;
    for (int channel = 0; channel < c->channels; channel++)
        for (int y = 0; y < c->kernel; y++)
            for (int x = 0; x < c->kernel; x++) {
                float *to = strip + strip_place(v, channel, y, x);
                for (int i = 0; i < count; i++, to += down, from += columns) {
                    if (stride == 1)
                        add_row(to, from, columns);
                    else
                        for (int j = 0; j < columns; j++)
                            to[j * stride] += from[j];
                }
            }
}

/* ---- tiles ---- */

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

/* The matrix of the tile that begins at an output row. */
static const VALUE *columns_of(const struct conv *v, const VALUE *picture, int first, struct scratch work)
{
    if (is_plain(v))
        return picture + first * v->columns;
    take_strip(v, work.strip, picture, first);
    to_columns(v, work.tile, work.strip, tile_count(v, first));
    return work.tile;
}

/* ---- forward ---- */

static void forward_picture(const struct conv *v, VALUE *out, const VALUE *in, const WEIGHT *weight,
                            const WEIGHT *bias, struct scratch work)
{
    const int plane = v->rows * v->columns;
    for (int filter = 0; bias && filter < v->c->filters; filter++)
        for (int p = 0; p < plane; p++)
            out[(int64_t)filter * plane + p] = bias[filter];
    for (int first = 0; first < v->rows; first += v->tile_rows) {
        int count = tile_count(v, first) * v->columns, at = first * v->columns;
        const VALUE *columns = columns_of(v, in, first, work);
        CPU(product_alone)
        (&(struct product){.rows = v->c->filters,
                           .columns = count,
                           .depth = v->depth,
                           .a = weight,
                           .a_stride = v->depth,
                           .b = columns,
                           .b_stride = is_plain(v) ? plane : count,
                           .beta = bias ? 1 : 0,
                           .out = out + at,
                           .out_stride = plane},
         v->by);
    }
}

static void conv2d_forward(void *out_, const void *in_, const void *weight, const void *bias,
                           const struct conv2d *c, int N, void *work, enum kernels_products by)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    const struct conv v = conv_of(c, N, by);
    CPU_PARALLEL_FOR(v.parts > 1)
    for (int part = 0; part < v.parts; part++) {
        const struct scratch own = scratch_of(&v, work, part);
        clear_strip(&v, own.strip);
        for (int n = part; n < N; n += v.parts)
            forward_picture(&v, out + n * v.out, in + n * v.in, weight, bias, own);
    }
}

/* ---- backward ---- */

/* The array of float in which a picture's gradient is added up: of values of float, the gradient itself. */
static float *sum_begin(const struct conv *v, VALUE *din, int beta, struct scratch work)
{
    float *sum = CPU_NARROW ? work.sum : (float *)din;
    if (!beta)
        memset(sum, 0, (size_t)v->in * sizeof *sum);
    for (int64_t i = 0; CPU_NARROW && beta && i < v->in; i++)
        sum[i] = LOAD(din[i]);
    return sum;
}

static void sum_end(const struct conv *v, VALUE *restrict din, const float *restrict sum)
{
    for (int64_t i = 0; CPU_NARROW && i < v->in; i++)
        STORE(din[i], sum[i]);
}

static void backward_picture(const struct conv *v, VALUE *din, const VALUE *dout, const WEIGHT *weight,
                             int beta, struct scratch work)
{
    const int plane = v->rows * v->columns;
    float *sum = is_plain(v) ? NULL : sum_begin(v, din, beta, work);
    for (int first = 0; first < v->rows; first += v->tile_rows) {
        int count = tile_count(v, first) * v->columns, at = first * v->columns;
        CPU(product_alone)
        (&(struct product){.a_transposed = true,
                           .rows = v->depth,
                           .columns = count,
                           .depth = v->c->filters,
                           .a = weight,
                           .a_stride = v->depth,
                           .b = dout + at,
                           .b_stride = plane,
                           .beta = is_plain(v) && beta ? 1 : 0,
                           .out = is_plain(v) ? din + at : work.tile,
                           .gradient = !is_plain(v),
                           .out_stride = is_plain(v) ? plane : count},
         v->by);
        if (is_plain(v))
            continue;
        clear_strip(v, work.strip);
        add_columns(v, work.strip, work.tile, tile_count(v, first));
        add_strip(v, sum, work.strip, first);
    }
    if (sum)
        sum_end(v, din, sum);
}

static void conv2d_backward_input(void *din_, const void *dout_, const void *weight, const struct conv2d *c,
                                  int N, int beta, void *work, enum kernels_products by)
{
    VALUE *din = din_;
    const VALUE *dout = dout_;
    const struct conv v = conv_of(c, N, by);
    CPU_PARALLEL_FOR(v.parts > 1)
    for (int part = 0; part < v.parts; part++)
        for (int n = part; n < N; n += v.parts)
            backward_picture(&v, din + n * v.in, dout + n * v.out, weight, beta, scratch_of(&v, work, part));
}

/* Adds one picture to the gradients of its part. */
static void weight_picture(const struct conv *v, float *dweight, float *dbias, const VALUE *dout,
                           const VALUE *in, struct scratch work)
{
    const int plane = v->rows * v->columns;
    for (int filter = 0; dbias && filter < v->c->filters; filter++) {
        const VALUE *row = dout + (int64_t)filter * plane;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int p = 0; p < plane; p++)
            sum += LOAD(row[p]);
        dbias[filter] += sum;
    }
    for (int first = 0; dweight && first < v->rows; first += v->tile_rows) {
        int count = tile_count(v, first) * v->columns, at = first * v->columns;
        const VALUE *columns = columns_of(v, in, first, work);
        CPU(product_alone)
        (&(struct product){.b_transposed = true,
                           .rows = v->c->filters,
                           .columns = v->depth,
                           .depth = count,
                           .a = dout + at,
                           .a_stride = plane,
                           .b = columns,
                           .b_stride = is_plain(v) ? plane : count,
                           .beta = 1,
                           .out = dweight,
                           .gradient = true,
                           .out_stride = v->depth},
         v->by);
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

static void conv2d_backward_weight(void *dweight, void *dbias, const void *dout_, const void *in_,
                                   const struct conv2d *c, int N, int beta, void *work,
                                   enum kernels_products by)
{
    const VALUE *dout = dout_, *in = in_;
    const struct conv v = conv_of(c, N, by);
    const int64_t weights = (int64_t)c->filters * v.depth;
    float *sums = (float *)work + v.parts * (v.tile + v.strip + v.sum);
    CPU_PARALLEL_FOR(v.parts > 1)
    for (int part = 0; part < v.parts; part++) {
        const struct scratch scratch = scratch_of(&v, work, part);
        float *own = sums + part * v.weights;
        clear_strip(&v, scratch.strip);
        memset(own, 0, (size_t)v.weights * sizeof *own);
        for (int n = part; n < N; n += v.parts)
            weight_picture(&v, dweight ? own : NULL, dbias ? own + lines(weights) : NULL, dout + n * v.out,
                           in + n * v.in, scratch);
    }
    if (dweight)
        add_parts(dweight, sums, v.weights, v.parts, weights, beta);
    if (dbias)
        add_parts(dbias, sums + lines(weights), v.weights, v.parts, c->filters, beta);
}

/* ---- the slots, by library ---- */

#define CONV2D_SLOTS(suffix, by)                                                                             \
    void CPU(conv2d_forward##suffix)(void *out, const void *in, const void *weight, const void *bias,        \
                                     const struct conv2d *c, int N, void *work, void *stream)                \
    {                                                                                                        \
        (void)stream;                                                                                        \
        conv2d_forward(out, in, weight, bias, c, N, work, by);                                               \
    }                                                                                                        \
    void CPU(conv2d_backward_input##suffix)(void *din, const void *dout, const void *weight,                 \
                                            const struct conv2d *c, int N, int beta, void *work,             \
                                            void *stream)                                                    \
    {                                                                                                        \
        (void)stream;                                                                                        \
        conv2d_backward_input(din, dout, weight, c, N, beta, work, by);                                      \
    }                                                                                                        \
    void CPU(conv2d_backward_weight##suffix)(void *dweight, void *dbias, const void *dout, const void *in,   \
                                             const struct conv2d *c, int N, int beta, void *work,            \
                                             void *stream)                                                   \
    {                                                                                                        \
        (void)stream;                                                                                        \
        conv2d_backward_weight(dweight, dbias, dout, in, c, N, beta, work, by);                              \
    }
#ifdef CPU_BF16
CONV2D_SLOTS(, KERNELS_BF16)
#else
CONV2D_SLOTS(, KERNELS_OPENBLAS)
CONV2D_SLOTS(_onednn, KERNELS_ONEDNN)
CONV2D_SLOTS(_bf16, KERNELS_BF16)
CONV2D_SLOTS(_auto, KERNELS_AUTO)
#endif
