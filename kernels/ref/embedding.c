/* embedding.c - the reference of token plus learned position embedding (GPT-2, Radford et al. 2019) or token
 * embedding alone.
 *
 * Several tokens of a batch share a row of wte: its gradient is summed in the order of (b, t). */
#include "kernels/ref/real.h"

void REF(embedding_forward)(void *out_, const int32_t *tokens, const void *wte_, const void *wpe_, int B,
                            int T, int C, void *stream)
{
    VALUE *out = out_;
    const WEIGHT *wte = wte_, *wpe = wpe_;
    (void)stream;
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            size_t row = (size_t)b * T + t;
            for (int c = 0; c < C; c++)
                STORE(out[row * C + c],
                      LOAD(wte[(size_t)tokens[row] * C + c]) + (wpe ? LOAD(wpe[(size_t)t * C + c]) : 0.0));
        }
}

static void add_to(GRADIENT *sum, const VALUE *value)
{
    STORE(*sum, LOAD(*sum) + LOAD(*value));
}

void REF(embedding_backward)(void *dwte_, void *dwpe_, const void *dout_, const int32_t *tokens, int B, int T,
                             int C, int V, int maxT, int beta, void *stream)
{
    GRADIENT *dwte = dwte_, *dwpe = dwpe_;
    const VALUE *dout = dout_;
    (void)stream;
    if (!beta) {
        for (size_t i = 0; dwte && i < (size_t)V * C; i++)
            STORE(dwte[i], 0.0);
        for (size_t i = 0; dwpe && i < (size_t)maxT * C; i++)
            STORE(dwpe[i], 0.0);
    }
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            size_t row = (size_t)b * T + t;
            for (int c = 0; c < C; c++) {
                if (dwte)
                    add_to(&dwte[(size_t)tokens[row] * C + c], &dout[row * C + c]);
                if (dwpe)
                    add_to(&dwpe[(size_t)t * C + c], &dout[row * C + c]);
            }
        }
}

void REF(rows_add)(void *to_, int64_t first, int64_t count, int64_t at, const void *rows_,
                   const int32_t *index, int N, int T, int C, void *stream)
{
    GRADIENT *to = to_;
    const VALUE *rows = rows_;
    (void)stream;
    for (int64_t r = 0; r < N; r++)
        for (int64_t c = 0; c < C; c++) {
            int64_t element = at + (index ? index[r] : r % T) * C + c;
            if (element >= first && element < first + count)
                add_to(&to[element - first], &rows[r * C + c]);
        }
}
