/* small_blas.c - a stand-in for libopenblas.so.0 in a pack that has to be small: the functions that muster
 * calls, in plain loops. Its products are right and slow. */
#include <stdint.h>

enum { ROW_MAJOR = 101, TRANSPOSED = 112 };
enum { OPENMP = 2 }; /* openblas_get_parallel */

char *openblas_get_config(void);
char *openblas_get_corename(void);
int openblas_get_parallel(void);
void openblas_set_num_threads(int threads);
void cblas_sgemm(int order, int transposed_a, int transposed_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

char *openblas_get_config(void)
{
    static char text[] = "OpenBLAS 0.3.21 USE_OPENMP (a small stand-in)";
    return text;
}

char *openblas_get_corename(void)
{
    static char text[] = "plain";
    return text;
}

int openblas_get_parallel(void)
{
    return OPENMP;
}

void openblas_set_num_threads(int threads)
{
    (void)threads; /* OpenMP's own number */
}

/* Column-major products are row-major products of the transposes, in the other order. Every row of C is
 * formed by one thread in one order of sums. */
void cblas_sgemm(int order, int transposed_a, int transposed_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    if (order != ROW_MAJOR) {
        cblas_sgemm(ROW_MAJOR, transposed_b, transposed_a, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc);
        return;
    }
#pragma omp parallel for
    for (int i = 0; i < m; i++) {
        float *row = c + (int64_t)i * ldc;
        for (int j = 0; j < n; j++)
            row[j] = beta == 0 ? 0 : beta * row[j];
        if (transposed_b == TRANSPOSED) {
            for (int j = 0; j < n; j++) {
                float sum = 0;
                for (int l = 0; l < k; l++)
                    sum += (transposed_a == TRANSPOSED ? a[(int64_t)l * lda + i] : a[(int64_t)i * lda + l]) *
                           b[(int64_t)j * ldb + l];
                row[j] += alpha * sum;
            }
            continue;
        }
        for (int l = 0; l < k; l++) {
            const float factor =
                alpha * (transposed_a == TRANSPOSED ? a[(int64_t)l * lda + i] : a[(int64_t)i * lda + l]);
            for (int j = 0; j < n; j++)
                row[j] += factor * b[(int64_t)l * ldb + j];
        }
    }
}
