/* rotary.c - the frequencies of the rotary position embedding, the same for every table. */
#include "kernels/kernels.h"

#include <math.h>

static const double two_pi = 6.28318530717958647693;

/* How often the pair turns in the context that the model was first trained with decides. */
static double llama3(const struct rotary *r, double plain)
{
    double turns = (double)r->original * plain / two_pi;
    if (turns < r->low)
        return plain / r->factor;
    if (turns > r->high)
        return plain;
    double smooth = (turns - r->low) / (r->high - r->low);
    return (1.0 - smooth) * plain / r->factor + smooth * plain;
}

/* The pair, as a real number, that turns `turns` times within `original`. */
static double yarn_pair(const struct rotary *r, int size, double turns)
{
    return size * log(r->original / (turns * two_pi)) / (2 * log(r->theta));
}

static double yarn(const struct rotary *r, int size, double plain, int i)
{
    double low = yarn_pair(r, size, r->high), high = yarn_pair(r, size, r->low);
    if (!r->exact)
        low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, size - 1);
    if (low == high)
        high += 0.001;
    double slow = fmin(fmax((i - low) / (high - low), 0), 1);
    return plain / r->factor * slow + plain * (1 - slow);
}

double rotary_frequency(const struct rotary *r, int HS, int positions, int i)
{
    const int size = rotary_size(r, HS);
    double theta = r->theta;
    if (r->kind == ROTARY_DYNAMIC && positions > r->original && size > 2)
        theta *= pow(r->factor * positions / r->original - (r->factor - 1), size / (size - 2.0));
    const double plain = pow(theta, -2.0 * i / size);
    switch (r->kind) {
    case ROTARY_LINEAR:
        return plain / r->factor;
    case ROTARY_LLAMA3:
        return llama3(r, plain);
    case ROTARY_YARN:
        return yarn(r, size, plain, i);
    case ROTARY_LISTED:
        return plain / r->lists[(positions > r->original ? size / 2 : 0) + i];
    case ROTARY_PLAIN:
    case ROTARY_DYNAMIC:
    case ROTARY_KINDS:
        break;
    }
    return plain;
}
