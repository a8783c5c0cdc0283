/* run_evaluate.c - evaluations of a run on the samples that are held out: when, over which samples of each
 * rank, and what follows. See run.h.
 *
 * Blocks of a micro-batch's samples are dealt to the ranks in turn, so that a block is the same in every
 * world and only the order of the last sum depends on it. */
#include <math.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/run/run.h"

enum { ROWS_AT_ONCE = 64 }; /* samples in memory, or one micro-batch's */

int run_evaluate_open(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    struct run_evaluation *e = &run->evaluation;
    const struct data *texts = run->data ? data_validation(run->data) : NULL;
    const struct pictures *pictures = run->pictures ? pictures_validation(run->pictures) : NULL;
    const struct labelled *labelled = run->labelled ? labelled_validation(run->labelled) : NULL;
    const bool held = texts || pictures || labelled;
    if (!held && (c->evaluate_every || c->evaluate_at_start))
        return error_set(err, MUSTER_E_INVALID,
                         "%s is set, and no samples are held out to evaluate: set data.validation_share or "
                         "data.validation_path",
                         c->evaluate_every ? "training.evaluate_every" : "training.evaluate_at_start");
    if (!held)
        return 0;
    e->source = texts      ? batch_source_texts(texts, (int)c->sequence_length)
                : pictures ? batch_source_pictures(pictures)
                           : batch_source_labelled(labelled, (int)c->sequence_length);
    const int64_t most = e->source.samples, wanted = c->evaluate_samples;
    e->samples = wanted && wanted < most ? wanted : most;
    e->passes_at_once = c->micro_batch < ROWS_AT_ONCE ? ROWS_AT_ONCE / c->micro_batch : 1;
    const size_t samples = (size_t)(e->passes_at_once * c->micro_batch);
    return batch_source_reserve(&e->source, samples, e->arrays)
               ? 0
               : error_set(err, MUSTER_E_NOMEM, "no memory to evaluate %zu samples at once", samples);
}

void run_evaluate_close(struct run *run)
{
    for (int i = 0; i < BATCH_SOURCE_ARRAYS; i++)
        mem_free(run->evaluation.arrays[i]);
    mem_free(run->evaluation.classes);
    run->evaluation = (struct run_evaluation){0};
}

static bool is_due(const struct run *run, int64_t step)
{
    const struct train_config *c = &run->config;
    const int64_t here = step - run->stages.first; /* a stage evaluates as a run of its own would */
    if (!run->evaluation.samples || muster_trainer_state_now(run->trainer).evaluated_step == step)
        return false;
    return (here == 0 && c->evaluate_at_start) || (here == c->steps && c->evaluate_at_end) ||
           (here && c->evaluate_every && here % c->evaluate_every == 0);
}

/* This rank's samples of so many passes from `pass` on; -1. */
static int64_t read_rows(struct run *run, int64_t pass, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const struct run_evaluation *e = &run->evaluation;
    const int64_t B = c->micro_batch;
    int64_t rows = 0;
    for (int64_t p = pass; p < pass + e->passes_at_once; p++) {
        const int64_t block = p * run->world_size + run->rank;
        for (int64_t sample = block * B; sample < (block + 1) * B && sample < e->samples; sample++, rows++)
            if (batch_source_read(&e->source, (uint64_t)sample, e->arrays, rows, err) < 0)
                return -1;
    }
    return rows;
}

/* Sums over all samples and ranks: of losses, of targets that count. */
static int sum_all(struct run *run, double sums[2], struct muster_error *err)
{
    const struct run_evaluation *e = &run->evaluation;
    const int64_t at_once = e->passes_at_once * run->config.micro_batch * run->world_size;
    sums[0] = sums[1] = 0;
    if (run_classes_begin(run, err) < 0)
        return -1;
    for (int64_t first = 0, pass = 0; first < e->samples; first += at_once, pass += e->passes_at_once) {
        struct muster_error unread = {0};
        double part[2];
        const int64_t rows = read_rows(run, pass, &unread); /* -1 is an error on every rank */
        const void *arrays[BATCH_SOURCE_ARRAYS];
        for (int i = 0; i < BATCH_SOURCE_ARRAYS; i++)
            arrays[i] = e->arrays[i];
        if (muster_trainer_evaluate(run->trainer, arrays, rows, part, err) < 0) {
            if (unread.code)
                *err = unread;
            return -1;
        }
        sums[0] += part[0];
        sums[1] += part[1];
        if (run_classes_add(run, err) < 0)
            return -1;
    }
    run_classes_end(run);
    return sums[1] > 0 ? 0 : error_set(err, MUSTER_E_INVALID, "no target of the samples held out counts");
}

int run_evaluate_now(struct run *run, struct muster_error *err)
{
    const bool averaged = run->config.ema_evaluate;
    struct run_evaluation *e = &run->evaluation;
    const struct instant start = clock_now(NULL);
    double sums[2];
    if ((averaged && muster_trainer_average(run->trainer, 1, err) < 0) || sum_all(run, sums, err) < 0 ||
        (averaged && muster_trainer_average(run->trainer, 0, err) < 0))
        return -1;
    e->loss = sums[0] / sums[1];
    e->counted = (int64_t)sums[1];
    e->ns = instant_diff_ns(clock_now(NULL), start);
    return 0;
}

static int evaluate(struct run *run, struct muster_error *err)
{
    struct run_evaluation *e = &run->evaluation;
    if (run_evaluate_now(run, err) < 0)
        return -1;
    const int judged = muster_trainer_judge(run->trainer, e->loss, err);
    e->best = judged > 0 && judged & MUSTER_JUDGED_BEST;
    e->lowers = judged > 0 && judged & MUSTER_JUDGED_LOWER;
    return judged < 0 ? -1 : 0;
}

int run_evaluate(struct run *run, int64_t step, bool *keep, struct muster_error *err)
{
    *keep = false;
    if (run->cut_short || !is_due(run, step))
        return 0;
    if (muster_heartbeat(-1, err) < 0) /* it takes longer than a step */
        return -1;
    run_show_line_end(run);
    if (evaluate(run, err) < 0)
        return error_wrap(err, "evaluation after step %lld", (long long)step);
    *keep = run->evaluation.best && run->config.keep_best && step > run->stages.first;
    run_show_evaluation(run, step);
    run_log_evaluation(run, step);
    return 0;
}

bool run_stops_early(const struct run *run)
{
    return muster_trainer_state_now(run->trainer).stops_early;
}
