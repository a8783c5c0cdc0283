/* topk.cu - the largest elements of each run of a gradient, and their sum (rules and bits:
 * runtime/compress/topk.c).
 *
 * The border's magnitude is found digit by digit, of 4 bits: each block counts the 16 digits of its chunk, in
 * registers, and one warp a run adds the blocks' counts and picks the digit. Then blocks count what lies
 * above the border and on it, and each writes its part of the elements behind those of the blocks before. No
 * atomics: places are in ascending order. */
#include "kernels/cuda/compress/compress.cuh"
#include "kernels/cuda/narrow.cuh"

enum { TOPK_BITS = 4, TOPK_DIGITS = 1 << TOPK_BITS };

/* Work memory of one run. */
struct topk_work {
    uint32_t border;
    int64_t equal; /* kept elements that are not above the border; at last: that are on it */
    uint32_t digits[CUDA_COMPRESS_CHUNKS][TOPK_DIGITS];
    uint32_t above[CUDA_COMPRESS_CHUNKS],
        on[CUDA_COMPRESS_CHUNKS]; /* elements of a chunk; then of all chunks before it */
};

static __device__ inline uint32_t magnitude_of(float value)
{
    union {
        float value;
        uint32_t bits;
    } both;
    both.value = value;
    return both.bits & 0x7fffffffu;
}

static __global__ void topk_count_kernel(const float *gradient, struct cuda_pieces pieces, int above,
                                         int bits, struct topk_work *work, const struct step_scalars *scalars)
{
    __shared__ uint32_t shared[CUDA_BLOCK / CUDA_WARP];
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    const struct cuda_chunk chunk = chunk_of(p.count);
    struct topk_work *w = &work[blockIdx.y];
    if (scalars->skip || p.kept == 0 || chunk.begin >= chunk.end)
        return;
    const uint32_t border = above == 31 ? 0 : w->border;
    uint32_t counts[TOPK_DIGITS];
    CUDA_EACH (d, 0, TOPK_DIGITS)
        counts[d] = 0;
    for (int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x) {
        const uint32_t m = magnitude_of(gradient[p.at + i]);
        const uint32_t digit = m >> (above - bits) & ((1u << bits) - 1);
        const bool counts_here = above == 31 || m >> above == border;
        CUDA_EACH (d, 0, TOPK_DIGITS)
            counts[d] += counts_here && digit == (uint32_t)d;
    }
    CUDA_EACH (d, 0, TOPK_DIGITS) {
        const uint32_t sum = block_sum(counts[d], shared);
        if (threadIdx.x == 0)
            w->digits[blockIdx.x][d] = sum;
    }
}

/* One warp a run. */
static __global__ void topk_pick_kernel(struct cuda_pieces pieces, int above, int bits,
                                        struct topk_work *work, const struct step_scalars *scalars)
{
    __shared__ int64_t counts[TOPK_DIGITS];
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    struct topk_work *w = &work[blockIdx.y];
    const int64_t chunks = cuda_compress_chunks(p.count);
    if (scalars->skip || p.kept == 0)
        return;
    for (int d = 0; d < 1 << bits; d++) {
        int64_t sum = 0;
        for (int64_t c = threadIdx.x; c < chunks; c += CUDA_WARP)
            sum += w->digits[c][d];
        sum = warp_sum(sum);
        if (threadIdx.x == 0)
            counts[d] = sum;
    }
    if (threadIdx.x)
        return;
    int64_t kept = above == 31 ? p.kept : w->equal;
    int digit = (1 << bits) - 1;
    while (digit > 0 && counts[digit] < kept)
        kept -= counts[digit--];
    w->border = (above == 31 ? 0 : w->border << bits) | (uint32_t)digit;
    w->equal = kept;
}

static __global__ void topk_border_kernel(const float *gradient, struct cuda_pieces pieces,
                                          struct topk_work *work, const struct step_scalars *scalars)
{
    __shared__ uint32_t shared[CUDA_BLOCK / CUDA_WARP];
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    const struct cuda_chunk chunk = chunk_of(p.count);
    struct topk_work *w = &work[blockIdx.y];
    if (scalars->skip || p.kept == 0 || chunk.begin >= chunk.end)
        return;
    uint32_t above = 0, on = 0;
    for (int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x) {
        const uint32_t m = magnitude_of(gradient[p.at + i]);
        above += m > w->border;
        on += m == w->border;
    }
    above = block_sum(above, shared);
    on = block_sum(on, shared);
    if (threadIdx.x == 0) {
        w->above[blockIdx.x] = above;
        w->on[blockIdx.x] = on;
    }
}

/* Sums over the chunks before; one thread a run. */
static __global__ void topk_places_kernel(struct cuda_pieces pieces, struct topk_work *work,
                                          const struct step_scalars *scalars)
{
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    struct topk_work *w = &work[blockIdx.y];
    uint32_t above = 0, on = 0;
    if (scalars->skip || p.kept == 0 || threadIdx.x)
        return;
    for (int64_t c = 0; c < cuda_compress_chunks(p.count); c++) {
        const uint32_t here_above = w->above[c], here_on = w->on[c];
        w->above[c] = above;
        w->on[c] = on;
        above += here_above;
        on += here_on;
    }
}

/* Threads of the block before this thread whose flag is set, and all such threads; `shared` holds a number
 * for each warp. */
static __device__ inline uint32_t flags_before(bool flag, uint32_t *shared, uint32_t *all)
{
    const unsigned ballot = __ballot_sync(0xffffffffu, flag);
    uint32_t before = (uint32_t)__popc(ballot & ((1u << lane()) - 1));
    __syncthreads(); /* the last use of shared is over */
    if (lane() == 0)
        shared[threadIdx.x / CUDA_WARP] = (uint32_t)__popc(ballot);
    __syncthreads();
    *all = 0;
    for (unsigned warp = 0; warp < blockDim.x / CUDA_WARP; warp++) {
        before += warp < threadIdx.x / CUDA_WARP ? shared[warp] : 0;
        *all += shared[warp];
    }
    return before;
}

static __host__ __device__ inline bool is_narrow(enum dtype wire)
{
    return wire == DTYPE_BF16 || wire == DTYPE_F16;
}

/* Writes element `at` of the sent values. Returns the part of the value that is not sent. */
static __device__ inline double put_value(void *values, enum dtype wire, int64_t at, float value, float limit)
{
    if (!is_narrow(wire)) {
        ((float *)values)[at] = value;
        return 0;
    }
    const float sent = isfinite(value) ? fminf(fmaxf(value, -limit), limit) : value;
    const uint16_t bits = narrow_encode(sent, wire);
    ((uint16_t *)values)[at] = bits;
    return isfinite(value) ? (double)value - (double)narrow_decode(bits, wire) : 0.0;
}

static __global__ void topk_send_kernel(void *values, enum dtype wire, float limit, int32_t *places,
                                        const float *gradient, float *feedback, struct cuda_pieces pieces,
                                        const struct topk_work *work, double *partial,
                                        const struct step_scalars *scalars)
{
    __shared__ uint32_t shared[CUDA_BLOCK / CUDA_WARP];
    __shared__ double sums[CUDA_BLOCK / CUDA_WARP];
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    const struct cuda_chunk chunk = chunk_of(p.count);
    const struct topk_work *w = &work[blockIdx.y];
    if (scalars->skip || p.kept == 0 || chunk.begin >= chunk.end)
        return;
    const double factor = scalars->clip;
    const uint32_t border = w->border;
    const int64_t equal = w->equal;
    uint32_t above = w->above[blockIdx.x], on = w->on[blockIdx.x];
    double left = 0, whole = 0;
    for (int64_t begin = chunk.begin; begin < chunk.end; begin += blockDim.x) {
        const int64_t i = begin + threadIdx.x;
        const bool there = i < chunk.end;
        const float value = there ? gradient[p.at + i] : 0.0f;
        const uint32_t m = magnitude_of(value);
        uint32_t all_above, all_on;
        const uint32_t above_before = above + flags_before(there && m > border, shared, &all_above);
        const uint32_t on_before = on + flags_before(there && m == border, shared, &all_on);
        const bool sent = there && (m > border || (m == border && on_before < equal));
        double rest = (double)value;
        if (sent) {
            const int64_t at = p.sent + above_before + (on_before < equal ? on_before : equal);
            rest = put_value(values, wire, at, value, limit);
            places[at] = (int32_t)(uint32_t)i;
        }
        whole += (double)value * (double)value;
        left += rest * rest;
        if (there && feedback)
            feedback[p.at + i] = (float)(rest * factor);
        above += all_above;
        on += all_on;
    }
    left = block_sum(left, sums);
    whole = block_sum(whole, sums);
    if (threadIdx.x == 0) {
        double *to = partial + 2 * (CUDA_COMPRESS_CHUNKS * blockIdx.y + blockIdx.x);
        to[0] = left;
        to[1] = whole;
    }
}

/* Under skip zeros are sent. */
static __global__ void topk_clear_kernel(uint32_t *encoded, int64_t words, const struct step_scalars *scalars)
{
    if (!scalars->skip)
        return;
    for (int64_t i = thread_first(); i < words; i += thread_stride())
        encoded[i] = 0;
}

/* The two bytes after an odd number of values of 16 bits. */
static __global__ void topk_pad_kernel(uint16_t *after)
{
    *after = 0;
}

static int encode_batch(void *values, enum dtype wire, int32_t *places, float *gradient, float *feedback,
                        float *dense, const struct cuda_batch *batch, const struct step_scalars *scalars,
                        double *figures, void *work, void *stream, struct muster_error *err)
{
    const dim3 grid(batch->chunks, (unsigned)batch->count), runs(1, (unsigned)batch->count);
    struct topk_work *state = (struct topk_work *)work;
    double *partial = (double *)(state + CUDA_PIECES);
    if (cuda_compress_begin(gradient, feedback, dense, batch, scalars, stream, err))
        return -1;
    for (int above = 31; above > 0;) {
        const int bits = above < TOPK_BITS ? above : TOPK_BITS;
        CUDA_LAUNCH("topk_encode", err, topk_count_kernel, grid, CUDA_BLOCK, 0, stream, gradient,
                    batch->pieces, above, bits, state, scalars);
        CUDA_LAUNCH("topk_encode", err, topk_pick_kernel, runs, CUDA_WARP, 0, stream, batch->pieces, above,
                    bits, state, scalars);
        above -= bits;
    }
    CUDA_LAUNCH("topk_encode", err, topk_border_kernel, grid, CUDA_BLOCK, 0, stream, gradient, batch->pieces,
                state, scalars);
    CUDA_LAUNCH("topk_encode", err, topk_places_kernel, runs, CUDA_WARP, 0, stream, batch->pieces, state,
                scalars);
    CUDA_LAUNCH("topk_encode", err, topk_send_kernel, grid, CUDA_BLOCK, 0, stream, values, wire,
                compress_narrow_limit(wire), places, gradient, feedback, batch->pieces, state, partial,
                scalars);
    return cuda_compress_figures(figures, partial, batch, scalars, stream, err);
}

static int64_t kept_of(const struct compress_piece *pieces, int count)
{
    int64_t kept = 0;
    for (int i = 0; i < count; i++)
        kept += pieces[i].kept;
    return kept;
}

/* Of the values before their places. */
static int64_t values_bytes(int64_t kept, enum dtype wire)
{
    return (kept * (is_narrow(wire) ? 2 : 4) + 3) / 4 * 4;
}

extern "C" size_t cuda_topk_work(void)
{
    return CUDA_PIECES * (sizeof(struct topk_work) + 2 * CUDA_COMPRESS_CHUNKS * sizeof(double));
}

extern "C" int cuda_topk_encode(void *encoded, void *dense, void *gradient, void *feedback,
                                const struct compress_piece *pieces, int count, enum dtype wire,
                                const struct step_scalars *scalars, double *figures, void *work, void *stream,
                                struct muster_error *err)
{
    const int64_t kept = kept_of(pieces, count), before = values_bytes(kept, wire), words = before / 4 + kept;
    const struct cuda_grid grid = cuda_grid_elements(words);
    int32_t *places = (int32_t *)((char *)encoded + before);
    struct cuda_batch batch;
    int64_t sent = 0, dense_before = 0;
    for (int next = 0; next_batch(pieces, count, &next, &sent, &dense_before, &batch);)
        if (batch.chunks && encode_batch(encoded, wire, places, (float *)gradient, (float *)feedback,
                                         (float *)dense, &batch, scalars, figures, work, stream, err))
            return -1;
    if (is_narrow(wire) && kept % 2)
        CUDA_LAUNCH("topk_encode", err, topk_pad_kernel, 1, 1, 0, stream, (uint16_t *)encoded + kept);
    if (kept)
        CUDA_LAUNCH("topk_encode", err, topk_clear_kernel, grid.blocks, grid.threads, 0, stream,
                    (uint32_t *)encoded, words, scalars);
    return 0;
}

/* ---- the sum ---- */

static __global__ void topk_zero_kernel(float *gradient, struct cuda_pieces pieces,
                                        const struct step_scalars *scalars)
{
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    const struct cuda_chunk chunk = chunk_of(p.count);
    if (scalars->skip || p.kept == 0)
        return;
    for (int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x)
        gradient[p.at + i] = 0;
}

/* Adds a replica's elements, whose places are all different. */
static __global__ void topk_add_kernel(float *gradient, const void *values, enum dtype wire,
                                       const int32_t *places, struct cuda_pieces pieces,
                                       const struct step_scalars *scalars)
{
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    const struct cuda_chunk chunk = chunk_of(p.kept);
    if (scalars->skip)
        return;
    for (int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x)
        gradient[p.at + (uint32_t)places[p.sent + i]] +=
            is_narrow(wire) ? narrow_decode(((const uint16_t *)values)[p.sent + i], wire)
                            : ((const float *)values)[p.sent + i];
}

extern "C" int cuda_topk_decode(void *gradient, const void *encoded, const void *dense,
                                const struct compress_piece *pieces, int count, enum dtype wire, int replicas,
                                int64_t stride, const struct step_scalars *scalars, void *stream,
                                struct muster_error *err)
{
    const int64_t before = values_bytes(kept_of(pieces, count), wire);
    struct cuda_batch batch;
    int64_t sent = 0, dense_before = 0;
    for (int next = 0; next_batch(pieces, count, &next, &sent, &dense_before, &batch);) {
        const dim3 grid(batch.chunks, (unsigned)batch.count), adds(batch.kept_chunks, (unsigned)batch.count);
        if (cuda_compress_unpack((float *)gradient, (const float *)dense, &batch, scalars, stream, err))
            return -1;
        if (!adds.x)
            continue;
        CUDA_LAUNCH("topk_decode", err, topk_zero_kernel, grid, CUDA_BLOCK, 0, stream, (float *)gradient,
                    batch.pieces, scalars);
        for (int r = 0; r < replicas; r++) {
            const char *values = (const char *)encoded + r * stride;
            CUDA_LAUNCH("topk_decode", err, topk_add_kernel, adds, CUDA_BLOCK, 0, stream, (float *)gradient,
                        values, wire, (const int32_t *)(values + before), batch.pieces, scalars);
        }
    }
    return 0;
}
