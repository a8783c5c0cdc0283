/* dropout.cu - dropout with a mask that is a function of its place (kernels/dropout_place.h), one thread a
 * block of Philox, whose four words are four elements of a group of 64. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"
#include "kernels/dropout_place.h"

template <typename V>
static __global__ void dropout_kernel(V *out, const V *in, int64_t n, int64_t size, int64_t sample,
                                      uint32_t layer, double p, int beta, const struct step_scalars *scalars)
{
    int64_t blocks = (size + DROPOUT_GROUP - 1) / DROPOUT_GROUP * DROPOUT_LANES; /* blocks of a sample */
    int64_t samples = (n + size - 1) / size;
    for (int64_t i = thread_first(); i < samples * blocks; i += thread_stride()) {
        int64_t index = i / blocks, block = i % blocks;
        struct dropout_place place =
            dropout_place(scalars->seed, scalars->first_sample + (uint64_t)(sample + index), layer, p);
        uint32_t counter[4] = {(uint32_t)block, place.layer, place.sample[0], place.sample[1]}, word[4];
        philox4x32_10(counter, place.key, word);
        float factor = (float)place.factor;
        int64_t first = block / DROPOUT_LANES * DROPOUT_GROUP + block % DROPOUT_LANES;
        for (int w = 0; w < 4; w++) {
            int64_t element = first + w * DROPOUT_LANES, at = index * size + element;
            if (element >= size || at >= n)
                break;
            float d = word[w] >= place.threshold && factor > 0 ? value_get(in[at]) * factor : 0.0f;
            out[at] = value_of<V>(d + (beta ? value_get(out[at]) : 0.0f));
        }
    }
}

template <typename V>
static int dropout_of(void *out, const void *in, int64_t rows, int width, int rows_per_sample, int64_t sample,
                      uint32_t layer, double p, int beta, const struct step_scalars *scalars, void *stream,
                      struct muster_error *err)
{
    CUDA_CHECK_SIZE("dropout", rows, err);
    CUDA_CHECK_SIZE("dropout", width, err);
    CUDA_CHECK_SIZE("dropout", rows_per_sample, err);
    int64_t n = rows * width, size = (int64_t)rows_per_sample * width;
    if (n == 0)
        return 0;
    if (size == 0)
        return error_set(err, MUSTER_E_INVALID, "dropout: rows_per_sample is 0; it must be at least 1");
    struct cuda_grid grid =
        cuda_grid_elements(cuda_ceil_divide(n, size) * cuda_ceil_divide(size, DROPOUT_GROUP) * DROPOUT_LANES);
    CUDA_LAUNCH("dropout", err, dropout_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)out,
                (const V *)in, n, size, sample, layer, p, beta, scalars);
    return 0;
}

#define TYPED_dropout ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_dropout
