/* run_steps.c - the loop over optimizer steps: the batch, the step, notices, checkpoints. See run.h. */
#include <math.h>

#include "proto/base/error.h"
#include "trainer/run/run.h"

enum { ROLL_BACKS = 3 };      /* to the same checkpoint */
enum { SKIPS_IN_A_ROW = 20 }; /* steps that change nothing; a dynamic loss scale has its own end */

/* After a step that is not the last: whether this rank has a notice, and whether the run ends here.
 * Notices come to ranks at different steps: each asks for a stop with its next step, and all see that one at
 * its end. */
static int look_for_notice(struct run *run, bool asked, struct muster_error *err)
{
    struct muster_notice notice = {.size = sizeof notice};
    int noticed = run->listens ? muster_notice(&notice, err) : 0;
    if (noticed < 0)
        return -1;
    run->noticed = noticed > 0 || checkpoints_terminated();
    run->ends = noticed > 0 ? (struct instant){notice.deadline_ns} : INSTANT_NEVER;
    run->coming = noticed > 0 ? notice.coming : MUSTER_STOP_COMES;
    run->cut_short = asked || (run->noticed && run->world_size == 1);
    return 0;
}

/* After a step whose gradients were not checked before the optimizer used them. */
static int say_nonfinite(struct run *run, int64_t step, double loss, struct muster_error *err)
{
    int32_t param, rank;
    if (muster_trainer_nonfinite(run->trainer, &param, &rank, err) < 0)
        return -1;
    return error_set(err, MUSTER_E_STATE,
                     "step %lld: the loss is %f and the gradient of %s is not finite (rank %d has it); lower "
                     "training.learning_rate (%g), or set training.on_nonfinite: skip",
                     (long long)step + 1, loss, run_param_name(run, param), rank, run->config.learning_rate);
}

/* All of it is equal on every rank. */
static int check_result(struct run *run, int64_t step, const struct muster_result *result,
                        struct muster_error *err)
{
    const struct train_config *c = &run->config;
    run->skipped = result->skipped ? run->skipped + 1 : 0;
    if (result->skipped)
        run_show_skipped(run, step, result);
    if (run->skipped == SKIPS_IN_A_ROW && !(result->loss_scale > 0))
        return error_set(err, MUSTER_E_STATE,
                         "%d steps in a row, up to step %lld, were skipped: the gradient of %s is not "
                         "finite, and nothing changes any more; lower training.learning_rate (%g)",
                         SKIPS_IN_A_ROW, (long long)step + 1, run_param_name(run, result->nonfinite),
                         c->learning_rate);
    if (!isfinite(result->loss) && c->clip_norm == 0 && !train_config_checks(c))
        return say_nonfinite(run, step, result->loss, err);
    return 0;
}

static int take_step(struct run *run, int64_t step, struct muster_result *result, struct muster_error *err)
{
    struct step_batch batch;
    const int64_t waited_ns = next_batch_waited_ns(run->next);
    if (next_batch_take(run->next, muster_trainer_state_now(run->trainer).taken, &batch, err) < 0)
        return error_wrap(err, "step %lld", (long long)step + 1);
    run->data_wait_ns = next_batch_waited_ns(run->next) - waited_ns;
    const double next_targets = batch.targets_next < 0 ? NAN : (double)batch.targets_next;
    *result = (struct muster_result){.size = sizeof *result};
    if ((run->samples && sample_log_step(run->samples, step + 1, batch.ids, batch.samples, err) < 0) ||
        muster_trainer_set(run->trainer, "stop", run->noticed, err) < 0 ||
        muster_trainer_set(run->trainer, "next_targets", next_targets, err) < 0 ||
        checkpoints_ask(&run->checkpoints, err) < 0 ||
        muster_trainer_train(run->trainer, batch.arrays, batch.samples, result, err) < 0)
        return error_wrap(err, "step %lld", (long long)step + 1);
    return check_result(run, step, result, err);
}

/* After a step whose gradient was not finite: goes back to the last checkpoint if that is asked for and there
 * is one. *to: its step; -1: training goes on behind this step. */
static int go_back(struct run *run, int64_t step, const struct muster_result *result, int64_t *to,
                   struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const bool dynamic = result->loss_scale > 0 && !(c->loss_scale > 0);
    *to = -1;
    if (!result->skipped || dynamic || c->on_nonfinite != TRAIN_NONFINITE_ROLL_BACK)
        return 0;
    if (muster_heartbeat(-1, err) < 0) /* it takes longer than a step */
        return -1;
    const int64_t before = run->went_back_to;
    if (checkpoints_go_back(&run->checkpoints, to, err) < 0)
        return error_wrap(err, "going back from step %lld", (long long)step + 1);
    if (*to < 0)
        return 0;
    run->times_back = *to == before ? run->times_back + 1 : 1;
    run->went_back_to = *to;
    run->skipped = 0;
    run->progress.done = *to;
    if (run->progress.begun > *to)
        run->progress.begun = *to;
    if (run->times_back <= ROLL_BACKS)
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

static void end_line(void *context)
{
    run_show_line_end(context);
}

/* After a step: the checkpoint that is due, if one is. */
static int save_state(struct run *run, int64_t step, bool asked, struct muster_error *err)
{
    const bool ends = step == run_last_step(run) || run->cut_short || run_stops_early(run);
    if (!checkpoints_wanted(&run->config))
        return 0;
    if (ends && muster_heartbeat(-1, err) < 0) /* it takes longer than a step */
        return -1;
    if (!checkpoints_go_on(&run->checkpoints, asked, ends, step, end_line, run))
        return 0;
    if (muster_heartbeat(-1, err) < 0) /* the next step may wait for the disk */
        return -1;
    run_show_line_end(run);
    if (run->cut_short && run->ends.ns != INT64_MAX)
        checkpoints_estimate(&run->checkpoints,
                             (double)instant_diff_ns(run->ends, clock_now(NULL)) / (double)NS_PER_S);
    checkpoints_write(&run->checkpoints, ends);
    return 0;
}

int run_steps(struct run *run, struct muster_error *err)
{
    const int64_t steps = run_last_step(run), begun = muster_trainer_state_now(run->trainer).steps;
    run->progress.begun = run->progress.done = begun;
    bool keep;
    if (run_evaluate(run, begun, &keep, err) < 0 || (keep && save_state(run, begun, true, err) < 0))
        return -1;
    for (int64_t step = begun; step < steps && !run->cut_short && !run_stops_early(run); step++) {
        struct muster_result result;
        int64_t to;
        if (run_trace_begin(run, step, err) < 0 || take_step(run, step, &result, err) < 0 ||
            go_back(run, step, &result, &to, err) < 0)
            return -1;
        if (to >= 0) {
            run_trace_end(run, step, false);
            step = to - 1;
            continue;
        }
        struct progress_step shown = {.loss = result.loss,
                                      .learning_rate = result.learning_rate,
                                      .grad_norm = result.grad_norm,
                                      .step_ns = result.step_ns,
                                      .comm_ns = result.comm_ns,
                                      .exposed_ns = result.exposed_ns,
                                      .data_wait_ns = run->data_wait_ns};
        progress_add(&run->progress, &shown);
        run_figures_gpu(run, &shown);
        bool final = step + 1 == steps;
        if (!final && look_for_notice(run, result.stop, err) < 0)
            return -1;
        run_show_progress(run, &shown, final || run->cut_short);
        if (run_classifies(run))
            run_epoch_step(run, &result);
        if (run_watch_step(run, &shown, err) < 0 || run_figures_step(run, &shown, err) < 0)
            return -1;
        run_log_step(run, &shown, &result);
        run_place_step();
        run_trace_end(run, step, final || run->cut_short);
        if (muster_heartbeat(step, err) < 0 || run_evaluate(run, step + 1, &keep, err) < 0 ||
            save_state(run, step + 1, result.checkpoint || keep, err) < 0)
            return -1;
        run_hook_step(run);
    }
    if (muster_heartbeat(-1, err) < 0) /* the remaining work takes longer than a step */
        return -1;
    if (run->rank == 0)
        run_show_end(run);
    return 0;
}
