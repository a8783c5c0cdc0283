/* cast.c - the conversions that training uses every step, float to bf16 and f16 and back, as integer
 * operations that vectorise; equal types are copied and every other pair goes to the reference. */
#include "kernels/cpu/cast.h"
#include "kernels/cpu/cpu.h"

static void cast_chunk(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t n)
{
    if (dtype_to == dtype_from)
        memcpy(to, from, (size_t)n * (size_t)dtype_size(dtype_to));
    else if (dtype_from == DTYPE_F32 && (dtype_to == DTYPE_BF16 || dtype_to == DTYPE_F16))
        cpu_narrow(to, dtype_to, from, n);
    else if (dtype_to == DTYPE_F32 && (dtype_from == DTYPE_BF16 || dtype_from == DTYPE_F16))
        cpu_widen(to, from, dtype_from, 0, n);
    else
        kernels_ref_f32()->cast(to, dtype_to, from, dtype_from, n, NULL);
}

void CPU(cast)(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t n,
               void *stream)
{
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t first = chunk * CPU_CHUNK;
        cast_chunk((char *)to + first * dtype_size(dtype_to), dtype_to,
                   (const char *)from + first * dtype_size(dtype_from), dtype_from, cpu_chunk_size(n, chunk));
    }
}

void CPU(widen)(void *out, const void *in, enum dtype dtype_in, int beta, int64_t n, void *stream)
{
    (void)stream;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        int64_t first = chunk * CPU_CHUNK;
        cpu_widen((float *)out + first, (const uint16_t *)in + first, dtype_in, beta,
                  cpu_chunk_size(n, chunk));
    }
}
