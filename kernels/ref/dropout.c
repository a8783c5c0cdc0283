/* dropout.c - the reference of dropout (Srivastava et al. 2014) with a mask that is a function of its place:
 * kernels/dropout_place.h. */
#include "kernels/dropout_place.h"
#include "kernels/ref/real.h"

static int is_kept(const struct dropout_place *place, int64_t element)
{
    uint32_t block = (uint32_t)(element / DROPOUT_GROUP * DROPOUT_LANES + element % DROPOUT_LANES), word[4];
    const uint32_t counter[4] = {block, place->layer, place->sample[0], place->sample[1]};
    philox4x32_10(counter, place->key, word);
    return word[element / DROPOUT_LANES % 4] >= place->threshold;
}

void REF(dropout)(void *out_, const void *in_, int64_t rows, int width, int rows_per_sample, int64_t sample,
                  uint32_t layer, double p, int beta, const struct step_scalars *scalars, void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    (void)stream;
    for (int64_t row = 0; row < rows; row++) {
        uint64_t index = scalars->first_sample + (uint64_t)sample + (uint64_t)(row / rows_per_sample);
        struct dropout_place place = dropout_place(scalars->seed, index, layer, p);
        for (int c = 0; c < width; c++) {
            int64_t i = row * width + c;
            double kept = is_kept(&place, row % rows_per_sample * width + c) ? place.factor : 0.0;
            double d = kept == 0.0 ? 0.0 : LOAD(in[i]) * kept;
            STORE(out[i], d + (beta ? LOAD(out[i]) : 0.0));
        }
    }
}
