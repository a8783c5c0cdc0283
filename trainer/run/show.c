/* show.c - observer `show`: what rank 0 prints while it trains: the beginning, progress lines, epochs of
 * classifiers, evaluations, the end. See observers.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/cgroup.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/log.h"
#include "proto/base/text.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/inputs.h"
#include "trainer/run/observers.h"
#include "trainer/run/stages.h"
#include "trainer/run/stop.h"

enum { SMAPS_LIMIT = 1 << 16 };
/* The kernel walks all pages for the resident size: not for every step. */
#define RESIDENT_NS NS_PER_S

struct show {
    int64_t resident_bytes; /* measured at resident_at; 0: not yet */
    struct instant resident_at;
    /* The epoch that goes on, of a classifier: sums over its steps and rows. After a resume they begin at 0.
     */
    double epoch_loss, epoch_correct;
    int64_t epoch_steps, epoch_rows;
    bool cut_shown; /* the cut that the run's own times ask for */
};

/* As in training.dtype. */
static const char *precision_name(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? "fp32" : dtype == DTYPE_F16 ? "fp16" : "bf16";
}

/* ---- the beginning ---- */

void show_opened(const struct run *run)
{
    const char *opened = muster_trainer_opened(run->trainer);
    if (opened && !run->rank)
        printf("%s: %s, opened to %s as they were read\n", run->config.model_path, opened,
               precision_name(train_config_dtype(&run->config)));
    const char *drawn = muster_trainer_drawn(run->trainer, NULL);
    if (drawn && !run->rank)
        printf("%s: %s\n", run->config.model_path, drawn);
}

/* training.sequence_length is not set, and the model takes longer sequences than its default. */
static void show_short_sequences(const struct run *run)
{
    const struct train_config *c = &run->config;
    const bool chosen = train_config_source(c, "training.sequence_length") != KNOB_FROM_DEFAULT;
    const long long most = run_state(run).most_positions;
    if (!chosen && !inputs_classify(run->inputs) && most > c->sequence_length)
        printf("the model takes %lld positions, and is trained on sequences of %lld, as "
               "training.sequence_length is not set\n",
               most, (long long)c->sequence_length);
}

/* ---- stages of a pipeline ---- */

enum { CUT_TEXT = 4096 };

static void show_cut(const struct run *run)
{
    static const char *const why[] = {[MUSTER_CUT_SET] = "as mesh.cut has it",
                                      [MUSTER_CUT_KEPT] = "as in the last checkpoint",
                                      [MUSTER_CUT_MEASURED] =
                                          "by the times that the last checkpoint's run has "
                                          "measured",
                                      [MUSTER_CUT_COUNTED] = "by products and bytes of the layers"};
    char cut[CUT_TEXT];
    int32_t by;
    double gain;
    if (run->config.mesh_pipeline > 1 &&
        muster_trainer_cut(run->trainer, &by, &gain, cut, sizeof cut, NULL) > 0)
        printf("mesh.cut: [%s], %s\n", cut, why[by]);
}

/* Less than a twentieth may be noise. */
static void show_better_cut(const struct run *run, struct show *show)
{
    char cut[CUT_TEXT];
    int32_t by;
    double gain;
    if (show->cut_shown || muster_trainer_cut(run->trainer, &by, &gain, cut, sizeof cut, NULL) < 0 ||
        gain < 0)
        return;
    show->cut_shown = true;
    if (gain < 0.05)
        return;
    console_line_end();
    printf("the first steps' times ask for mesh.cut: [%s], whose slowest part takes %.0f%% less; set it, and "
           "the "
           "next start goes on with it\n",
           cut, 100 * gain);
}

static void begin_epoch(struct show *s)
{
    s->epoch_loss = s->epoch_correct = 0;
    s->epoch_steps = s->epoch_rows = 0;
}

static void show_threads(int threads)
{
    const int processors = cgroup_cores();
    if (threads > processors)
        log_warning(console_warnings(),
                    "%d threads of a rank share %d processor%s, and wait for each other: take fewer "
                    "(training.threads or OMP_NUM_THREADS)",
                    threads, processors, processors == 1 ? "" : "s");
}

static int open_show(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const struct muster_trainer_state state = run_state(run);
    const struct train_batch batch = train_config_batch(c, run->rank, run->world_size);
    char bytes[32], replicas[32] = "", stages[32] = "";
    if (run->rank)
        return 0;
    struct show *show = run->observers[OBSERVER_show];
    if (!show)
        show = run->observers[OBSERVER_show] = mem_calloc(1, sizeof *show);
    if (!show)
        return error_set(err, MUSTER_E_NOMEM, "no memory for progress lines");
    begin_epoch(show);
    stages_show(run);
    if (c->strategy == STRATEGY_HYBRID_SHARD)
        (void)snprintf(replicas, sizeof replicas, " in %lld replicas", (long long)state.replicas); /* fits */
    if (c->mesh_pipeline > 1)
        (void)snprintf(stages, sizeof stages, ", %lld stages", (long long)c->mesh_pipeline); /* fits */
    inputs_show(run->inputs, c, run->trainer);
    printf("model: %s, %lld parameters in %lld group%s; %s over %d rank%s%s%s, %lld thread%s each; %s a rank "
           "planned, %lld gather%s in flight\n",
           muster_model_architecture(run->model), (long long)state.parameters, (long long)state.groups,
           state.groups == 1 ? "" : "s", train_config_strategy(c), run->world_size,
           run->world_size == 1 ? "" : "s", stages, replicas, (long long)state.threads,
           state.threads == 1 ? "" : "s", text_format_bytes(bytes, sizeof bytes, run->progress.planned_bytes),
           (long long)state.gathers_in_flight, state.gathers_in_flight == 1 ? "" : "s");
    show_cut(run);
    show->cut_shown = false;
    const char *passed_over, *device = muster_trainer_device(run->trainer, &passed_over);
    if (passed_over)
        printf("device: %s, as training.device is auto and %s\n", device, passed_over);
    else if (strcmp(device, "cpu") != 0)
        printf("device: %s\n", device);
    else if (*muster_processor_note())
        log_warning(console_warnings(), "%s", muster_processor_note());
    if (!strcmp(device, "cpu"))
        show_threads(state.threads);
    const char *comm = muster_trainer_comm(run->trainer, &passed_over);
    if (passed_over)
        printf("comm: %s, as %s\n", comm, passed_over);
    if (muster_trainer_nccl(run->trainer))
        printf("%s", muster_trainer_nccl(run->trainer));
    show_opened(run);
    if (state.dropout > 0)
        printf("model.path's config.json has a dropout of %g, which is not applied\n", state.dropout);
    const enum dtype moves = train_config_dtype(c), reduces = train_config_reduce_dtype(c);
    if (moves != DTYPE_F32 || reduces != DTYPE_F32)
        printf("precision: parameters are kept and gathered in %s, gradients reduced in %s; masters and "
               "optimizer state are %s\n",
               precision_name(moves), precision_name(reduces), precision_name(DTYPE_F32));
    if (muster_trainer_attention(run->trainer))
        printf("attention: %s\n", muster_trainer_attention(run->trainer));
    const char *library, *multiplies = muster_trainer_products(run->trainer, &library, &passed_over);
    const char *values = muster_trainer_values(run->trainer);
    if (strcmp(values, "fp32") != 0)
        printf("values: activations and parameters as layers read them are %s, rounded at each store; sums, "
               "statistics and losses are fp32; products by %s%s\n",
               values, library, strncmp(library, "loops", strlen("loops")) != 0 ? "" : ", which are slow");
    else if (passed_over)
        printf("products: %s; %s is storage and traffic on this processor, as %s\n", multiplies,
               precision_name(moves), passed_over);
    else if (!strcmp(multiplies, "bf16"))
        printf("products: factors rounded to bf16, sums in fp32, by %s\n", library);
    else if (moves != DTYPE_F32 || reduces != DTYPE_F32)
        printf("products: %s\n", multiplies);
    const long long rows = state.micro_batches * c->micro_batch * batch.ranks;
    if (inputs_classify(run->inputs))
        printf("batch: %lld %s a step", (long long)c->global_batch, inputs_unit(run->inputs));
    else
        printf("batch: %lld sequences of %lld tokens a step", (long long)c->global_batch,
               (long long)c->sequence_length);
    printf(", %lld micro-batches of %lld a rank", (long long)state.micro_batches, (long long)c->micro_batch);
    if (rows > c->global_batch)
        printf("; %lld of the %lld rows are empty", rows - c->global_batch, rows);
    printf("\n");
    show_short_sequences(run);
    (void)fflush(stdout);
    return 0;
}

/* ---- steps ---- */

static int64_t resident_bytes(void)
{
    scope_buffer text = {0};
    if (io_read_file("/proc/self/smaps_rollup", SMAPS_LIMIT, &text, NULL) < 0 || !text.data)
        return 0; /* informational only: older kernels have no such file */
    return progress_parse_pss(text.data);
}

static void show_progress(struct run *run, struct show *show, struct run_step *step)
{
    const struct instant now = clock_now(NULL);
    if (step->last || !show->resident_bytes || instant_diff_ns(now, show->resident_at) >= RESIDENT_NS) {
        show->resident_bytes = resident_bytes();
        show->resident_at = now;
    }
    step->figures.resident_bytes = show->resident_bytes;
    if (run->progress.done % run->config.interval && !step->last)
        return;
    scope_buffer line = {0};
    if (progress_line(&run->progress, &step->figures, &line) < 0)
        return; /* a line less */
    console_progress(line.data, line.length, step->last);
}

/* The samples of a step are counted for the epoch in which it ends. */
static void show_epoch(struct run *run, struct show *show, const struct muster_result *result)
{
    const int64_t samples = inputs_source(run->inputs).samples, taken = run_state(run).taken;
    show->epoch_loss += result->loss;
    show->epoch_correct += result->correct;
    show->epoch_rows += result->targets;
    show->epoch_steps++;
    const bool ends = taken / samples > (taken - run->config.global_batch) / samples,
               last = run->progress.done == run->progress.steps;
    if (!ends && !last)
        return;
    const int64_t epoch = ends ? taken / samples : taken / samples + 1;
    if (show->epoch_rows) {
        console_line_end();
        printf("Epoch %lld: Loss=%.4f, Accuracy=%.2f%%\n", (long long)epoch,
               show->epoch_loss / (double)show->epoch_steps,
               100 * show->epoch_correct / (double)show->epoch_rows);
        (void)fflush(stdout); /* a closed console does not stop the training */
    }
    begin_epoch(show);
}

static int step_show(struct run *run, struct run_step *step, struct muster_error *err)
{
    struct show *show = run->observers[OBSERVER_show];
    (void)err;
    if (!show)
        return 0;
    show_progress(run, show, step);
    if (run->config.mesh_pipeline > 1)
        show_better_cut(run, show);
    if (inputs_classify(run->inputs))
        show_epoch(run, show, &step->result);
    return 0;
}

/* ---- evaluations, the end ---- */

static void evaluation_show(struct run *run, int64_t step)
{
    const struct evaluation_figures *e = evaluation_last(run);
    const struct muster_trainer_state state = run_state(run);
    if (run->rank)
        return;
    printf("evaluation after step %lld: loss %.4f, ", (long long)step, e->loss);
    if (inputs_vary(run->inputs))
        printf("accuracy %.2f%%, precision %.4f, recall %.4f, F1 %.4f, %lld texts", e->accuracy, e->precision,
               e->recall, e->f1, (long long)e->counted);
    else if (inputs_classify(run->inputs))
        printf("accuracy %.2f%%, %lld pictures", e->accuracy, (long long)e->counted);
    else
        printf("perplexity %.2f, %lld tokens", exp(e->loss), (long long)e->counted);
    printf(" in %.2f s", (double)e->ns / (double)NS_PER_S);
    if (e->best)
        printf("; the best so far\n");
    else
        printf("; the best is %.4f, after step %lld\n", state.best_loss, (long long)state.best_step);
    if (e->lowers)
        printf("ReduceLROnPlateau: the learning rate is %g from here\n", state.plateau_rate);
    (void)fflush(stdout); /* a closed console does not stop the training */
}

static void end_show(struct run *run)
{
    if (run->rank)
        return;
    const int64_t done = run->progress.done, count = progress_losses(&run->progress);
    const long long last = run->progress.steps;
    const char *part = stages_now(run).count ? "stage" : "training";
    if (stop_cuts_short(run) && run_keeps_checkpoints(run))
        fprintf(stderr,
                "muster-train: warning: a stop was announced: all ranks end after step %lld of %lld\n",
                (long long)done, last);
    else if (stop_cuts_short(run))
        fprintf(stderr,
                "muster-train: warning: a stop was announced: all ranks end after step %lld of %lld; "
                "training.checkpoint_dir is not set, so the next round restarts at step 1%s\n",
                (long long)done, last, run_saves(run) ? "; the current parameters are saved" : "");
    if (evaluation_ends(run))
        printf("the %s ends early, after step %lld of %lld: %lld evaluations in a row were without a "
               "gain\n",
               part, (long long)done, last, (long long)run_state(run).evaluations_without_gain);
    if (count)
        printf("mean loss of the last %lld steps: %.4f\n", (long long)count,
               progress_mean_loss(&run->progress));
    else if (!evaluation_ends(run))
        printf("all %lld steps%s had been done already\n", (long long)(done - run->progress.first),
               stages_now(run).count ? " of the stage" : "");
}

static void close_show(struct run *run)
{
    mem_free(run->observers[OBSERVER_show]);
    run->observers[OBSERVER_show] = NULL;
}

const struct observer show_observer = {.open = open_show,
                                       .step = step_show,
                                       .evaluation = evaluation_show,
                                       .end = end_show,
                                       .close = close_show};
