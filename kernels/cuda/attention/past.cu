/* past.cu - attention over kept keys and values (formulas: kernels/ref/attention_past.c): a block for each
 * new position and head, whose scores are in work memory. Fast for a few new positions alone. */
#include <math.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

enum { PAST_THREADS = CUDA_BLOCK, PAST_WARPS = PAST_THREADS / CUDA_WARP };

struct past_shape {
    int T, heads, kv_heads, head_size, at, room, window;
    int64_t q_row, k_row, v_row;
    float scale, cap;
};

template <typename V>
static __global__ void past_keep_kernel(V *keys, V *values, const V *k, const V *v, struct past_shape s)
{
    const int64_t width = (int64_t)s.kv_heads * s.head_size, n = s.T * width;
    for (int64_t i = thread_first(); i < n; i += thread_stride()) {
        const int64_t t = i / width, column = i % width, head = column / s.head_size;
        const int64_t to = (head * s.room + s.at + t) * s.head_size + column % s.head_size;
        keys[to] = k[t * s.k_row + column];
        values[to] = v[t * s.v_row + column];
    }
}

/* Positions from..end-1, a warp each; the largest score, for all threads. */
template <typename V>
static __device__ float past_scores(float *scores, const V *q, const V *keys, int from, int end,
                                    const struct past_shape &s, float *shared)
{
    float most = -INFINITY;
    for (int t = from + (int)threadIdx.x / CUDA_WARP; t < end; t += PAST_WARPS) {
        const V *key = keys + (int64_t)t * s.head_size;
        float sum = 0;
        for (int i = lane(); i < s.head_size; i += CUDA_WARP)
            sum += value_get(q[i]) * value_get(key[i]);
        sum = warp_sum(sum) * s.scale;
        if (s.cap > 0)
            sum = s.cap * tanhf(sum / s.cap);
        if (lane() == 0)
            scores[t - from] = sum;
        most = fmaxf(most, sum);
    }
    return block_max(most, shared);
}

/* Columns first.. of the result, a lane each; warps share the positions and add up in their order. After the
 * barriers nobody reads the scores: those of the next row may be written. */
template <typename V>
static __device__ void past_columns(V *out, const float *scores, const V *values, int from, int end,
                                    int first, float total, const struct past_shape &s, float *parts)
{
    const int column = first + lane();
    float sum = 0;
    for (int t = from + (int)threadIdx.x / CUDA_WARP; t < end && column < s.head_size; t += PAST_WARPS)
        sum += scores[t - from] * value_get(values[(int64_t)t * s.head_size + column]);
    __syncthreads(); /* the last use of parts is over */
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < CUDA_WARP && column < s.head_size) {
        float all = 0;
        for (int warp = 0; warp < PAST_WARPS; warp++)
            all += parts[warp * CUDA_WARP + lane()];
        out[column] = value_of<V>(all / total);
    }
}

template <typename V>
static __global__ void past_attend_kernel(V *out, const V *q, const V *keys, const V *values, float *work,
                                          struct past_shape s)
{
    __shared__ float parts[PAST_THREADS];
    for (int64_t row = blockIdx.x; row < (int64_t)s.T * s.heads; row += gridDim.x) {
        const int64_t t = row / s.heads, h = row % s.heads;
        const int end = (int)(s.at + t + 1), from = s.window > 0 && end > s.window ? end - s.window : 0;
        const int64_t head = h / (s.heads / s.kv_heads) * s.room * s.head_size;
        float *scores = work + (int64_t)blockIdx.x * s.room;
        const float most =
            past_scores(scores, q + t * s.q_row + h * s.head_size, keys + head, from, end, s, parts);
        float sum = 0;
        for (int i = (int)threadIdx.x; i < end - from; i += PAST_THREADS) {
            scores[i] = expf(scores[i] - most);
            sum += scores[i];
        }
        const float total = block_sum(sum, parts);
        for (int first = 0; first < s.head_size; first += CUDA_WARP)
            past_columns(out + row * s.head_size, scores, values + head, from, end, first, total, s, parts);
    }
}

static struct cuda_grid past_grid(const struct attention *a)
{
    return cuda_grid_of((int64_t)a->T * a->heads, CUDA_ELEMENT_BLOCKS, PAST_THREADS);
}

/* Each block's scores. */
extern "C" size_t cuda_attention_past_work(const struct attention *a, int room)
{
    return (size_t)past_grid(a).blocks * (size_t)room * sizeof(float);
}

template <typename V>
static int attention_past_of(void *out, void *keys, void *values, const void *q, const void *k, const void *v,
                             const struct attention *a, int at, int room, void *work, void *stream,
                             struct muster_error *err)
{
    if (a->B != 1 || !a->causal || a->lengths || a->positions || a->T < 1 || at < 0 || a->T > room - at ||
        a->kv_heads < 1 || a->heads % a->kv_heads)
        return error_set(
            err, MUSTER_E_INVALID,
            "attention_past: %d sequences, %d positions from %d on, room %d, heads %d and %d; it "
            "is for one sequence, causal, within its room",
            a->B, a->T, at, room, a->heads, a->kv_heads);
    struct past_shape s = {a->T,      a->heads, a->kv_heads, a->head_size, at, room,
                           a->window, a->q_row, a->k_row,    a->v_row,     0,  0};
    s.scale = a->scale != 0 ? (float)a->scale : (float)(1.0 / sqrt((double)a->head_size));
    s.cap = (float)a->cap;
    const struct cuda_grid keep = cuda_grid_elements((int64_t)a->T * a->kv_heads * a->head_size),
                           attend = past_grid(a);
    CUDA_LAUNCH("attention_past", err, past_keep_kernel<V>, keep.blocks, keep.threads, 0, stream, (V *)keys,
                (V *)values, (const V *)k, (const V *)v, s);
    CUDA_LAUNCH("attention_past", err, past_attend_kernel<V>, attend.blocks, attend.threads, 0, stream,
                (V *)out, (const V *)q, (const V *)keys, (const V *)values, (float *)work, s);
    return 0;
}

#define TYPED_attention_past ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_attention_past
