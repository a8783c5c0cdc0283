/* average.c - the moving average of parameters in one pass, 12 bytes a parameter (rules:
 * kernels/ref/average.c). The weight is formed in double and rounded once. */
#include <string.h>

#include "kernels/cpu/cpu.h"

/* keep * average + (1 - keep) * param, begun at the nearer end. */
static void average_chunk(float *restrict average, const float *restrict param, int64_t n, float weight,
                          float keep)
{
    if (weight < 0.5f)
        for (int64_t i = 0; i < n; i++)
            average[i] = average[i] + weight * (param[i] - average[i]);
    else
        for (int64_t i = 0; i < n; i++)
            average[i] = param[i] - (param[i] - average[i]) * keep;
}

void CPU(average)(void *average_, const void *param_, double decay, int64_t n,
                  const struct step_scalars *scalars, void *stream)
{
    float *average = average_;
    const float *param = param_;
    const float weight = (float)(1.0 - decay), keep = 1.0f - weight;
    (void)stream;
    if (scalars->skip)
        return;
    CPU_PARALLEL_FOR(n >= CPU_PARALLEL_MIN)
    for (int64_t chunk = 0; chunk < cpu_chunks(n); chunk++) {
        const int64_t first = chunk * CPU_CHUNK, count = cpu_chunk_size(n, chunk);
        if (scalars->step == 1)
            memcpy(average + first, param + first, (size_t)count * sizeof *average);
        else
            average_chunk(average + first, param + first, count, weight, keep);
    }
}
