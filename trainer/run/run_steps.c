/* run_steps.c - the loop over optimizer steps: batch, step, requests, evaluation, checkpoint. See run.h. */
#include <math.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "trainer/run/checkpoints.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/inputs.h"
#include "trainer/run/observers.h"
#include "trainer/run/stop.h"

enum { ROLL_BACKS = 3 };      /* to the same checkpoint */
enum { SKIPS_IN_A_ROW = 20 }; /* steps that change nothing; a dynamic loss scale has its own end */

/* Steps whose gradients were not finite. */
struct nonfinite {
    int skipped;          /* steps in a row */
    int64_t went_back_to; /* step of the checkpoint; 0 and times_back 0: never */
    int times_back;       /* to that checkpoint */
};

/* After a step whose gradients were not checked before the optimizer used them. */
static int nonfinite_error(struct run *run, int64_t step, double loss, struct muster_error *err)
{
    int32_t param, rank;
    if (muster_trainer_nonfinite(run->trainer, &param, &rank, err) < 0)
        return -1;
    return error_set(err, MUSTER_E_STATE,
                     "step %lld: the loss is %f and the gradient of %s is not finite (rank %d has it); lower "
                     "training.learning_rate (%g), or set training.on_nonfinite: skip",
                     (long long)step + 1, loss, run_param_name(run, param), rank, run->config.learning_rate);
}

static void print_skipped(const struct run *run, int64_t step, const struct muster_result *result)
{
    if (run->rank)
        return;
    fprintf(
        stderr,
        "muster-train: warning: step %lld: the gradient of %s is not finite (rank %d has it); the step was "
        "skipped",
        (long long)step + 1, run_param_name(run, result->nonfinite), result->nonfinite_rank);
    if (result->loss_scale > 0)
        fprintf(stderr, ", at loss scale %g", result->loss_scale);
    fputs("\n", stderr);
}

/* The result is the same on every rank. */
static int check_result(struct run *run, struct nonfinite *nonfinite, int64_t step,
                        const struct muster_result *result, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    nonfinite->skipped = result->skipped ? nonfinite->skipped + 1 : 0;
    if (result->skipped)
        print_skipped(run, step, result);
    if (nonfinite->skipped == SKIPS_IN_A_ROW && !(result->loss_scale > 0))
        return error_set(err, MUSTER_E_STATE,
                         "%d steps in a row, up to step %lld, were skipped: the gradient of %s is not "
                         "finite, and nothing changes any more; lower training.learning_rate (%g)",
                         SKIPS_IN_A_ROW, (long long)step + 1, run_param_name(run, result->nonfinite),
                         c->learning_rate);
    if (!isfinite(result->loss) && c->clip_norm == 0 && !train_config_checks(c))
        return nonfinite_error(run, step, result->loss, err);
    return 0;
}

/* The batch of a step, and the step. */
static int take_step(struct run *run, struct run_step *record, struct muster_error *err)
{
    struct step_batch batch;
    int64_t waited_ns;
    if (inputs_take(run->inputs, run_state(run).taken, &batch, &waited_ns, err) < 0)
        return -1;
    record->batch = &batch;
    const double next_targets = batch.targets_next < 0 ? NAN : (double)batch.targets_next;
    struct muster_result *r = &record->result;
    if (observers_begin(run, record, err) < 0 ||
        muster_trainer_set(run->trainer, "stop", stop_is_requested(run), err) < 0 ||
        muster_trainer_set(run->trainer, "next_targets", next_targets, err) < 0 ||
        checkpoints_ask(run, err) < 0 ||
        muster_trainer_train(run->trainer, batch.arrays, batch.samples, r, err) < 0)
        return -1;
    record->batch = NULL;
    record->figures = (struct progress_step){.loss = r->loss,
                                             .learning_rate = r->learning_rate,
                                             .grad_norm = r->grad_norm,
                                             .step_ns = r->step_ns,
                                             .comm_ns = r->comm_ns,
                                             .exposed_ns = r->exposed_ns,
                                             .wire_bytes = r->wire_bytes,
                                             .compression_error = r->compression_error,
                                             .data_wait_ns = waited_ns};
    return 0;
}

/* After a step whose gradient was not finite: goes back to the last checkpoint, if the settings want that and
 * there is one. *to: its step; -1: training goes on after this step. */
static int go_back(struct run *run, struct nonfinite *nonfinite, int64_t step,
                   const struct muster_result *result, int64_t *to, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const bool dynamic = result->loss_scale > 0 && !(c->loss_scale > 0);
    *to = -1;
    if (!result->skipped || dynamic || c->on_nonfinite != TRAIN_NONFINITE_ROLL_BACK)
        return 0;
    if (muster_heartbeat(-1, err) < 0) /* it takes longer than a step */
        return -1;
    const int64_t before = nonfinite->went_back_to;
    if (checkpoints_go_back(run, to, err) < 0)
        return error_wrap(err, "going back from step %lld", (long long)step + 1);
    if (*to < 0)
        return 0;
    nonfinite->times_back = *to == before ? nonfinite->times_back + 1 : 1;
    nonfinite->went_back_to = *to;
    nonfinite->skipped = 0;
    progress_go_back(&run->progress, *to);
    if (nonfinite->times_back <= ROLL_BACKS)
        return 0;
    (void)muster_world_barrier(run->world, NULL); /* rank 0 has printed it before another rank ends the job */
    return error_set(
        err, MUSTER_E_STATE,
        "after going back to the checkpoint of step %lld %d times, each time on with other samples, "
        "the gradient of %s is not finite again (step %lld); lower training.learning_rate (%g), "
        "or begin from an earlier checkpoint (training.resume)",
        (long long)*to, ROLL_BACKS, run_param_name(run, result->nonfinite), (long long)step + 1,
        c->learning_rate);
}

/* After a step, `step` from 1: evaluation and checkpoint, where they are due. */
static int follow(struct run *run, int64_t step, bool requested, struct muster_error *err)
{
    bool keep;
    const int evaluated = evaluation_step(run, step, &keep, err);
    if (evaluated < 0)
        return -1;
    if (evaluated)
        observers_evaluation(run, step);
    const bool last = step == run->progress.steps || stop_cuts_short(run) || evaluation_ends(run);
    /* Before the first step there is only the best one to keep. */
    return step > run->progress.begun || keep ? checkpoints_step(run, step, requested || keep, last, err) : 0;
}

int run_steps(struct run *run, struct muster_error *err)
{
    struct nonfinite nonfinite = {0};
    const int64_t steps = run->progress.steps;
    if (follow(run, run->progress.done, false, err) < 0)
        return -1;
    for (int64_t step = run->progress.done; step < steps && !stop_cuts_short(run) && !evaluation_ends(run);
         step++) {
        struct run_step record = {
            .number = step + 1, .slow_rank = -1, .result = {.size = sizeof record.result}};
        const struct muster_result *result = &record.result;
        int64_t to;
        if (take_step(run, &record, err) < 0)
            return error_wrap(err, "step %lld", (long long)step + 1);
        if (check_result(run, &nonfinite, step, result, err) < 0 ||
            go_back(run, &nonfinite, step, result, &to, err) < 0)
            return -1;
        if (to >= 0) {
            observers_back(run, &record);
            step = to - 1;
            continue;
        }
        progress_add(&run->progress, &record.figures);
        const bool final = step + 1 == steps;
        if (!final && stop_look(run, result->stop, err) < 0)
            return -1;
        record.last = final || stop_cuts_short(run);
        if (observers_step(run, &record, err) < 0 || muster_heartbeat(step, err) < 0 ||
            follow(run, step + 1, result->checkpoint, err) < 0)
            return -1;
        checkpoint_command_step(run);
    }
    if (muster_heartbeat(-1, err) < 0) /* the remaining work takes longer than a step */
        return -1;
    observers_end(run);
    return 0;
}
