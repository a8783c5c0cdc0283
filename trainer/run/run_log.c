/* run_log.c - what of a run goes into files: entries of its log, made on rank 0. See run.h. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/env_names.h"
#include "runtime/config/train_settings.h"
#include "trainer/run/run.h"

enum { HOST_SIZE = 256 };
#define STATS_NS (15 * NS_PER_S) /* as often as W&B's own */

static int stderr_fd = STDERR_FILENO;
static const struct log_sink warnings = {
    .write = log_write_to_fd, .context = &stderr_fd, .threshold = LOG_LEVEL_WARNING, .who = "muster-train"};

const struct log_sink *run_log_warnings(void)
{
    return &warnings;
}

static bool is_set(const char *text)
{
    return text && *text;
}

/* All settings that were set, for TensorBoard: Markdown shows lines behind four blanks as they are. */
static int settings_text(const struct train_config *config, struct buffer *out)
{
    static const char *const sections[] = {"training", "model", "lora", "data", "logging"};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        char **texts = train_settings_texts(config, sections[i]);
        if (!texts)
            return -1;
        for (char **text = texts; *text; text++)
            buffer_printf(out, "    %s\n", *text);
        train_settings_free(texts);
    }
    return out->failed ? -1 : 0;
}

static void log_start(struct run *run)
{
    const struct train_config *c = &run->config;
    struct entry entry = {.kind = ENTRY_START, .step = muster_trainer_state_now(run->trainer).steps};
    entry_integer(&entry, "steps", run_last_step(run));
    entry_text(&entry, "model", muster_model_architecture(run->model));
    entry_integer(&entry, "parameters", muster_trainer_state_now(run->trainer).parameters);
    entry_text(&entry, "strategy", train_config_strategy(c));
    entry_integer(&entry, "world_size", run->world_size);
    entry_integer(&entry, "micro_batches", muster_trainer_state_now(run->trainer).micro_batches);
    entry_integer(&entry, "global_batch", c->global_batch);
    entry_integer(&entry, "sequence_length", c->sequence_length);
    entry_integer(&entry, "planned_memory", run->progress.planned_bytes);
    entry_number(&entry, "step_flops", run->progress.step_flops);
    entry_number(&entry, "peak_flops", run->progress.peak_flops);
    const char *passed_over;
    if (!strcmp(muster_trainer_device(run->trainer, &passed_over), "cpu"))
        entry_text(&entry, "blas", muster_fit_processor());
    report_add(run->report, &entry);
    scope_buffer settings = {0};
    if (!settings_text(c, &settings) && settings.data)
        report_add_text(run->report, "config", settings.data, entry.step);
}

void run_log_stage(struct run *run)
{
    const struct train_config *c = &run->config;
    struct entry entry = {.kind = ENTRY_STAGE, .step = muster_trainer_state_now(run->trainer).steps};
    if (!run->report || !run->stages.count)
        return;
    entry_integer(&entry, "stage", run->stages.number + 1);
    entry_integer(&entry, "stages", run->stages.count);
    if (run->stages.name)
        entry_text(&entry, "name", run->stages.name);
    entry_integer(&entry, "first_step", run->stages.first);
    entry_integer(&entry, "last_step", run_last_step(run));
    entry_integer(&entry, "sequence_length", c->sequence_length);
    entry_integer(&entry, "global_batch", c->global_batch);
    entry_number(&entry, "learning_rate", c->learning_rate);
    report_add(run->report, &entry);
}

static const char *variable_of_process(const char *name)
{
    return getenv(name);
}

static int64_t memory_of_machine(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && bytes > 0 ? (int64_t)pages * bytes : 0;
}

/* The beginning of a run's log has what W&B shows of its machine. */
static struct wandb_run tracked_run(const struct tracking_choice *choice, const char *settings,
                                    const char *host)
{
    static struct utsname machine;
    static char os[sizeof machine.sysname + sizeof machine.release + sizeof machine.machine];
    if (uname(&machine) == 0)
        (void)snprintf(os, sizeof os, "%s-%s-%s", machine.sysname, machine.release,
                       machine.machine); /* fits */
    return (struct wandb_run){.id = choice->id,
                              .project = choice->project,
                              .entity = choice->entity,
                              .name = choice->run_name,
                              .group = choice->group,
                              .notes = choice->notes,
                              .job_type = choice->job_type,
                              .tags = choice->tags,
                              .settings = settings,
                              .host = host,
                              .os = os,
                              .program = program_invocation_name,
                              .cpus = (int)sysconf(_SC_NPROCESSORS_ONLN),
                              .memory = memory_of_machine()};
}

static void show_tracking(const struct report *report)
{
    if (report_wandb_folder(report))
        printf("wandb: %s; upload it with: wandb sync %s\n", report_wandb_folder(report),
               report_wandb_folder(report));
    if (report_mlflow_folder(report))
        printf("mlflow: %s\n", report_mlflow_folder(report));
}

static int open_run_files(struct run *run, const struct tracking_choice *choice, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const char *restarts = getenv(ENV_RESTART_COUNT);
    char host[HOST_SIZE] = "localhost";
    (void)gethostname(host, sizeof host - 1); /* a file's name has another text then */
    scope_free char *json = is_set(c->log_json)     ? mem_strdup(c->log_json)
                            : is_set(c->log_folder) ? mem_printf("%s/log.jsonl", c->log_folder)
                                                    : mem_strdup("");
    scope_free char *events = is_set(c->log_folder) ? mem_printf("%s/tensorboard", c->log_folder) : NULL;
    scope_free char *memory = is_set(c->checkpoint_dir) ? mem_printf("%s/tracking", c->checkpoint_dir) : NULL;
    scope_buffer settings = {0};
    if (!json || (is_set(c->log_folder) && !events) || (is_set(c->checkpoint_dir) && !memory) ||
        settings_text(c, &settings) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the run's log");
    const struct report_options options = {
        .json_path = json,
        .tensorboard_folder = c->log_tensorboard ? events : NULL,
        .host = host,
        .step = muster_trainer_state_now(run->trainer).steps,
        .tracking = {.wandb_folder = choice->wandb_folder,
                     .wandb = tracked_run(choice, settings.data, host),
                     .mlflow_store = choice->mlflow_store,
                     .experiment = choice->experiment,
                     .memory_path = memory,
                     .goes_on = muster_trainer_state_now(run->trainer).steps > 0 ||
                                (restarts && strcmp(restarts, "0") != 0),
                     .step = muster_trainer_state_now(run->trainer).steps},
        .log = &warnings};
    run->report = report_open(&options, err);
    if (!run->report)
        return error_wrap(err, "logging");
    show_tracking(run->report);
    log_start(run);
    return 0;
}

static int open_report(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const struct tracking_wishes wishes = train_config_tracking(c);
    struct tracking_choice choice = {0};
    scope_buffer notes = {0};
    if (run->report || run->rank)
        return 0;
    int failed = tracking_choose(&wishes, variable_of_process, &choice, &notes, err);
    if (!failed && notes.data)
        log_warning(&warnings, "%.*s", (int)strcspn(notes.data, "\n"), notes.data);
    if (!failed &&
        (is_set(c->log_folder) || is_set(c->log_json) || choice.wandb_folder || choice.mlflow_store))
        failed = open_run_files(run, &choice, err);
    tracking_choice_free(&choice);
    return failed;
}

int run_log_open(struct run *run, struct muster_error *err)
{
    return muster_world_agree(run->world, open_report(run, err), err);
}

static double milliseconds(int64_t ns)
{
    return (double)ns / (double)NS_PER_MS;
}

/* W&B's figures of the machine, by its names. */
static void log_machine(struct run *run, const struct progress_step *step)
{
    const struct instant now = clock_now(NULL);
    struct entry entry = {.kind = ENTRY_STEP, .step = run->progress.done};
    if (run->stats_at.ns && instant_diff_ns(now, run->stats_at) < STATS_NS)
        return;
    run->stats_at = now;
    entry_number(&entry, "proc.memory.rssMB", (double)step->resident_bytes / (1 << 20));
    if (step->has_gpu && step->gpu_busy >= 0)
        entry_number(&entry, "gpu.0.gpu", 100 * step->gpu_busy);
    if (step->has_gpu && step->gpu_total) {
        entry_integer(&entry, "gpu.0.memoryAllocatedBytes", step->gpu_used);
        entry_number(&entry, "gpu.0.memoryAllocated",
                     100.0 * (double)step->gpu_used / (double)step->gpu_total);
    }
    report_add_machine(run->report, &entry);
}

void run_log_step(struct run *run, const struct progress_step *step, const struct muster_result *result)
{
    struct entry entry = {.kind = ENTRY_STEP, .step = run->progress.done};
    if (!run->report)
        return;
    entry_number(&entry, "loss", result->loss);
    entry_number(&entry, "learning_rate", result->learning_rate);
    entry_number(&entry, "grad_norm", result->grad_norm);
    entry_integer(&entry, "tokens", result->targets);
    if (run_classifies(run))
        entry_number(&entry, "accuracy", 100 * result->correct / (double)result->targets);
    entry_number(&entry, "tokens_per_s", progress_rate(&run->progress));
    entry_number(&entry, "mfu", progress_mfu(&run->progress, step));
    entry_number(&entry, "step_ms", milliseconds(step->step_ns));
    entry_number(&entry, "comm_ms", milliseconds(step->comm_ns));
    entry_number(&entry, "exposed_ms", milliseconds(step->exposed_ns));
    entry_number(&entry, "data_wait_ms", milliseconds(step->data_wait_ns));
    entry_integer(&entry, "memory", step->resident_bytes);
    entry_number(&entry, "loss_scale", result->loss_scale);
    entry_flag(&entry, "skipped", result->skipped != 0);
    entry_number(&entry, "loss_z", run->watch.loss_z);
    entry_number(&entry, "grad_norm_z", run->watch.grad_norm_z);
    entry_integer(&entry, "slow_rank", run->watch.streak.named ? run->watch.streak.rank : -1);
    entry_number(&entry, "slow_ms", run->watch.streak.named ? run->watch.slow.late_ms : 0);
    if (step->has_gpu && step->gpu_busy >= 0)
        entry_number(&entry, "gpu_utilization", step->gpu_busy);
    if (step->has_gpu && step->gpu_total)
        entry_integer(&entry, "gpu_memory", step->gpu_used);
    report_add(run->report, &entry);
    log_machine(run, step);
}

void run_log_evaluation(struct run *run, int64_t step)
{
    const struct run_evaluation *e = &run->evaluation;
    struct entry entry = {.kind = ENTRY_EVALUATION, .step = step};
    if (!run->report)
        return;
    entry_number(&entry, "loss", e->loss);
    if (run_classifies(run)) {
        entry_number(&entry, "accuracy", e->accuracy);
        entry_number(&entry, "precision", e->precision);
        entry_number(&entry, "recall", e->recall);
        entry_number(&entry, "f1", e->f1);
    } else {
        entry_number(&entry, "perplexity", exp(e->loss));
    }
    entry_integer(&entry, "tokens", e->counted);
    entry_number(&entry, "ms", milliseconds(e->ns));
    entry_flag(&entry, "best", e->best);
    entry_integer(&entry, "best_step", muster_trainer_state_now(run->trainer).best_step);
    entry_number(&entry, "best_loss", muster_trainer_state_now(run->trainer).best_loss);
    entry_integer(&entry, "without_gain", muster_trainer_state_now(run->trainer).evaluations_without_gain);
    report_add(run->report, &entry);
}

void run_log_sample(const struct run *run, const char *text, size_t length)
{
    const struct train_config *c = &run->config;
    struct muster_error err = {0};
    if (run->rank || !is_set(c->log_folder))
        return;
    scope_free char *path = mem_printf("%s/sample.txt", c->log_folder);
    if (!path || io_write_file_atomic(path, text, length, 0666, &err) < 0) /* the console has it */
        fprintf(stderr, "muster-train: warning: no file of the sample: %s\n", path ? err.text : "no memory");
}

void run_log_close(struct run *run)
{
    struct entry entry = {.kind = ENTRY_END, .step = run->progress.done};
    entry_flag(&entry, "finished", run->progress.done == run_last_step(run) && run_is_last_stage(run));
    report_add(run->report, &entry);
    report_end(run->report, run->progress.done == run_last_step(run) && run_is_last_stage(run) ? 0
                            : run->cut_short                                                   ? 128 + SIGTERM
                                                                                               : 1);
    report_close(run->report);
    run->report = NULL;
}
