/* loss_scale_dump - the loss scale after each step of many sequences of overflows, for
 * loss_scale_torch_test.py.
 *
 * Reads records from standard input, in this machine's byte order: initial and minimum (f64), window,
 * hysteresis, consecutive and length (i32), then length bytes, 1 for an overflow. Writes length f64 a record:
 * the scale, 0 from the step on that could not be taken. */
#include <stdint.h>
#include <stdio.h>

#include "runtime/train/loss_scale.h"

enum { LENGTH_LIMIT = 4096 };

struct record {
    double initial, minimum;
    int32_t window, hysteresis, consecutive, length;
};

static void play(const struct record *record, const unsigned char *overflows, double *scales)
{
    const struct loss_scale_options options = {.initial = record->initial,
                                               .minimum = record->minimum,
                                               .window = record->window,
                                               .hysteresis = record->hysteresis,
                                               .consecutive = record->consecutive != 0};
    struct loss_scale state;
    bool ended = false;
    loss_scale_begin(&options, &state);
    for (int i = 0; i < record->length; i++) {
        ended = ended || loss_scale_step(&options, overflows[i] != 0, &state, NULL) < 0;
        scales[i] = ended ? 0 : state.scale;
    }
}

int main(void)
{
    static unsigned char overflows[LENGTH_LIMIT];
    static double scales[LENGTH_LIMIT];
    struct record record;
    while (fread(&record, sizeof record, 1, stdin) == 1) {
        size_t length = (size_t)record.length;
        if (length > LENGTH_LIMIT || fread(overflows, 1, length, stdin) != length) {
            (void)fprintf(stderr, "loss_scale_dump: a record is cut short or longer than %d\n", LENGTH_LIMIT);
            return 1;
        }
        play(&record, overflows, scales);
        if (fwrite(scales, sizeof *scales, length, stdout) != length)
            return 1;
    }
    return ferror(stdin) || fflush(stdout) ? 1 : 0;
}
