/* rotary.cu - the rotary position embedding (formulas: kernels/ref/rotary.c), a thread as many pairs of
 * elements as 16 bytes hold.
 *
 * Frequencies are formed on the host, as turns instead of radians, and are arguments of the launch,
 * ROTARY_PAIRS at a time. A thread takes the turns of its position modulo 1 in double, so that a far
 * position costs no accuracy, and the sine and cosine in float. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

enum { ROTARY_PAIRS = 128 };

struct rotary_pairs {
    int first, count; /* part of each head's size/2 pairs */
    int half;         /* size / 2 */
    int begin;        /* position of a sequence's first row */
    float amplitude;
    double turns[ROTARY_PAIRS];
};

/* A thread has a vector of the first elements of pairs, and that of their second ones. */
template <typename V>
static __global__ void rotary_kernel(V *out, const V *in, const int32_t *positions, struct rotary_pairs pairs,
                                     int64_t heads, int T, int NH, int HS, int backward, int beta,
                                     bool aligned)
{
    const int VECTOR = value_vector<V>::COUNT, vectors = (pairs.count + VECTOR - 1) / VECTOR;
    for (int64_t i = thread_first(); i < heads * vectors; i += thread_stride()) {
        const int64_t head = i / vectors, row = head / NH;
        const int pair = (int)(i % vectors) * VECTOR, count = values_left<V>(pairs.count, pair);
        const double position = (double)(positions ? positions[row] : pairs.begin + row % T);
        const int64_t first = head * HS + pairs.first + pair, second = first + pairs.half;
        float x[value_vector<V>::COUNT], y[value_vector<V>::COUNT];
        float old_x[value_vector<V>::COUNT] = {}, old_y[value_vector<V>::COUNT] = {};
        values_load(x, in + first, count, aligned);
        values_load(y, in + second, count, aligned);
        if (beta) {
            values_load(old_x, out + first, count, aligned);
            values_load(old_y, out + second, count, aligned);
        }
        CUDA_EACH (j, 0, value_vector<V>::COUNT) {
            const double turns = position * pairs.turns[pair + (j < count ? j : 0)];
            const float part = (float)(turns - floor(turns)), x_before = x[j];
            float c, s;
            sincospif(2.0f * part, &s, &c);
            c *= pairs.amplitude;
            s *= backward ? -pairs.amplitude : pairs.amplitude;
            x[j] = x_before * c - y[j] * s + old_x[j];
            y[j] = y[j] * c + x_before * s + old_y[j];
        }
        values_store(out + first, x, count, aligned);
        values_store(out + second, y, count, aligned);
    }
}

/* Elements from `size` on, which do not turn. */
template <typename V>
static __global__ void rotary_rest_kernel(V *out, const V *in, int64_t heads, int HS, int size, int beta)
{
    for (int64_t i = thread_first(); i < heads * (HS - size); i += thread_stride()) {
        int64_t at = i / (HS - size) * HS + size + i % (HS - size);
        out[at] = value_of<V>(value_get(in[at]) + (beta ? value_get(out[at]) : 0.0f));
    }
}

template <typename V>
static int rotary_of(void *out, const void *in, const struct rotary *rotary, int B, int T, int NH, int HS,
                     int backward, int beta, void *stream, struct muster_error *err)
{
    static const double two_pi = 6.28318530717958647693;
    CUDA_CHECK_SIZE("rotary", B, err);
    CUDA_CHECK_SIZE("rotary", T, err);
    CUDA_CHECK_SIZE("rotary", NH, err);
    CUDA_CHECK_SIZE("rotary", HS, err);
    int64_t heads = (int64_t)B * T * NH;
    if (heads == 0)
        return 0;
    const int size = rotary_size(rotary, HS);
    if (size < HS) {
        struct cuda_grid rest = cuda_grid_elements(heads * (HS - size));
        CUDA_LAUNCH("rotary", err, rotary_rest_kernel<V>, rest.blocks, rest.threads, 0, stream, (V *)out,
                    (const V *)in, heads, HS, size, beta);
    }
    for (int first = 0; first < size / 2; first += ROTARY_PAIRS) {
        struct rotary_pairs pairs;
        pairs.first = first;
        pairs.half = size / 2;
        pairs.begin = rotary->first;
        pairs.amplitude = (float)rotary_amplitude(rotary);
        pairs.count = size / 2 - first < ROTARY_PAIRS ? size / 2 - first : (int)ROTARY_PAIRS;
        for (int i = 0; i < pairs.count; i++)
            pairs.turns[i] = rotary_frequency(rotary, HS, rotary->first + T, first + i) / two_pi;
        const int VECTOR = value_vector<V>::COUNT;
        const bool aligned = HS % VECTOR == 0 && pairs.half % VECTOR == 0 && values_aligned(out, in);
        const struct cuda_grid grid = cuda_grid_elements(heads * cuda_ceil_divide(pairs.count, VECTOR));
        CUDA_LAUNCH("rotary", err, rotary_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)out,
                    (const V *)in, rotary->positions, pairs, heads, T, NH, HS, backward, beta, aligned);
    }
    return 0;
}

#define TYPED_rotary ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_rotary
