/* log.c - observer `log`: the entries of a run's log in files (trainer/report), made on rank 0. It stays open
 * over the stages of a training. See observers.h. */
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
#include "trainer/report/report.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/inputs.h"
#include "trainer/run/observers.h"
#include "trainer/run/stages.h"
#include "trainer/run/stop.h"

enum { HOST_SIZE = 256 };
#define STATS_NS (15 * NS_PER_S) /* as often as W&B's own */

struct run_log {
    struct report *report;
    struct instant machine_at; /* last figures of the machine; 0: never */
};

/* NULL: no log, or another rank than 0. */
static struct report *report_of(const struct run *run)
{
    const struct run_log *log = run->observers[OBSERVER_log];
    return log ? log->report : NULL;
}

static bool is_set(const char *text)
{
    return text && *text;
}

/* All settings that were set, for TensorBoard: Markdown keeps lines that begin with four blanks. */
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

static void log_start(struct run *run, struct report *report)
{
    const struct train_config *c = &run->config;
    const struct muster_trainer_state state = run_state(run);
    struct entry entry = {.kind = ENTRY_START, .step = state.steps};
    entry_integer(&entry, "steps", run->progress.steps);
    entry_text(&entry, "model", muster_model_architecture(run->model));
    entry_integer(&entry, "parameters", state.parameters);
    entry_text(&entry, "strategy", train_config_strategy(c));
    entry_integer(&entry, "world_size", run->world_size);
    entry_integer(&entry, "micro_batches", state.micro_batches);
    entry_integer(&entry, "global_batch", c->global_batch);
    entry_integer(&entry, "sequence_length", c->sequence_length);
    entry_integer(&entry, "planned_memory", run->progress.planned_bytes);
    entry_number(&entry, "step_flops", run->progress.step_flops);
    entry_number(&entry, "peak_flops", run->progress.peak_flops);
    const char *library;
    (void)muster_trainer_products(run->trainer, &library, NULL);
    if (!strcmp(muster_trainer_device(run->trainer, NULL), "cpu"))
        entry_text(&entry, "blas", library);
    report_add(report, &entry);
    scope_buffer settings = {0};
    if (!settings_text(c, &settings) && settings.data)
        report_add_text(report, "config", settings.data, entry.step);
}

/* A stage begins, or goes on. */
static void log_stage(struct run *run)
{
    const struct train_config *c = &run->config;
    const struct stage stage = stages_now(run);
    struct entry entry = {.kind = ENTRY_STAGE, .step = run_state(run).steps};
    if (!report_of(run) || !stage.count)
        return;
    entry_integer(&entry, "stage", stage.number + 1);
    entry_integer(&entry, "stages", stage.count);
    if (stage.name)
        entry_text(&entry, "name", stage.name);
    entry_integer(&entry, "first_step", run->progress.first);
    entry_integer(&entry, "last_step", run->progress.steps);
    entry_integer(&entry, "sequence_length", c->sequence_length);
    entry_integer(&entry, "global_batch", c->global_batch);
    entry_number(&entry, "learning_rate", c->learning_rate);
    report_add(report_of(run), &entry);
}

static const char *variable_of_process(const char *name)
{
    return getenv(name);
}

/* The beginning of a run's log has what W&B shows of its machine. */
static struct wandb_run tracked_run(const struct tracking_choice *choice, const char *settings,
                                    const char *host)
{
    static struct utsname machine;
    static char os[sizeof machine.sysname + sizeof machine.release + sizeof machine.machine];
    const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
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
                              .memory = pages > 0 && bytes > 0 ? (int64_t)pages * bytes : 0};
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
    const int64_t steps = run_state(run).steps;
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
        .step = steps,
        .tracking = {.wandb_folder = choice->wandb_folder,
                     .wandb = tracked_run(choice, settings.data, host),
                     .mlflow_store = choice->mlflow_store,
                     .experiment = choice->experiment,
                     .memory_path = memory,
                     .goes_on = steps > 0 || (restarts && strcmp(restarts, "0") != 0),
                     .step = steps},
        .log = console_warnings()};
    struct report *report = report_open(&options, err);
    if (!report)
        return error_wrap(err, "logging");
    struct run_log *log = run->observers[OBSERVER_log];
    log->report = report;
    show_tracking(report);
    log_start(run, report);
    return 0;
}

static int open_report(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const struct tracking_wishes wishes = train_config_tracking(c);
    struct tracking_choice choice = {0};
    scope_buffer notes = {0};
    if (report_of(run) || run->rank)
        return 0;
    if (!run->observers[OBSERVER_log])
        run->observers[OBSERVER_log] = mem_calloc(1, sizeof(struct run_log));
    if (!run->observers[OBSERVER_log])
        return error_set(err, MUSTER_E_NOMEM, "no memory for the run's log");
    int failed = tracking_choose(&wishes, variable_of_process, &choice, &notes, err);
    if (!failed && notes.data)
        log_warning(console_warnings(), "%.*s", (int)strcspn(notes.data, "\n"), notes.data);
    if (!failed &&
        (is_set(c->log_folder) || is_set(c->log_json) || choice.wandb_folder || choice.mlflow_store))
        failed = open_run_files(run, &choice, err);
    tracking_choice_free(&choice);
    return failed;
}

/* Collective: an error of rank 0 is an error of all ranks. */
static int open_log(struct run *run, struct muster_error *err)
{
    if (muster_world_agree(run->world, open_report(run, err), err) < 0)
        return -1;
    log_stage(run);
    return 0;
}

static double milliseconds(int64_t ns)
{
    return (double)ns / (double)NS_PER_MS;
}

/* W&B's figures of the machine, by its names. */
static void log_machine(struct run *run, struct run_log *log, const struct progress_step *step)
{
    const struct instant now = clock_now(NULL);
    struct entry entry = {.kind = ENTRY_STEP, .step = run->progress.done};
    if (log->machine_at.ns && instant_diff_ns(now, log->machine_at) < STATS_NS)
        return;
    log->machine_at = now;
    entry_number(&entry, "proc.memory.rssMB", (double)step->resident_bytes / (1 << 20));
    if (step->has_gpu && step->gpu_busy >= 0)
        entry_number(&entry, "gpu.0.gpu", 100 * step->gpu_busy);
    if (step->has_gpu && step->gpu_total) {
        entry_integer(&entry, "gpu.0.memoryAllocatedBytes", step->gpu_used);
        entry_number(&entry, "gpu.0.memoryAllocated",
                     100.0 * (double)step->gpu_used / (double)step->gpu_total);
    }
    report_add_machine(log->report, &entry);
}

static int step_log(struct run *run, struct run_step *record, struct muster_error *err)
{
    const struct progress_step *step = &record->figures;
    const struct muster_result *result = &record->result;
    struct entry entry = {.kind = ENTRY_STEP, .step = run->progress.done};
    (void)err; /* a file that cannot be written is a warning */
    if (!report_of(run))
        return 0;
    entry_number(&entry, "loss", result->loss);
    entry_number(&entry, "learning_rate", result->learning_rate);
    entry_number(&entry, "grad_norm", result->grad_norm);
    entry_integer(&entry, "tokens", result->targets);
    if (inputs_classify(run->inputs))
        entry_number(&entry, "accuracy", 100 * result->correct / (double)result->targets);
    entry_number(&entry, "tokens_per_s", progress_rate(&run->progress));
    entry_number(&entry, "mfu", progress_mfu(&run->progress, step));
    entry_number(&entry, "step_ms", milliseconds(step->step_ns));
    entry_number(&entry, "comm_ms", milliseconds(step->comm_ns));
    entry_number(&entry, "exposed_ms", milliseconds(step->exposed_ns));
    entry_number(&entry, "data_wait_ms", milliseconds(step->data_wait_ns));
    if (run->config.compression) {
        entry_integer(&entry, "wire_bytes", step->wire_bytes);
        entry_number(&entry, "compression_error", step->compression_error);
    }
    entry_integer(&entry, "memory", step->resident_bytes);
    entry_number(&entry, "loss_scale", result->loss_scale);
    entry_flag(&entry, "skipped", result->skipped != 0);
    entry_number(&entry, "loss_z", record->loss_z);
    entry_number(&entry, "grad_norm_z", record->grad_norm_z);
    entry_integer(&entry, "slow_rank", record->slow_rank);
    entry_number(&entry, "slow_ms", record->slow_ms);
    if (step->has_gpu && step->gpu_busy >= 0)
        entry_number(&entry, "gpu_utilization", step->gpu_busy);
    if (step->has_gpu && step->gpu_total)
        entry_integer(&entry, "gpu_memory", step->gpu_used);
    report_add(report_of(run), &entry);
    log_machine(run, run->observers[OBSERVER_log], step);
    return 0;
}

static void evaluation_log(struct run *run, int64_t step)
{
    const struct evaluation_figures *e = evaluation_last(run);
    const struct muster_trainer_state state = run_state(run);
    struct entry entry = {.kind = ENTRY_EVALUATION, .step = step};
    if (!report_of(run))
        return;
    entry_number(&entry, "loss", e->loss);
    if (inputs_classify(run->inputs)) {
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
    entry_integer(&entry, "best_step", state.best_step);
    entry_number(&entry, "best_loss", state.best_loss);
    entry_integer(&entry, "without_gain", state.evaluations_without_gain);
    report_add(report_of(run), &entry);
}

/* ---- entries of other parts ---- */

void log_warning_entry(struct run *run, const char *text)
{
    struct entry entry = {.kind = ENTRY_WARNING, .step = run->progress.done};
    entry_text(&entry, "text", text);
    report_add(report_of(run), &entry);
}

void log_command(struct run *run, int64_t step, const struct muster_error *result)
{
    const struct muster_trainer_state state = run_state(run);
    struct entry entry = {.kind = ENTRY_COMMAND, .step = step};
    entry_flag(&entry, "saved", !result->code);
    entry_number(&entry, "ms", milliseconds(state.command_ns));
    entry_integer(&entry, "last_step", state.command_step);
    if (result->code)
        entry_text(&entry, "text", result->text);
    report_add(report_of(run), &entry);
}

void log_sample(const struct run *run, const char *text, size_t length)
{
    const struct train_config *c = &run->config;
    struct muster_error err = {0};
    if (run->rank || !is_set(c->log_folder))
        return;
    scope_free char *path = mem_printf("%s/sample.txt", c->log_folder);
    if (!path || io_write_file_atomic(path, text, length, 0666, &err) < 0) /* the console has it */
        fprintf(stderr, "muster-train: warning: no file of the sample: %s\n", path ? err.text : "no memory");
}

static void close_log(struct run *run)
{
    const bool finished =
        run->progress.steps && run->progress.done == run->progress.steps && stages_is_last(run);
    struct entry entry = {.kind = ENTRY_END, .step = run->progress.done};
    struct report *report = report_of(run);
    entry_flag(&entry, "finished", finished);
    report_add(report, &entry);
    report_end(report, finished ? 0 : stop_cuts_short(run) ? 128 + SIGTERM : 1);
    report_close(report);
    mem_free(run->observers[OBSERVER_log]);
    run->observers[OBSERVER_log] = NULL;
}

const struct observer log_observer = {
    .open = open_log, .step = step_log, .evaluation = evaluation_log, .close = close_log};
