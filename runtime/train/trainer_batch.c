/* trainer_batch.c - a step's exchange with the plan's pinned memory: its numbers, its batches, and its
 * results. Batches are copied micro-batch by micro-batch. If samples have lengths, a micro-batch ends with
 * its longest sample, and its layers compute only these positions. */
#include <math.h>
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

/* ---- numbers of a step ---- */

/* Requests are part of one number in the loss's sum, plan_loss.stops. A rank adds 1 to request a stop. To
 * request a checkpoint it adds more than the sum of all ranks' ones can be. */
#define ASKS_CHECKPOINT 0x1p30

bool trainer_gives_loss(const struct trainer *trainer)
{
    const struct plan_options *o = &trainer->plan.options;
    return mesh_place_of(o->mesh, o->rank).at[SIDE_PIPELINE] == o->mesh.side[SIDE_PIPELINE] - 1;
}

void trainer_write_input(struct trainer *trainer, const struct trainer_step_values *values)
{
    double t = (double)(trainer->updates + 1);
    const float scale = trainer->scales ? (float)trainer->scale.scale : 0.0F;
    struct plan_input input = {
        .loss = {.stops = values->stop + (values->checkpoint ? ASKS_CHECKPOINT : 0),
                 /* all stages of a line have the same samples: the last stage counts them */
                 .next_targets = trainer_gives_loss(trainer) ? values->next_targets : 0}};
    input.scalars = (struct step_scalars){
        .learning_rate = {values->learning_rate, values->learning_rate},
        .weight_decay = {values->weight_decay, 0},
        .beta1 = values->beta1,
        .beta2 = values->beta2,
        .epsilon = values->epsilon,
        .bias_correction1 = 1.0 - pow(values->beta1, t),
        .bias_correction2 = 1.0 - pow(values->beta2, t),
        .inverse_tokens = (scale > 0 ? (double)scale : 1.0) / (double)values->global_tokens,
        .loss_scale = scale,
        .clip_norm = values->clip_norm,
        .clip = 1.0,
        .step = (uint64_t)trainer->updates + 1,
        .first_sample = values->first_sample,
        .seed = trainer->seed,
        .samples =
            (int64_t)trainer->plan.options.micro_batches * trainer->plan.options.shape.B - values->missing,
    };
    memcpy(executor_address(&trainer->parts, trainer->plan.staging_input, 0), &input, sizeof input);
}

static void read_compression(const struct trainer *trainer, const struct plan_figures *figures,
                             struct trainer_stats *stats)
{
    if (trainer->plan.options.compression.kind == COMPRESSION_NONE)
        return;
    stats->wire_bytes = trainer_compresses(trainer) ? trainer->wire.compressed : trainer->wire.dense;
    stats->compression_error = figures->compressed > 0 ? sqrt(figures->left_out / figures->compressed) : 0;
}

void trainer_read_stats(struct trainer *trainer, const struct trainer_step_values *values,
                        struct trainer_stats *stats)
{
    struct plan_result result;
    memcpy(&result, executor_address(&trainer->parts, trainer->plan.staging_result, 0), sizeof result);
    stats->loss = result.loss.total / (double)values->global_tokens;
    stats->correct = result.loss.correct;
    const bool normed = trainer->plan.options.clip || trainer->plan.options.check;
    stats->loss_scale = trainer->scales ? trainer->scale.scale : 0;
    stats->grad_norm =
        normed ? sqrt(result.scalars.norm_squared) / (trainer->scales ? stats->loss_scale : 1) : 0;
    stats->skipped = result.scalars.skip != 0;
    stats->checkpoint = result.loss.stops >= ASKS_CHECKPOINT;
    stats->stop = fmod(result.loss.stops, ASKS_CHECKPOINT) > 0;
    stats->next_targets = result.loss.next_targets;
    read_compression(trainer, &result.figures, stats);
    memcpy(trainer->votes, result.loss.votes, sizeof trainer->votes);
    trainer->voted = trainer->guard.vote != NULL;
}
