/* run_show.c - what rank 0 prints while it trains. See run.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "trainer/run/run.h"

enum { SMAPS_LIMIT = 1 << 16 };
/* The kernel walks all pages for the resident size: not for every step. */
#define RESIDENT_NS NS_PER_S

/* As in training.dtype. */
static const char *precision_name(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? "fp32" : dtype == DTYPE_F16 ? "fp16" : "bf16";
}

static void show_texts(const struct run *run)
{
    const struct train_config *c = &run->config;
    char *const *sources = c->data_sources;
    int count = 0;
    while (sources && sources[count])
        count++;
    for (int i = 0; count > 1 && i < count; i++)
        printf("source: %s\n", sources[i]);
    if (count > 1)
        printf("data: %d sources, %d files, %lld tokens\n", count, data_files(run->data),
               (long long)data_tokens(run->data));
    else
        printf("data: %s, %d files, %lld tokens\n", count ? sources[0] : c->path, data_files(run->data),
               (long long)data_tokens(run->data));
    if (run->tokenizer.path)
        printf("tokenizer: %s, %s, %lld tokens\n", run->tokenizer.path, run->tokenizer.kind,
               (long long)run->tokenizer.vocabulary);
    if (data_documents_cut(run->data))
        printf("%lld documents are longer than training.sequence_length %lld, and are cut\n",
               (long long)data_documents_cut(run->data), (long long)c->sequence_length);
    if (c->epochs > 0)
        printf("epochs: %g of %lld samples are %lld steps\n", c->epochs, (long long)data_samples(run->data),
               (long long)c->steps);
}

void run_show_data(const struct run *run)
{
    if (run->pictures)
        run_pictures_show(run);
    else if (run->labelled)
        run_labelled_show(run);
    else
        show_texts(run);
}

void run_show_opened(const struct run *run)
{
    const char *opened = muster_trainer_opened(run->trainer);
    if (opened && !run->rank)
        printf("%s: %s, opened to %s as they were read\n", run->config.model_path, opened,
               precision_name(train_config_dtype(&run->config)));
}

/* A model that takes longer ones, trained on sequences whose length nobody chose. */
static void show_short_sequences(const struct run *run)
{
    const struct train_config *c = &run->config;
    const struct knob *length = knob_find(train_config_table(), "training.sequence_length", 24, false, NULL);
    const bool chosen = c->sources[length - train_config_table()->knobs] != KNOB_FROM_DEFAULT;
    const long long most = muster_trainer_state_now(run->trainer).most_positions;
    if (!chosen && !run_classifies(run) && most > c->sequence_length)
        printf("the model takes %lld positions, and is trained on sequences of %lld, as "
               "training.sequence_length is not set\n",
               most, (long long)c->sequence_length);
}

void run_show_start(struct run *run)
{
    const struct train_config *c = &run->config;
    char bytes[32], replicas[32] = "";
    run->progress.planned_bytes = muster_trainer_state_now(run->trainer).planned_bytes;
    run->progress.steps = run_last_step(run);
    run->progress.tokens_per_step = c->global_batch * (run->labelled ? 1 : c->sequence_length);
    if (run->rank)
        return;
    run_stages_show(run);
    if (c->strategy == STRATEGY_HYBRID_SHARD)
        (void)snprintf(replicas, sizeof replicas, " in %lld replicas",
                       (long long)muster_trainer_state_now(run->trainer).replicas); /* fits */
    run_show_data(run);
    printf("model: %s, %lld parameters in %lld groups; %s over %d ranks%s, %lld threads each; %s a rank "
           "planned, %lld gathers in flight\n",
           muster_model_architecture(run->model),
           (long long)muster_trainer_state_now(run->trainer).parameters,
           (long long)muster_trainer_state_now(run->trainer).groups, train_config_strategy(c),
           run->world_size, replicas, (long long)muster_trainer_state_now(run->trainer).threads,
           text_format_bytes(bytes, sizeof bytes, run->progress.planned_bytes),
           (long long)muster_trainer_state_now(run->trainer).gathers_in_flight);
    const char *passed_over, *device = muster_trainer_device(run->trainer, &passed_over);
    if (passed_over)
        printf("device: %s, as training.device is auto and %s\n", device, passed_over);
    else if (strcmp(device, "cpu") != 0)
        printf("device: %s\n", device);
    else if (*muster_processor_note())
        log_warning(run_log_warnings(), "%s", muster_processor_note());
    const char *comm = muster_trainer_comm(run->trainer, &passed_over);
    if (passed_over)
        printf("comm: %s, as %s\n", comm, passed_over);
    run_show_opened(run);
    if (muster_trainer_state_now(run->trainer).dropout > 0)
        printf("model.path's config.json has a dropout of %g, which is not applied\n",
               muster_trainer_state_now(run->trainer).dropout);
    const enum dtype moves = train_config_dtype(c), reduces = train_config_reduce_dtype(c);
    if (moves != DTYPE_F32 || reduces != DTYPE_F32)
        printf("precision: parameters are kept and gathered in %s, gradients reduced in %s; on CPUs that is "
               "storage and traffic: arithmetic, masters and optimizer state are %s\n",
               precision_name(moves), precision_name(reduces), precision_name(DTYPE_F32));
    const long long rows =
        muster_trainer_state_now(run->trainer).micro_batches * c->micro_batch * run->world_size;
    if (run_classifies(run))
        printf("batch: %lld %s a step", (long long)c->global_batch, run_unit(run));
    else
        printf("batch: %lld sequences of %lld tokens a step", (long long)c->global_batch,
               (long long)c->sequence_length);
    printf(", %lld micro-batches of %lld a rank",
           (long long)muster_trainer_state_now(run->trainer).micro_batches, (long long)c->micro_batch);
    if (rows > c->global_batch)
        printf("; %lld of the %lld rows are empty", rows - c->global_batch, rows);
    printf("\n");
    show_short_sequences(run);
    (void)fflush(stdout);
}

static int64_t resident_bytes(void)
{
    scope_buffer text = {0};
    if (io_read_file("/proc/self/smaps_rollup", SMAPS_LIMIT, &text, NULL) < 0 || !text.data)
        return 0; /* informational only: older kernels have no such file */
    return progress_parse_pss(text.data);
}

static size_t terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) ? 0 : size.ws_col;
}

void run_show_progress(struct run *run, struct progress_step *step, bool last)
{
    if (run->rank)
        return;
    struct instant now = clock_now(NULL);
    if (last || !run->resident_bytes || instant_diff_ns(now, run->resident_at) >= RESIDENT_NS) {
        run->resident_bytes = resident_bytes();
        run->resident_at = now;
    }
    step->resident_bytes = run->resident_bytes;
    if (run->progress.done % run->config.interval && !last)
        return;
    scope_buffer line = {0};
    run->progress.unit = run_classifies(run) ? run_unit(run) : "tok";
    if (progress_line(&run->progress, step, &line) < 0)
        return; /* a line less */
    /* On a terminal one line is overwritten, if it is wide enough. */
    bool over = run->terminal && line.length < terminal_columns();
    printf(over ? "\r%s\033[K" : "%s", line.data);
    run->line_open = over && !last;
    if (!run->line_open)
        printf("\n");
    (void)fflush(stdout); /* a closed console does not stop the training */
}

const char *run_param_name(const struct run *run, int param)
{
    return param < 0 ? "no single parameter" : muster_trainer_parameter_name(run->trainer, param);
}

void run_show_skipped(const struct run *run, int64_t step, const struct muster_result *result)
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

void run_show_evaluation(const struct run *run, int64_t step)
{
    const struct run_evaluation *e = &run->evaluation;
    if (run->rank)
        return;
    printf("evaluation after step %lld: loss %.4f, ", (long long)step, e->loss);
    if (run->labelled)
        printf("accuracy %.2f%%, precision %.4f, recall %.4f, F1 %.4f, %lld texts", e->accuracy, e->precision,
               e->recall, e->f1, (long long)e->counted);
    else if (run->pictures)
        printf("accuracy %.2f%%, %lld pictures", e->accuracy, (long long)e->counted);
    else
        printf("perplexity %.2f, %lld tokens", exp(e->loss), (long long)e->counted);
    printf(" in %.2f s", (double)e->ns / (double)NS_PER_S);
    if (e->best)
        printf("; the best so far\n");
    else
        printf("; the best is %.4f, after step %lld\n", muster_trainer_state_now(run->trainer).best_loss,
               (long long)muster_trainer_state_now(run->trainer).best_step);
    if (e->lowers)
        printf("ReduceLROnPlateau: the learning rate is %g from here\n",
               muster_trainer_state_now(run->trainer).plateau_rate);
    (void)fflush(stdout); /* a closed console does not stop the training */
}

void run_show_end(struct run *run)
{
    const int64_t done = run->progress.done, count = progress_losses(&run->progress);
    const long long last = run_last_step(run);
    const char *part = run->stages.count ? "stage" : "training";
    if (run->cut_short && checkpoints_wanted(&run->config))
        fprintf(stderr,
                "muster-train: warning: a stop was announced: all ranks end after step %lld of %lld\n",
                (long long)done, last);
    else if (run->cut_short)
        fprintf(stderr,
                "muster-train: warning: a stop was announced: all ranks end after step %lld of %lld; "
                "training.checkpoint_dir is not set, so the next round restarts at step 1%s\n",
                (long long)done, last, run_saves(run) ? "; the current parameters are saved" : "");
    if (run_stops_early(run))
        printf("the %s ends early, after step %lld of %lld: %lld evaluations in a row were without a "
               "gain\n",
               part, (long long)done, last,
               (long long)muster_trainer_state_now(run->trainer).evaluations_without_gain);
    if (count)
        printf("mean loss of the last %lld steps: %.4f\n", (long long)count,
               progress_mean_loss(&run->progress));
    else if (!run_stops_early(run))
        printf("all %lld steps%s had been done already\n", (long long)(done - run->stages.first),
               run->stages.count ? " of the stage" : "");
}

void run_show_line_end(struct run *run)
{
    if (run->line_open) {
        printf("\n");
        (void)fflush(stdout); /* errors are printed on standard error */
    }
    run->line_open = false;
}
