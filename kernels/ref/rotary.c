/* rotary.c - the reference of the rotary position embedding (Su et al. 2021, arXiv 2104.09864) in Hugging
 * Face's order, where element i of a head is paired with element i + size/2. A rotation's gradient is the
 * rotation by the opposite angle. */
#include "kernels/ref/real.h"

#include <math.h>

static void turn_into(VALUE *out, double d, int beta)
{
    STORE(*out, d + (beta ? LOAD(*out) : 0.0));
}

void REF(rotary)(void *out_, const void *in_, const struct rotary *rotary, int B, int T, int NH, int HS,
                 int backward, int beta, void *stream)
{
    VALUE *out = out_;
    const VALUE *in = in_;
    (void)stream;
    const int size = rotary_size(rotary, HS);
    const double amplitude = rotary_amplitude(rotary);
    for (int64_t row = 0; row < (int64_t)B * T; row++) {
        const int64_t position = rotary->positions ? rotary->positions[row] : rotary->first + row % T;
        for (int h = 0; h < NH; h++) {
            for (int i = size; i < HS; i++) {
                size_t at = ((size_t)row * NH + h) * HS + i;
                turn_into(&out[at], LOAD(in[at]), beta);
            }
            for (int i = 0; i < size / 2; i++) {
                double angle = (double)position * rotary_frequency(rotary, HS, rotary->first + T, i);
                double c = amplitude * cos(angle), s = amplitude * (backward ? -sin(angle) : sin(angle));
                size_t first = ((size_t)row * NH + h) * HS + i, second = first + (size_t)size / 2;
                double x = LOAD(in[first]), y = LOAD(in[second]);
                turn_into(&out[first], x * c - y * s, beta);
                turn_into(&out[second], y * c + x * s, beta);
            }
        }
    }
}
