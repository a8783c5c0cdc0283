/* muster_train.c - the program muster-train: a configuration file in, a trained model and a sample of its
 * text out.
 *
 * main is a list of steps; everything that can be tested alone is in the files that it calls. Rank 0
 * prints; other ranks print errors only. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "proto/exit_code.h"
#include "runtime/app/checkpoints.h"
#include "runtime/app/next_batch.h"
#include "runtime/app/prediction.h"
#include "runtime/app/progress.h"
#include "runtime/app/train_file.h"
#include "runtime/config/train_settings.h"
#include "runtime/include/muster.h"
#include "runtime/train/data.h"

enum { OVERRIDE_LIMIT = 64, SMAPS_LIMIT = 1 << 16 };
enum { SKIPS_IN_A_ROW = 20 }; /* steps that change nothing; a dynamic loss scale has its own end */
/* The kernel walks all pages for the resident size: not for every step. */
#define RESIDENT_NS NS_PER_S

struct command {
    const char *config_path;
    char *overrides[OVERRIDE_LIMIT];
    int override_count;
    bool plan, predict, help, version;
    int32_t format;     /* of --plan: enum muster_plan_format */
    int64_t world_size; /* for --plan; 0: the current world */
};

/* One run of one rank. */
struct run {
    struct train_config config;
    struct muster_world *world;
    struct muster_model *model;
    struct data *data;
    struct muster_trainer *trainer;
    char **settings; /* of the trainer */
    int rank, world_size, micro_batches;
    int skipped; /* steps in a row */
    struct next_batch *next;
    struct progress progress;
    struct checkpoints checkpoints;
    bool listens, noticed;  /* for stop notices; of one */
    struct instant ends;    /* by that notice */
    bool cut_short;         /* all ranks have stopped for a notice or SIGTERM, before the last step */
    int64_t resident_bytes; /* measured at resident_at */
    struct instant resident_at;
    bool terminal, line_open; /* an unterminated progress line is on the terminal */
};

static int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int usage_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("muster-train: error: ", stderr);
    vfprintf(stderr, format, args);
    fputs(" (muster-train --help)\n", stderr);
    va_end(args);
    return -1;
}

static int take_option(struct command *command, char *const argv[], int argc, int *at)
{
    const char *name = argv[*at];
    bool set = !strcmp(name, "--set"), world = !strcmp(name, "--world-size");
    if (!strcmp(name, "--plan"))
        command->plan = true;
    else if (!strcmp(name, "--predict"))
        command->predict = true;
    else if (!strcmp(name, "--verbose"))
        command->format = MUSTER_PLAN_WHOLE;
    else if (!strcmp(name, "--output=json"))
        command->format = MUSTER_PLAN_JSON;
    else if (!strcmp(name, "--help") || !strcmp(name, "-h"))
        command->help = true;
    else if (!strcmp(name, "--version"))
        command->version = true;
    else if ((set || world) && *at + 1 >= argc)
        return usage_error("%s needs a value", name);
    else if (set && command->override_count == OVERRIDE_LIMIT)
        return usage_error("more than %d --set", OVERRIDE_LIMIT);
    else if (set)
        command->overrides[command->override_count++] = argv[++*at];
    else if (world) {
        const char *value = argv[++*at];
        if (!text_int64(value, &command->world_size) || command->world_size < 1 ||
            command->world_size > 1 << 20)
            return usage_error("--world-size: '%s' is not a number of ranks from 1 to 1048576", value);
    } else {
        static const char *const known[] = {"--plan",        "--predict",    "--verbose", "--set",
                                            "--output=json", "--world-size", "--help",    "--version"};
        const char *nearest = text_nearest(name, known, sizeof known / sizeof *known);
        return usage_error("unknown option '%s'%s%s%s", name, nearest ? "; did you mean '" : "",
                           nearest ? nearest : "", nearest ? "'?" : "");
    }
    return 0;
}

static int parse_command(int argc, char *const argv[], struct command *command)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            if (take_option(command, argv, argc, &i) < 0)
                return -1;
        } else if (command->config_path) {
            return usage_error("one configuration file at a time: '%s' and '%s'", command->config_path,
                               argv[i]);
        } else {
            command->config_path = argv[i];
        }
    }
    if (command->world_size && !command->plan)
        return usage_error("--world-size goes with --plan");
    if (command->predict && !command->plan)
        return usage_error("--predict goes with --plan");
    if (command->format && !command->plan)
        return usage_error("--verbose and --output=json go with --plan");
    if (!command->config_path && !command->help && !command->version)
        return usage_error("no configuration file was named");
    return 0;
}

static int print_help(void)
{
    scope_buffer out = {0};
    buffer_text(&out, "usage: muster-train CONFIG.yaml [--set key=value ...] [--plan [--world-size N] "
                      "[--predict] [--verbose | --output=json]]\n\n"
                      "Trains a model without Python: alone, or as every rank of `muster run` or torchrun.\n"
                      "--plan prints the bytes that each rank will hold, by kind, and trains nothing;\n"
                      "--predict adds what a step takes, from a measurement of its parts on this machine; "
                      "it takes as long as a few steps.\n"
                      "--verbose adds every buffer and every operation of a step; --output=json prints one "
                      "JSON object. With\n"
                      "training.memory_limit a plan that is larger is refused with the changes that make it "
                      "fit.\n\nKeys of CONFIG.yaml, by section:\n\n");
    if (knob_help(train_config_table(), KNOB_HELP_COLUMNS, &out) < 0)
        return EXIT_CODE_FAILURE;
    return fputs(out.data, stdout) < 0 || fflush(stdout) ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}

/* Whether the user can fix it: invalid input, or a plan that does not fit into memory. */
static bool is_usage(int code)
{
    return code == MUSTER_E_INVALID || code == MUSTER_E_NOT_FOUND || code == MUSTER_E_UNSUPPORTED ||
           code == MUSTER_E_LIMIT || code == MUSTER_E_NOMEM || code == MUSTER_E_REFUSED;
}

static int run_fail(const struct run *run, const struct muster_error *err)
{
    if (run->line_open) {
        printf("\n");
        (void)fflush(stdout); /* the error is printed on standard error */
    }
    if (run->world_size > 1)
        fprintf(stderr, "muster-train: rank %d: error: %s\n", run->rank, err->text);
    else
        fprintf(stderr, "muster-train: error: %s\n", err->text);
    return is_usage(err->code) ? EXIT_CODE_USAGE : EXIT_CODE_FAILURE;
}

/* A model whose files give its sizes. */
static int open_path(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    run->model = muster_model_open(c->model_path, NULL, err);
    if (!run->model)
        return -1;
    const char *found = muster_model_architecture(run->model);
    if (c->architecture == TRAIN_ARCHITECTURE_AUTO || !strcmp(found, train_config_architecture(c)))
        return 0;
    return error_set(err, MUSTER_E_INVALID, "model.path %s is a %s, but model.architecture is %s",
                     c->model_path, found, train_config_architecture(c));
}

static int open_model(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    char **texts = train_settings_texts(c, "model");
    run->settings = train_settings_texts(c, "training");
    int result = 0;
    if (!texts || !run->settings)
        result = error_set(err, MUSTER_E_NOMEM, "no memory for the settings");
    else if (!train_config_gives_sizes(c))
        result = open_path(run, err);
    else
        run->model = muster_model_open(train_config_architecture(c), (const char *const *)texts, err);
    train_settings_free(texts);
    return run->model ? result : -1;
}

static int print_plan(struct run *run, const struct command *command, struct muster_error *err)
{
    const int world_size = command->world_size ? (int)command->world_size : 1;
    if (open_model(run, err) < 0)
        return -1;
    const char *const *settings = (const char *const *)run->settings;
    int64_t length = muster_plan_text(run->model, world_size, settings, command->format, NULL, 0, err);
    scope_free char *text = length < 0 ? NULL : mem_calloc((size_t)length + 1, 1);
    if (length >= 0 && !text)
        return error_set(err, MUSTER_E_NOMEM, "no memory to print the plan");
    if (length < 0 ||
        muster_plan_text(run->model, world_size, settings, command->format, text, length + 1, err) < 0)
        return -1;
    struct muster_prediction prediction = {.size = sizeof prediction};
    scope_buffer out = {0};
    const bool json = command->format == MUSTER_PLAN_JSON;
    if (command->predict && muster_plan_predict(run->model, world_size, settings, &prediction, err) < 0)
        return -1;
    if (prediction_text(text, command->predict ? &prediction : NULL, world_size, json, &out) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to print the plan");
    if (fputs(out.data, stdout) < 0 || fflush(stdout))
        return error_errno(err, "cannot print the plan");
    return muster_plan_fits(run->model, world_size, settings, err);
}

static bool saves(const struct run *run)
{
    return run->config.output && *run->config.output;
}

/* Errors in this rank's input, found before any rank waits for another. */
static int open_inputs(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    if (open_model(run, err) < 0 ||
        train_config_accumulation(c, run->world_size, &run->micro_batches, err) < 0)
        return -1;
    run->data = data_open(c->path, (int)c->sequence_length, (uint64_t)c->seed, err);
    if (!run->data) {
        if (err->code == MUSTER_E_IO)
            err->code = MUSTER_E_INVALID; /* unreadable data is bad input, like missing data */
        return -1;
    }
    run->next = next_batch_create(&(struct next_batch_options){.data = run->data,
                                                               .rank = run->rank,
                                                               .world_size = run->world_size,
                                                               .micro_batches = run->micro_batches,
                                                               .micro_batch = (int)c->micro_batch,
                                                               .positions = (int)c->sequence_length},
                                  err);
    if (!run->next)
        return -1;
    return run->rank == 0 && saves(run) ? muster_export_probe(c->output, train_config_output_format(c), err)
                                        : 0;
}

static int open_run(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const double tokens = (double)(c->global_batch * c->sequence_length); /* all of them count */
    if (muster_world_agree(run->world, open_inputs(run, err), err) < 0)
        return -1;
    run->trainer = muster_trainer_open(run->world, run->model, (const char *const *)run->settings, err);
    if (!run->trainer)
        return -1;
    run->checkpoints = (struct checkpoints){
        .config = c, .trainer = run->trainer, .rank = run->rank, .world_size = run->world_size, .last = -1};
    int resumed = checkpoints_wanted(c) ? checkpoints_resume(&run->checkpoints, err) : 0;
    if (resumed < 0 || (!resumed && c->model_path && *c->model_path &&
                        muster_trainer_load(run->trainer, c->model_path, err) < 0))
        return -1;
    double limit_s;
    if (muster_trainer_limit(run->trainer, &limit_s, err) < 0) /* on all ranks at once */
        return -1;
    run->progress.limit_ns = limit_s * (double)NS_PER_S;
    return muster_trainer_set(run->trainer, "targets", tokens, err);
}

static long long figure(const struct run *run, const char *name)
{
    return (long long)muster_trainer_figure(run->trainer, name);
}

/* As in training.dtype. */
static const char *precision_name(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? "fp32" : dtype == DTYPE_F16 ? "fp16" : "bf16";
}

static void say_start(struct run *run)
{
    const struct train_config *c = &run->config;
    char bytes[32], replicas[32] = "";
    run->progress.planned_bytes = figure(run, "planned_bytes");
    run->progress.steps = c->steps;
    run->progress.tokens_per_step = c->global_batch * c->sequence_length;
    if (run->rank)
        return;
    if (c->strategy == STRATEGY_HYBRID_SHARD)
        (void)snprintf(replicas, sizeof replicas, " in %lld replicas", figure(run, "replicas")); /* fits */
    printf("data: %s, %d files, %lld tokens\n", c->path, data_files(run->data),
           (long long)data_tokens(run->data));
    printf("model: %s, %lld parameters in %lld groups; %s over %d ranks%s, %lld threads each; %s a rank "
           "planned, %lld gathers in flight\n",
           muster_model_architecture(run->model), figure(run, "parameters"), figure(run, "groups"),
           train_config_strategy(c), run->world_size, replicas, figure(run, "threads"),
           text_format_bytes(bytes, sizeof bytes, run->progress.planned_bytes),
           figure(run, "gathers_in_flight"));
    if (muster_trainer_figure(run->trainer, "dropout") > 0)
        printf("model.path's config.json has a dropout of %g, which is not applied\n",
               muster_trainer_figure(run->trainer, "dropout"));
    const enum dtype moves = train_config_dtype(c), reduces = train_config_reduce_dtype(c);
    if (moves != DTYPE_F32 || reduces != DTYPE_F32)
        printf("precision: parameters are kept and gathered in %s, gradients reduced in %s; on CPUs that is "
               "storage and traffic: arithmetic, masters and optimizer state are %s\n",
               precision_name(moves), precision_name(reduces), precision_name(DTYPE_F32));
    printf("batch: %lld sequences of %lld tokens a step, %d micro-batches of %lld a rank\n",
           (long long)c->global_batch, (long long)c->sequence_length, run->micro_batches,
           (long long)c->micro_batch);
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

static void show_progress(struct run *run, struct progress_step *step, bool last)
{
    if (run->rank || (run->progress.done % run->config.interval && !last))
        return;
    struct instant now = clock_now(NULL);
    if (last || !run->resident_bytes || instant_diff_ns(now, run->resident_at) >= RESIDENT_NS) {
        run->resident_bytes = resident_bytes();
        run->resident_at = now;
    }
    step->resident_bytes = run->resident_bytes;
    scope_buffer line = {0};
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
    run->cut_short = asked || (run->noticed && run->world_size == 1);
    return 0;
}

static const char *param_name(const struct run *run, int param)
{
    return param < 0 ? "no single parameter" : muster_trainer_parameter_name(run->trainer, param);
}

static void say_skipped(const struct run *run, int64_t step, const struct muster_result *result)
{
    if (run->rank)
        return;
    fprintf(
        stderr,
        "muster-train: warning: step %lld: the gradient of %s is not finite (rank %d has it); the step was "
        "skipped",
        (long long)step + 1, param_name(run, result->nonfinite), result->nonfinite_rank);
    if (result->loss_scale > 0)
        fprintf(stderr, ", at loss scale %g", result->loss_scale);
    fputs("\n", stderr);
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
                     (long long)step + 1, loss, param_name(run, param), rank, run->config.learning_rate);
}

/* All of it is equal on every rank. */
static int check_result(struct run *run, int64_t step, const struct muster_result *result,
                        struct muster_error *err)
{
    const struct train_config *c = &run->config;
    run->skipped = result->skipped ? run->skipped + 1 : 0;
    if (result->skipped)
        say_skipped(run, step, result);
    if (run->skipped == SKIPS_IN_A_ROW && !(result->loss_scale > 0))
        return error_set(err, MUSTER_E_STATE,
                         "%d steps in a row, up to step %lld, were skipped: the gradient of %s is not "
                         "finite, and nothing changes any more; lower training.learning_rate (%g)",
                         SKIPS_IN_A_ROW, (long long)step + 1, param_name(run, result->nonfinite),
                         c->learning_rate);
    if (!isfinite(result->loss) && c->clip_norm == 0 && !train_config_checks(c))
        return say_nonfinite(run, step, result->loss, err);
    return 0;
}

static int take_step(struct run *run, int64_t step, struct muster_result *result, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const int32_t *tokens, *targets;
    next_batch_take(run->next, figure(run, "taken"), &tokens, &targets);
    const void *const arrays[] = {tokens, targets};
    *result = (struct muster_result){.size = sizeof *result};
    if (muster_trainer_set(run->trainer, "stop", run->noticed, err) < 0 ||
        checkpoints_ask(&run->checkpoints, err) < 0 ||
        muster_trainer_train(run->trainer, arrays, run->micro_batches * c->micro_batch, result, err) < 0)
        return error_wrap(err, "step %lld", (long long)step + 1);
    return check_result(run, step, result, err);
}

static void say_end(struct run *run)
{
    const int64_t done = run->progress.done, count = progress_losses(&run->progress);
    if (run->cut_short && checkpoints_wanted(&run->config))
        fprintf(stderr,
                "muster-train: warning: a stop was announced: all ranks end after step %lld of %lld\n",
                (long long)done, (long long)run->config.steps);
    else if (run->cut_short)
        fprintf(stderr,
                "muster-train: warning: a stop was announced: all ranks end after step %lld of %lld; "
                "training.checkpoint_dir is not set, so the next round restarts at step 1%s\n",
                (long long)done, (long long)run->config.steps,
                saves(run) ? "; the current parameters are saved" : "");
    if (count)
        printf("mean loss of the last %lld steps: %.4f\n", (long long)count,
               progress_mean_loss(&run->progress));
    else
        printf("all %lld steps had been done already\n", (long long)done);
}

/* After a step: the checkpoint that is due, if one is. */
static int save_state(struct run *run, int64_t step, bool asked, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const bool ends = step == c->steps || run->cut_short;
    if (!checkpoints_wanted(c) ||
        !(asked || ends || (c->checkpoint_every > 0 && step % c->checkpoint_every == 0)))
        return 0;
    if (muster_heartbeat(-1, err) < 0) /* it takes longer than a step */
        return -1;
    if (run->line_open && run->rank == 0)
        printf("\n");
    run->line_open = false;
    if (run->cut_short && run->ends.ns != INT64_MAX)
        checkpoints_estimate(&run->checkpoints,
                             (double)instant_diff_ns(run->ends, clock_now(NULL)) / (double)NS_PER_S);
    checkpoints_write(&run->checkpoints, step);
    return 0;
}

static int train(struct run *run, struct muster_error *err)
{
    const int64_t steps = run->config.steps, begun = figure(run, "steps");
    run->progress.begun = run->progress.done = begun;
    for (int64_t step = begun; step < steps && !run->cut_short; step++) {
        struct muster_result result;
        if (take_step(run, step, &result, err) < 0)
            return -1;
        struct progress_step shown = {.loss = result.loss,
                                      .learning_rate = result.learning_rate,
                                      .grad_norm = result.grad_norm,
                                      .step_ns = result.step_ns,
                                      .comm_ns = result.comm_ns,
                                      .exposed_ns = result.exposed_ns};
        progress_add(&run->progress, &shown);
        bool final = step + 1 == steps;
        if (!final && look_for_notice(run, result.stop, err) < 0)
            return -1;
        show_progress(run, &shown, final || run->cut_short);
        if (muster_heartbeat(step, err) < 0 || save_state(run, step + 1, result.checkpoint, err) < 0)
            return -1;
    }
    if (muster_heartbeat(-1, err) < 0) /* the remaining work takes longer than a step */
        return -1;
    if (run->rank == 0)
        say_end(run);
    return 0;
}

/* ---- the sample ---- */

enum { BYTES = 256 }; /* tokens that are bytes */

/* The prompt's bytes as tokens; an empty one is a newline. */
static int32_t *prompt_tokens(const struct run *run, int64_t *count)
{
    const char *prompt = run->config.sample_prompt;
    if (!prompt || !*prompt)
        prompt = "\n";
    *count = (int64_t)strlen(prompt);
    int32_t *tokens = mem_calloc((size_t)*count, sizeof *tokens);
    for (int64_t i = 0; tokens && i < *count; i++)
        tokens[i] = (unsigned char)prompt[i];
    return tokens;
}

static int print_sample(const struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    int64_t prompt_count;
    scope_free int32_t *prompt = prompt_tokens(run, &prompt_count);
    scope_free int32_t *tokens = mem_calloc((size_t)c->sample_length, sizeof *tokens);
    if (!prompt || !tokens)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the sample");
    if (muster_trainer_generate(run->trainer, prompt, prompt_count, c->sample_temperature, (uint64_t)c->seed,
                                BYTES, tokens, c->sample_length, err) < 0)
        return -1;
    if (run->rank)
        return 0;
    printf("sample:\n");
    for (int64_t i = 0; i < c->sample_length; i++)
        (void)putc(tokens[i], stdout); /* an error stays in the stream, for the end */
    printf("\n");
    return fflush(stdout) ? error_errno(err, "cannot print the sample") : 0;
}

static int run_finish(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    if (saves(run) && !(run->cut_short && checkpoints_wanted(c))) {
        if (muster_trainer_export(run->trainer, c->output, train_config_output_format(c), err) < 0)
            return -1;
        if (run->rank == 0)
            printf("saved %s\n", c->output);
    }
    if (!c->sample_length || run->cut_short) /* there may not be enough time */
        return 0;
    return print_sample(run, err);
}

static void close_run(struct run *run)
{
    muster_trainer_close(&run->trainer);
    next_batch_destroy(run->next); /* before what it reads */
    data_destroy(run->data);
    muster_model_free(run->model);
    train_settings_free(run->settings);
    muster_world_close(&run->world);
    train_config_free(&run->config);
}

static int run_training(struct run *run, struct muster_error *err)
{
    const struct muster_world_options options = {.size = sizeof options,
                                                 .timeout_ms = (int64_t)(run->config.timeout_s * 1000)};
    run->world = muster_world_open(&options, err);
    if (!run->world)
        return -1;
    run->rank = muster_world_rank(run->world);
    run->world_size = muster_world_size(run->world);
    run->terminal = isatty(STDOUT_FILENO);
    if (open_run(run, err) < 0)
        return -1;
    int listens = muster_notice_listen(err);
    if (listens < 0)
        return -1;
    run->listens = listens > 0;
    run->ends = INSTANT_NEVER;
    if (checkpoints_wanted(&run->config) && checkpoints_listen(!run->listens, err) < 0)
        return -1;
    say_start(run);
    if (train(run, err) < 0)
        return -1;
    return run_finish(run, err);
}

/* If standard input, output or error were closed, the next file or socket would take its number and the
 * progress lines would go into it. SIGPIPE is ignored: a reader that closes our output must not kill us in
 * the middle of a step; every print checks its result. */
static int guard_output(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) /* it takes the lowest number: fd */
            return -1;
    }
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    return sigaction(SIGPIPE, &ignore, NULL);
}

int main(int argc, char *argv[])
{
    struct command command = {0};
    struct muster_error err = {0};
    struct run run = {.world_size = 1};
    if (guard_output() < 0)
        return EXIT_CODE_FAILURE; /* there is nowhere to report it */
    if (parse_command(argc, argv, &command) < 0)
        return EXIT_CODE_USAGE;
    if (command.help)
        return print_help();
    if (command.version)
        return printf("muster-train %s\n", muster_version()) < 0 || fflush(stdout) ? EXIT_CODE_FAILURE
                                                                                   : EXIT_CODE_OK;
    int result =
        train_config_read(command.config_path, command.overrides, command.override_count, &run.config, &err);
    if (!result)
        result = command.plan ? print_plan(&run, &command, &err) : run_training(&run, &err);
    int code = result < 0 ? run_fail(&run, &err) : EXIT_CODE_OK;
    if (!code && run.cut_short && checkpoints_terminated())
        code = EXIT_CODE_TERMINATED;
    close_run(&run);
    return code;
}
