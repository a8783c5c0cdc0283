/* conv2d.c - the reference of convolution: every output is a sum over channels and the filter's square.
 * Elements of the square outside the picture are 0. */
#include "kernels/ref/real.h"

/* The element of a picture that is under element (y, x) of the filter at output (i, j); -1: outside the
 * picture. */
static int64_t under(const struct conv2d *c, int channel, int i, int j, int y, int x)
{
    int row = i * c->stride + y - c->padding, column = j * c->stride + x - c->padding;
    if (row < 0 || row >= c->height || column < 0 || column >= c->width)
        return -1;
    return ((int64_t)channel * c->height + row) * c->width + column;
}

struct sides {
    int rows, columns;        /* size of the output */
    int64_t in, out, weights; /* elements of a picture, of its output, of a filter */
};

static struct sides sides_of(const struct conv2d *c)
{
    struct sides s = {conv2d_size(c->height, c->kernel, c->stride, c->padding),
                      conv2d_size(c->width, c->kernel, c->stride, c->padding), 0, 0, 0};
    s.in = (int64_t)c->channels * c->height * c->width;
    s.out = (int64_t)c->filters * s.rows * s.columns;
    s.weights = (int64_t)c->channels * c->kernel * c->kernel;
    return s;
}

/* One output: the filter over the picture at (i, j). */
static double output_at(const struct conv2d *c, const VALUE *in, const WEIGHT *filter, int i, int j)
{
    double sum = 0;
    for (int channel = 0; channel < c->channels; channel++)
        for (int y = 0; y < c->kernel; y++)
            for (int x = 0; x < c->kernel; x++) {
                int64_t at = under(c, channel, i, j, y, x);
                if (at >= 0)
                    sum += LOAD(in[at]) * LOAD(filter[(channel * c->kernel + y) * c->kernel + x]);
            }
    return sum;
}

void REF(conv2d_forward)(void *out_, const void *in_, const void *weight_, const void *bias_,
                         const struct conv2d *c, int N, void *work, void *stream)
{
    const VALUE *in = in_;
    const WEIGHT *weight = weight_, *bias = bias_;
    VALUE *out = out_;
    int64_t at = 0;
    const struct sides s = sides_of(c);
    (void)work, (void)stream;
    for (int n = 0; n < N; n++)
        for (int filter = 0; filter < c->filters; filter++)
            for (int i = 0; i < s.rows; i++)
                for (int j = 0; j < s.columns; j++)
                    STORE(out[at++], output_at(c, in + n * s.in, weight + filter * s.weights, i, j) +
                                         (bias ? LOAD(bias[filter]) : 0));
}

/* The gradient of element (row, column) of a channel: every output that it is part of. */
static double input_gradient(const struct conv2d *c, const struct sides *s, const VALUE *dout,
                             const WEIGHT *weight, int channel, int row, int column)
{
    double sum = 0;
    for (int filter = 0; filter < c->filters; filter++)
        for (int y = 0; y < c->kernel; y++)
            for (int x = 0; x < c->kernel; x++) {
                int i = row + c->padding - y, j = column + c->padding - x;
                if (i < 0 || j < 0 || i % c->stride || j % c->stride || i / c->stride >= s->rows ||
                    j / c->stride >= s->columns)
                    continue;
                sum += LOAD(dout[((int64_t)filter * s->rows + i / c->stride) * s->columns + j / c->stride]) *
                       LOAD(weight[filter * s->weights + (channel * c->kernel + y) * c->kernel + x]);
            }
    return sum;
}

void REF(conv2d_backward_input)(void *din_, const void *dout_, const void *weight, const struct conv2d *c,
                                int N, int beta, void *work, void *stream)
{
    VALUE *din = din_;
    const VALUE *dout = dout_;
    const struct sides s = sides_of(c);
    (void)work, (void)stream;
    for (int n = 0; n < N; n++)
        for (int channel = 0; channel < c->channels; channel++)
            for (int row = 0; row < c->height; row++)
                for (int column = 0; column < c->width; column++, din++)
                    STORE(*din, (beta ? LOAD(*din) : 0) +
                                    input_gradient(c, &s, dout + n * s.out, weight, channel, row, column));
}

/* The gradient of element (channel, y, x) of a filter: all outputs of the filter, of all pictures. */
static double weight_gradient(const struct conv2d *c, const struct sides *s, const VALUE *dout,
                              const VALUE *in, int N, int filter, int element)
{
    int x = element % c->kernel, y = element / c->kernel % c->kernel,
        channel = element / c->kernel / c->kernel;
    double sum = 0;
    for (int n = 0; n < N; n++)
        for (int i = 0; i < s->rows; i++)
            for (int j = 0; j < s->columns; j++) {
                int64_t at = under(c, channel, i, j, y, x);
                if (at >= 0)
                    sum += LOAD(dout[n * s->out + ((int64_t)filter * s->rows + i) * s->columns + j]) *
                           LOAD(in[n * s->in + at]);
            }
    return sum;
}

static double bias_gradient(const struct sides *s, const VALUE *dout, int N, int filter)
{
    double sum = 0;
    for (int n = 0; n < N; n++)
        for (int p = 0; p < s->rows * s->columns; p++)
            sum += LOAD(dout[n * s->out + (int64_t)filter * s->rows * s->columns + p]);
    return sum;
}

void REF(conv2d_backward_weight)(void *dweight_, void *dbias_, const void *dout, const void *in,
                                 const struct conv2d *c, int N, int beta, void *work, void *stream)
{
    GRADIENT *dweight = dweight_, *dbias = dbias_;
    const struct sides s = sides_of(c);
    (void)work, (void)stream;
    for (int filter = 0; filter < c->filters; filter++) {
        for (int element = 0; dweight && element < s.weights; element++) {
            GRADIENT *to = dweight + filter * s.weights + element;
            STORE(*to, (beta ? LOAD(*to) : 0) + weight_gradient(c, &s, dout, in, N, filter, element));
        }
        if (dbias)
            STORE(dbias[filter], (beta ? LOAD(dbias[filter]) : 0) + bias_gradient(&s, dout, N, filter));
    }
}

size_t REF(conv2d_work)(const struct conv2d *c, int N)
{
    (void)c, (void)N;
    return 0;
}
