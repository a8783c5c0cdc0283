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
    int first, count; /* part of each head's HS/2 pairs */
    double turns[ROTARY_PAIRS];
};

static __global__ void rotary_kernel(float *out, const float *in, struct rotary_pairs pairs, int64_t heads,
                                     int T, int NH, int HS, int backward, int beta)
{
    for (int64_t i = thread_first(); i < heads * pairs.count; i += thread_stride()) {
        int64_t head = i / pairs.count;
        int pair = (int)(i % pairs.count);
        double turns = (double)(head / NH % T) * pairs.turns[pair];
        float part = (float)(turns - floor(turns)), c, s;
        sincospif(2.0f * part, &s, &c);
        s = backward ? -s : s;
        int64_t first = head * HS + pairs.first + pair, second = first + HS / 2;
        float x = in[first], y = in[second];
        out[first] = x * c - y * s + (beta ? out[first] : 0.0f);
        out[second] = y * c + x * s + (beta ? out[second] : 0.0f);
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
    for (int first = 0; first < HS / 2; first += ROTARY_PAIRS) {
        struct rotary_pairs pairs;
        pairs.first = first;
        pairs.count = HS / 2 - first < ROTARY_PAIRS ? HS / 2 - first : (int)ROTARY_PAIRS;
        for (int i = 0; i < pairs.count; i++)
            pairs.turns[i] = rotary_frequency(rotary, HS, first + i) / two_pi;
        struct cuda_grid grid = cuda_grid_elements(heads * pairs.count);
        CUDA_LAUNCH("rotary", err, rotary_kernel, grid.blocks, grid.threads, 0, stream, (float *)out,
                    (const float *)in, pairs, heads, T, NH, HS, backward, beta);
    }
    return 0;
}
