/* too_new.c - a program of a build for a newer processor: it uses what TOO_NEW names before main and in it,
 * unless it ends first. With TOO_NEW_GUARDED it has what every program of ours has (proto/processor/start.c).
 */
#include <immintrin.h>
#include <stdio.h>

static volatile double from[4] = {1, 2, 3, 4};

/* A sum that the compiler has to make of wide vectors: the instructions are named. */
static double too_new_sum(void)
{
    double sum[8] = {0};
#ifdef __AVX512F__
    _mm512_storeu_pd(sum, _mm512_set1_pd(from[0]));
#else
    _mm256_storeu_pd(sum, _mm256_permute4x64_pd(_mm256_set1_pd(from[0]), 1)); /* AVX2 */
#endif
    return sum[0];
}

static void __attribute__((constructor)) too_new_start(void)
{
    from[1] = too_new_sum();
}

int main(void)
{
    return printf("ran %g\n", too_new_sum()) < 0;
}
