/* rotary.c - the frequencies of the rotary position embedding, the same for every table. */
#include "kernels/kernels.h"

#include <math.h>

double rotary_frequency(const struct rotary *rotary, int HS, int i)
{
    static const double two_pi = 6.28318530717958647693;
    double plain = pow(rotary->theta, -2.0 * i / HS);
    if (rotary->kind == ROTARY_LINEAR)
        return plain / rotary->factor;
    if (rotary->kind != ROTARY_LLAMA3)
        return plain;
    /* How often the pair turns in the context that the model was first trained with. */
    double turns = (double)rotary->original * plain / two_pi;
    if (turns < rotary->low)
        return plain / rotary->factor;
    if (turns > rotary->high)
        return plain;
    double smooth = (turns - rotary->low) / (rotary->high - rotary->low);
    return (1.0 - smooth) * plain / rotary->factor + smooth * plain;
}
