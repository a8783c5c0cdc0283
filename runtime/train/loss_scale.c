/* loss_scale.c - see loss_scale.h. */
#include "runtime/train/loss_scale.h"

#include <assert.h>

#include "proto/base/error.h"

static const double factor = 2;

struct loss_scale_options loss_scale_defaults(void)
{
    return (struct loss_scale_options){.initial = 65536, .minimum = 1, .window = 1000, .hysteresis = 2};
}

void loss_scale_begin(const struct loss_scale_options *options, struct loss_scale *state)
{
    assert(options->fixed > 0 || (options->minimum > 0 && options->window > 0 && options->hysteresis > 0));
    *state = (struct loss_scale){.scale = options->fixed > 0 ? options->fixed : options->initial,
                                 .last_overflow = -1,
                                 .left = options->hysteresis};
}

static int shrink(const struct loss_scale_options *options, struct loss_scale *state,
                  struct muster_error *err)
{
    if (state->scale == options->minimum)
        return error_set(
            err, MUSTER_E_STATE,
            "a gradient is not finite in step %lld although the loss scale is at its minimum, %g: "
            "lower the learning rate, or train in bf16",
            (long long)state->step + 1, options->minimum);
    state->scale = state->scale / factor > options->minimum ? state->scale / factor : options->minimum;
    return 0;
}

/* Whether the steps since the last overflow are a whole number of windows. */
static bool is_stable(const struct loss_scale_options *options, const struct loss_scale *state)
{
    int64_t clean = state->step - state->last_overflow - 1; /* before this one */
    return clean > 0 && clean % options->window == 0;
}

int loss_scale_step(const struct loss_scale_options *options, bool overflow, struct loss_scale *state,
                    struct muster_error *err)
{
    const bool dynamic = !(options->fixed > 0);
    if (dynamic && overflow) {
        if (state->left > 1)
            state->left--;
        else if (shrink(options, state, err) < 0)
            return -1;
        state->last_overflow = state->step;
    } else if (dynamic) {
        const bool stable = is_stable(options, state);
        if (stable)
            state->scale *= factor;
        if (stable || options->consecutive)
            state->left = options->hysteresis;
    }
    state->step++;
    return 0;
}
