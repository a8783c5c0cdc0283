/* rotary.cu - the rotary position embedding (formulas: kernels/ref/rotary.c), one thread a pair of elements.
 *
 * Frequencies are formed on the host, as turns instead of radians, and are arguments of the launch,
 * ROTARY_PAIRS at a time. A thread takes the turns of its position modulo 1 in double, so that a far
 * position costs no accuracy, and the sine and cosine in float. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

enum { ROTARY_PAIRS = 128 };

struct rotary_pairs {
    int first, count; /* part of each head's size/2 pairs */
    int half;         /* size / 2 */
    float amplitude;
    double turns[ROTARY_PAIRS];
};

static __global__ void rotary_kernel(float *out, const float *in, const int32_t *positions,
                                     struct rotary_pairs pairs, int64_t heads, int T, int NH, int HS,
                                     int backward, int beta)
{
    for (int64_t i = thread_first(); i < heads * pairs.count; i += thread_stride()) {
        int64_t head = i / pairs.count;
        int pair = (int)(i % pairs.count);
        int64_t row = head / NH;
        double turns = (double)(positions ? positions[row] : row % T) * pairs.turns[pair];
        float part = (float)(turns - floor(turns)), c, s;
        sincospif(2.0f * part, &s, &c);
        c *= pairs.amplitude;
        s *= backward ? -pairs.amplitude : pairs.amplitude;
        int64_t first = head * HS + pairs.first + pair, second = first + pairs.half;
        float x = in[first], y = in[second];
        out[first] = x * c - y * s + (beta ? out[first] : 0.0f);
        out[second] = y * c + x * s + (beta ? out[second] : 0.0f);
    }
}

/* Elements from `size` on, which do not turn. */
static __global__ void rotary_rest_kernel(float *out, const float *in, int64_t heads, int HS, int size,
                                          int beta)
{
    for (int64_t i = thread_first(); i < heads * (HS - size); i += thread_stride()) {
        int64_t at = i / (HS - size) * HS + size + i % (HS - size);
        out[at] = in[at] + (beta ? out[at] : 0.0f);
    }
}

extern "C" int cuda_rotary(void *out, const void *in, const struct rotary *rotary, int B, int T, int NH,
                           int HS, int backward, int beta, void *stream, struct muster_error *err)
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
        CUDA_LAUNCH("rotary", err, rotary_rest_kernel, rest.blocks, rest.threads, 0, stream, (float *)out,
                    (const float *)in, heads, HS, size, beta);
    }
    for (int first = 0; first < size / 2; first += ROTARY_PAIRS) {
        struct rotary_pairs pairs;
        pairs.first = first;
        pairs.half = size / 2;
        pairs.amplitude = (float)rotary_amplitude(rotary);
        pairs.count = size / 2 - first < ROTARY_PAIRS ? size / 2 - first : (int)ROTARY_PAIRS;
        for (int i = 0; i < pairs.count; i++)
            pairs.turns[i] = rotary_frequency(rotary, HS, T, first + i) / two_pi;
        struct cuda_grid grid = cuda_grid_elements(heads * pairs.count);
        CUDA_LAUNCH("rotary", err, rotary_kernel, grid.blocks, grid.threads, 0, stream, (float *)out,
                    (const float *)in, rotary->positions, pairs, heads, T, NH, HS, backward, beta);
    }
    return 0;
}
