/* train.c - a training from the world to the sample: inputs, trainer, steps, and the files that it leaves;
 * with stages one after the other. See run.h. */
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "runtime/config/train_batch.h"
#include "trainer/run/checkpoints.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/inputs.h"
#include "trainer/run/observers.h"
#include "trainer/run/results.h"
#include "trainer/run/stages.h"
#include "trainer/run/stop.h"

/* ---- to the first step ---- */

/* Errors in this rank's input, found before any rank waits for another. */
static int open_inputs(struct run *run, struct muster_error *err)
{
    struct train_config *c = &run->config;
    run->inputs = inputs_open(c, run->rank, err);
    if (!run->inputs || run_open_model(run, err) < 0 || evaluation_open(run, err) < 0 ||
        checkpoints_open(run, err) < 0)
        return -1;
    const struct train_batch batch = train_config_batch(c, run->rank, run->world_size);
    if (inputs_begin(run->inputs, &batch, err) < 0)
        return -1;
    return run->rank == 0 && run_saves(run)
               ? muster_export_probe(c->output, train_config_output_format(c), err)
               : 0;
}

/* "": nothing. */
static int load_path(struct run *run, const char *path, struct muster_error *err)
{
    return path && *path ? muster_trainer_load(run->trainer, path, err) : 0;
}

/* The parameters: of a checkpoint, of files, or as they were drawn. */
static int take_parameters(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const int number = stages_now(run).number;
    /* Checkpoints of adapters hold them alone. */
    const bool adapts = train_config_adapts(c);
    if (adapts && load_path(run, c->model_path, err) < 0)
        return -1;
    const int resumed = run_keeps_checkpoints(run) ? checkpoints_resume(run, err) : 0;
    if (resumed < 0 || (!resumed && load_path(run, adapts ? c->lora_path : c->model_path, err) < 0))
        return -1;
    if (!resumed && number)
        return error_set(err, MUSTER_E_NOT_FOUND, "there is no checkpoint in %s that stage %d can begin from",
                         c->checkpoint_dir, number + 1);
    return 0;
}

/* measures: the rates of this machine, on all ranks at once. */
static int begin_progress(struct run *run, bool measures, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    double limit_s = 0;
    if (measures && muster_trainer_limit(run->trainer, &limit_s, err) < 0)
        return -1;
    const struct muster_trainer_state state = run_state(run);
    const bool varies = inputs_vary(run->inputs);
    run->progress = (struct progress){
        .steps = state.stage_first_step + c->steps,
        .first = state.stage_first_step,
        .begun = state.steps,
        .done = state.steps,
        .tokens_per_step = c->global_batch * (varies ? 1 : c->sequence_length),
        .padding = inputs_padding(run->inputs),
        .planned_bytes = state.planned_bytes,
        .on_device = strcmp(muster_trainer_device(run->trainer, NULL), "cpu") != 0,
        .limit_ns = limit_s * (double)NS_PER_S,
        .step_flops = varies ? 0 : state.step_flops, /* as many positions as the texts of a step have */
        .peak_flops = state.peak_flops,
        .unit = inputs_classify(run->inputs) ? inputs_unit(run->inputs) : "tok"};
    return 0;
}

/* The state of ranks that stayed when others were lost, else parameters as at a start. 1: the former. */
static int take_state(struct run *run, struct muster_error *err)
{
    const int recovered = muster_trainer_recover(run->trainer, err);
    run->anew = !recovered;
    return recovered || take_parameters(run, err) == 0 ? recovered : -1;
}

/* Whether this rank stays when others are lost. */
static bool stay(struct run *run)
{
    struct muster_error err = {0};
    const int stays = muster_trainer_stay_anywhere(run->trainer, run->world, &err);
    if (stays < 0)
        log_warning(console_warnings(),
                    "rank %d cannot stay when others are lost, and is started anew then: %s", run->rank,
                    err.text);
    run->reopens = stays == 3;
    return stays > 0;
}

/* Replicas that a loss during a step leaves without a whole state: groups are stepped one by one. */
static void tell_steps_by_group(const struct run *run)
{
    const struct train_config *c = &run->config;
    const bool replicas = c->strategy == STRATEGY_NO_SHARD || c->strategy == STRATEGY_HYBRID_SHARD;
    if (replicas && c->clip_norm == 0 && !train_config_checks(c) && !c->memory_copies && run->world_size > 1)
        fprintf(
            stderr,
            "muster-train: warning: with training.clip_norm 0 and on_nonfinite \"stop\" each parameter group "
            "is stepped as soon as it can: a loss of ranks during a step leaves no whole state in memory, "
            "and training goes back to a checkpoint; a clip norm, even a large one, or "
            "training.memory_copies avoids it\n");
}

static int begin_steps(struct run *run, struct muster_error *err)
{
    const int recovered = stages_set(run, err) < 0 ? -1 : take_state(run, err);
    if (recovered < 0 || begin_progress(run, !recovered, err) < 0 || stop_listen(run, err) < 0)
        return -1;
    if (stay(run) && !recovered && !run->rank)
        tell_steps_by_group(run);
    return observers_open(run, err);
}

/* ---- after a loss ---- */

/* Errors of a rank whose peers have gone. A node that is cut off is lost after 2.5 s. */
static int64_t patience_ns(const struct muster_world *world, const struct muster_error *err)
{
    const bool by_peers = err->code == MUSTER_E_PEER || err->code == MUSTER_E_TIMEOUT ||
                          err->code == MUSTER_E_CANCELLED || err->code == MUSTER_E_IO;
    return by_peers && muster_world_size(world) > 1 ? 5 * NS_PER_S : 0;
}

/* In the same place: the same calls in the same order as in ranks that were started anew. */
static int go_on_here(struct run *run, struct muster_error *err)
{
    if ((run->stages && stages_rejoin(run, err) < 0) || muster_world_agree(run->world, 0, err) < 0 ||
        muster_world_agree(run->world, 0, err) < 0 ||
        muster_trainer_rejoin(run->trainer, run->world, err) < 0)
        return -1;
    const int recovered = take_state(run, err);
    if (recovered < 0)
        return -1;
    progress_go_back(&run->progress, run_state(run).steps);
    run->progress.begun =
        run->progress.done; /* a checkpoint of this step is not written by ranks that are new */
    if (!recovered && begin_progress(run, true, err) < 0)
        return -1;
    return observers_open(run, err);
}

/* Closes what `train` has opened, but for the model. */
static void train_close(struct run *run)
{
    muster_trainer_close(&run->trainer);
    evaluation_close(run);
    checkpoints_close(run);
    inputs_close(&run->inputs);
}

/* With another rank, or in a world of another size: as a rank that was started anew, but with its state. 1:
 * it was left out of the training, and the others have ended. */
static int go_on_elsewhere(struct run *run, struct muster_error *err)
{
    if (run->trainer && muster_trainer_keep(&run->trainer, &run->kept, err) < 0) {
        fprintf(stderr, "muster-train: warning: the state of rank %d is not kept: %s\n", run->rank,
                err->text);
        error_clear(err); /* others may have it, or there is a checkpoint */
    }
    train_close(run);
    run_unite(run);
    const int spare = run_leave_spares(run, err);
    if (spare)
        return spare;
    if ((run->stages && stages_rejoin(run, err) < 0) ||
        muster_world_agree(run->world, open_inputs(run, err), err) < 0 || run_open_trainer(run, err) < 0)
        return -1;
    muster_trainer_take(run->trainer, &run->kept);
    (void)stay(run);
    return begin_steps(run, err);
}

static void tell_loss(const struct run *run)
{
    const long long step = (long long)run_state(run).steps;
    fprintf(stderr, "muster-train: warning: with the lost ranks the state is gone from memory: training ");
    if (step)
        fprintf(stderr, "goes back to the checkpoint of step %lld", step);
    else
        fprintf(stderr, "begins anew");
    /* copies are lost with neighbours, or before the first are made */
    fprintf(stderr, "; %s%s\n",
            run->config.memory_copies
                ? "no rank is left that kept a copy of theirs (training.memory_copies); replicas "
                  "(training.strategy) keep a state"
                : "replicas (training.strategy) or training.memory_copies keep a state",
            run_keeps_checkpoints(run) ? "" : ", and training.checkpoint_dir saves it");
}

/* 1: this rank goes on with those that replace the lost ones; 2: it waited for them, and they have ended; 0:
 * the error was this rank's own; -1: err has another one. */
static int regroup(struct run *run, struct muster_error *err)
{
    struct muster_error why = *err;
    const struct instant from = clock_now(NULL);
    for (bool open = true;; open = false) {
        const bool begun = run->trainer || run->kept;
        struct muster_world *world = run->whole ? run->whole : run->world;
        const int joined = begun ? muster_world_rejoin(world, patience_ns(world, &why), &why) : 0;
        if (joined <= 0)
            return joined;
        console_line_end();
        if (open)
            observers_stage(run); /* some of them read the trainer on threads of their own */
        const bool stays = run->trainer && !run->reopens && muster_world_rank(world) == run->rank &&
                           muster_world_size(world) == run->world_size;
        const int went = stays ? go_on_here(run, &why) : go_on_elsewhere(run, &why);
        if (went > 0)
            return 2;
        if (!went)
            break;
        *err = why;
    }
    if (!run->rank)
        printf("regrouped in %.3f s after %s: step %lld is the next\n",
               (double)instant_diff_ns(clock_now(NULL), from) / (double)NS_PER_S, err->text,
               (long long)run_state(run).steps + 1);
    if (!run->rank && run->anew)
        tell_loss(run);
    (void)fflush(stdout); /* a closed console does not stop the training */
    error_clear(err);
    return 1;
}

/* 1: this rank was left out in the end, and the others have ended. */
static int train(struct run *run, struct muster_error *err)
{
    run->progress = (struct progress){0};
    if (muster_world_agree(run->world, open_inputs(run, err), err) < 0 || run_open_trainer(run, err) < 0)
        return -1;
    int result = begin_steps(run, err) < 0 ? -1 : run_steps(run, err);
    for (int goes = 1; result < 0 && (goes = regroup(run, err)) > 0;)
        result = goes == 2 ? 1 : run_steps(run, err);
    return result;
}

/* ---- stages ---- */

/* The newest checkpoint is damaged, and the one before is of an earlier stage: that is trained again. */
static bool go_to_earlier(struct run *run, struct muster_error *err)
{
    const int number = stages_now(run).number;
    if (!run->trainer || run_state(run).steps)
        return false;
    const long long found = run_state(run).stage_found;
    if (found < 0 || found >= number)
        return false;
    if (!run->rank)
        fprintf(stderr, "muster-train: warning: going on in stage %lld: %s\n", found + 1, err->text);
    error_clear(err);
    observers_stage(run);
    train_close(run);
    return stages_go_to(run, (int)found, -1, err) == 0;
}

/* After its last step: the next one begins from the checkpoint of this one. */
static int end_stage(struct run *run, struct muster_error *err)
{
    const int number = stages_now(run).number;
    const long long end = run_state(run).steps;
    if (run_state(run).checkpoint_step != end)
        checkpoints_write_last(run); /* it was resumed there from another folder */
    if (run_state(run).checkpoint_step != end)
        return error_set(err, MUSTER_E_IO,
                         "stage %d has ended after step %lld, and there is no checkpoint of it in %s that "
                         "stage %d could begin from: see the warning before; a restart goes on from the last "
                         "one",
                         number + 1, end, run->config.checkpoint_dir, number + 2);
    observers_stage(run);
    train_close(run);
    return stages_go_to(run, number + 1, end, err);
}

static int train_stages(struct run *run, struct muster_error *err)
{
    for (;;) {
        const int result = train(run, err);
        if (result > 0 || (result < 0 && !go_to_earlier(run, err)))
            return result;
        if (!result && (stop_cuts_short(run) || stages_is_last(run)))
            return 0;
        if (!result && end_stage(run, err) < 0)
            return -1;
    }
}

/* ---- after the last step ---- */

/* The run ends with the parameters of its best evaluation. */
static int load_best(struct run *run, struct muster_error *err)
{
    const long long last = run_state(run).steps;
    int loaded = muster_trainer_best(run->trainer, err);
    if (loaded < 0 || run->rank)
        return loaded < 0 ? -1 : 0;
    if (loaded > 0)
        printf("the best parameters, of step %lld, take the place of those of step %lld\n",
               (long long)run_state(run).steps, last);
    else if (run_state(run).best_step != last)
        fprintf(
            stderr,
            "muster-train: warning: training.export_best: there is no checkpoint of a best evaluation; the "
            "parameters are those of step %lld\n",
            last);
    return 0;
}

/* Identifies the version of a model. */
static int show_hash(struct run *run, struct muster_error *err)
{
    char exact[17], printed[9];
    if (muster_trainer_hash(run->trainer, exact, printed, err) < 0)
        return -1;
    if (!run->rank)
        printf("model hash: %s as get_model_hash forms it of model.pth, %s of every bit\n", printed, exact);
    return 0;
}

static int export_model(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    if (muster_trainer_export(run->trainer, c->output, train_config_output_format(c), err) < 0)
        return -1;
    if (run->rank == 0) {
        const int folder = io_is_folder(c->output, err); /* else one file, of another format */
        if (folder < 0 || (folder && inputs_copy_tokenizer(run->inputs, c->output, err) < 0))
            return -1;
        printf("saved %s\n", c->output);
    }
    /* Of adapters no script forms one. */
    return inputs_classify(run->inputs) && !train_config_adapts(c) ? show_hash(run, err) : 0;
}

static int finish_training(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    if (stop_cuts_short(run) && run_keeps_checkpoints(run))
        return 0; /* the run goes on from there, and there may not be enough time */
    if (c->export_best && load_best(run, err) < 0)
        return -1;
    if (c->ema_export && muster_trainer_average(run->trainer, 1, err) < 0) /* for the file and the sample */
        return -1;
    if (run_saves(run) && export_model(run, err) < 0)
        return -1;
    if (!c->sample_length || stop_cuts_short(run) || inputs_classify(run->inputs))
        return 0; /* there may not be enough time */
    return run_sample(run, err);
}

/* 1: this rank was spare, and the others have ended. */
static int train_whole(struct run *run, struct muster_error *err)
{
    if (run_open_world(run, err) < 0)
        return -1;
    const int spare = run_leave_spares(run, err);
    if (spare)
        return spare;
    const int left_out = stages_open(run, err) < 0 ? -1 : train_stages(run, err);
    if (left_out)
        return left_out;
    return finish_training(run, err) < 0 || checkpoint_command_end(run, err) < 0 ? -1 : run_end(run, err);
}

int run_training(struct run *run, bool json, struct muster_error *err)
{
    FILE *out = json ? console_take_output(err) : NULL;
    const struct instant begun = clock_now(NULL);
    if (json && !out)
        return -1;
    int result = train_whole(run, err);
    const bool spare = result > 0;
    if (spare)
        result = 0;
    else if (!result && out)
        result = result_training(run, begun, out, err);
    if (out)
        (void)fclose(out); /* it was flushed */
    if (!result && !spare)
        result = checkpoint_command_check(run, err); /* after the result, which is there */
    return result;
}

void run_close(struct run *run)
{
    observers_close(run);
    train_close(run);
    stages_close(run);
    stop_close(run);
    run_free(run);
}
