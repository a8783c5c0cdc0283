/* padding.c - see padding.h. */
#include "trainer/labelled/padding.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct padding padding_count(const struct labelled *set, int64_t step, int64_t micro_batch)
{
    struct padding found = {.samples = smaller(labelled_samples(set), PADDING_SAMPLES)};
    for (int64_t first = 0; first < found.samples; first += step) {
        const int64_t end = smaller(first + step, found.samples);
        for (int64_t from = first; from < end; from += micro_batch) {
            int longest = 1, drawn = 1; /* as the trainer, which computes one position at least */
            for (int64_t g = from; g < smaller(from + micro_batch, end); g++) {
                const int length = labelled_length(set, (uint64_t)g, true),
                          other = labelled_length(set, (uint64_t)g, false);
                found.tokens += length;
                longest = length > longest ? length : longest;
                drawn = other > drawn ? other : drawn;
            }
            found.computed += micro_batch * longest;
            found.drawn += micro_batch * drawn;
        }
    }
    return found;
}
