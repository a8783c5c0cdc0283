/* trainer_batch.c - copies a rank's batch to the plan's memory, micro-batch by micro-batch. If samples have
 * lengths, a micro-batch ends with its longest sample, and its layers compute only these positions. */
#include <string.h>

#include "runtime/train/trainer_state.h"

/* Number of the batch's samples in a micro-batch. */
static int64_t samples_of(const struct trainer *trainer, int micro, int64_t samples)
{
    const int B = trainer->plan.options.shape.B;
    const int64_t here = samples - (int64_t)micro * B;
    return here < 0 ? 0 : here > B ? B : here;
}

/* Positions of the longest sample, 1 at least. */
static int longest(const struct trainer *trainer, const struct batch *batch, int micro, int64_t here)
{
    const struct shape shape = trainer->plan.options.shape;
    int most = 1;
    for (int i = 0; i < trainer->model->input_count && here; i++) {
        const int32_t *lengths = (const int32_t *)batch->input[i] + (int64_t)micro * shape.B;
        for (int64_t b = 0; trainer->model->inputs[i].lengths && b < here; b++)
            most = lengths[b] > most ? lengths[b] : most;
    }
    return most < shape.T ? most : shape.T;
}

/* Writes the first `positions` of each sample's T, one sample after the other. */
static void write_input(const struct trainer *trainer, const struct batch *batch, int input, int micro,
                        int64_t here, int positions)
{
    const struct model *model = trainer->model;
    const struct shape shape = trainer->plan.options.shape;
    const int64_t bytes = batch_input_bytes(model, shape, input), sample = bytes / shape.B;
    const int64_t used = model->inputs[input].positions ? sample / shape.T * positions : sample;
    const char *from = here ? (const char *)batch->input[input] + micro * bytes : NULL;
    char *to = executor_address(&trainer->parts, trainer->plan.staging_batch,
                                micro * batch_bytes(model, shape) + batch_offset(model, shape, input));
    if (from && used == sample)
        memcpy(to, from, (size_t)(sample * here));
    for (int64_t b = 0; from && used < sample && b < here; b++)
        memcpy(to + b * used, from + b * sample, (size_t)used);
    memset(to + used * here, model->inputs[input].absent, (size_t)(bytes - used * here));
}

bool trainer_cuts_batches(const struct trainer *trainer)
{
    return executor_may_be_shorter(trainer->executor);
}

void trainer_write_batches(struct trainer *trainer, const struct batch *batch, int count, int64_t samples,
                           bool whole)
{
    whole = whole || !trainer_cuts_batches(trainer);
    for (int micro = 0; micro < count; micro++) {
        const int64_t here = samples_of(trainer, micro, samples);
        const int positions = whole ? trainer->plan.options.shape.T : longest(trainer, batch, micro, here);
        for (int i = 0; i < trainer->model->input_count; i++)
            write_input(trainer, batch, i, micro, here, positions);
        executor_positions(trainer->executor, micro, positions);
    }
}
