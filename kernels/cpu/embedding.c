/* embedding.c - token plus position embedding, or token embedding alone. Backward gives every thread a strip
 * of columns and all rows, so that two tokens that share a row of dwte never meet and the order of the sums
 * is the reference's. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/value.h"

#include <string.h>

enum { EMBEDDING_STRIP = 64 };

void CPU(embedding_forward)(void *out_, const int32_t *tokens, const void *wte_, const void *wpe_, int B,
                            int T, int C, void *stream)
{
    VALUE *out = out_;
    const WEIGHT *wte = wte_, *wpe = wpe_;
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)B * T * C >= CPU_PARALLEL_MIN)
    for (int row = 0; row < B * T; row++) {
        const WEIGHT *restrict token = wte + (size_t)tokens[row] * C;
        VALUE *restrict to = out + (size_t)row * C;
        if (!wpe) {
            memcpy(to, token, (size_t)C * sizeof *to);
            continue;
        }
        const WEIGHT *restrict position = wpe + (size_t)(row % T) * C;
        for (int c = 0; c < C; c++)
            STORE(to[c], LOAD(token[c]) + LOAD(position[c]));
    }
}

/* to + row_of(row)*C += rows of from, over one strip of columns. tokens NULL: row_of is the position. */
static void embedding_backward_strip(float *to, const VALUE *dout, const int32_t *tokens, int B, int T, int C,
                                     int width)
{
    for (int row = 0; row < B * T; row++) {
        const VALUE *restrict from = dout + (size_t)row * C;
        float *restrict into = to + (size_t)(tokens ? tokens[row] : row % T) * C;
        for (int i = 0; i < width; i++)
            into[i] += LOAD(from[i]);
    }
}

void CPU(embedding_backward)(void *dwte_, void *dwpe_, const void *dout_, const int32_t *tokens, int B, int T,
                             int C, int V, int maxT, int beta, void *stream)
{
    float *dwte = dwte_, *dwpe = dwpe_;
    const VALUE *dout = dout_;
    (void)stream;
    if (!beta && dwte) {
        CPU_PARALLEL_FOR((int64_t)V * C >= CPU_PARALLEL_MIN)
        for (int v = 0; v < V; v++)
            memset(dwte + (size_t)v * C, 0, (size_t)C * sizeof(float));
    }
    if (!beta && dwpe)
        memset(dwpe, 0, (size_t)maxT * C * sizeof(float));
    CPU_PARALLEL_FOR((int64_t)B * T * C >= CPU_PARALLEL_MIN)
    for (int strip = 0; strip < C; strip += EMBEDDING_STRIP) {
        int width = C - strip < EMBEDDING_STRIP ? C - strip : EMBEDDING_STRIP;
        if (dwte)
            embedding_backward_strip(dwte + strip, dout + strip, tokens, B, T, C, width);
        if (dwpe)
            embedding_backward_strip(dwpe + strip, dout + strip, NULL, B, T, C, width);
    }
}

/* One strip of columns, of the elements that lie in the part. */
static void rows_add_strip(float *to, int64_t first, int64_t count, int64_t at, const VALUE *rows,
                           const int32_t *index, int N, int T, int C, int strip)
{
    const int width = C - strip < EMBEDDING_STRIP ? C - strip : EMBEDDING_STRIP;
    for (int row = 0; row < N; row++) {
        const int64_t begin = at + (int64_t)(index ? index[row] : row % T) * C + strip - first;
        const int64_t low = begin < 0 ? -begin : 0, high = begin + width > count ? count - begin : width;
        if (low >= high)
            continue;
        const VALUE *restrict from = rows + (size_t)row * C + strip + low;
        float *restrict into = to + begin + low;
        for (int64_t i = 0; i < high - low; i++)
            into[i] += LOAD(from[i]);
    }
}

void CPU(rows_add)(void *to, int64_t first, int64_t count, int64_t at, const void *rows, const int32_t *index,
                   int N, int T, int C, void *stream)
{
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)N * C >= CPU_PARALLEL_MIN)
    for (int strip = 0; strip < C; strip += EMBEDDING_STRIP)
        rows_add_strip(to, first, count, at, rows, index, N, T, C, strip);
}
