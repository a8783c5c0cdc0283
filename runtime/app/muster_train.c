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
#include "runtime/app/progress.h"
#include "runtime/app/train_file.h"
#include "runtime/config/train_model.h"
#include "runtime/config/train_plan.h"
#include "runtime/device/host_threads.h"
#include "runtime/files/files.h"
#include "runtime/include/muster.h"
#include "runtime/model/program.h"
#include "runtime/train/data.h"
#include "runtime/train/generate.h"
#include "runtime/train/lr.h"
#include "runtime/train/trainer.h"
#include "runtime/world/agree.h"
#include "runtime/world/world.h"

enum { OVERRIDE_LIMIT = 64, SMAPS_LIMIT = 1 << 16 };
enum { SKIPS_IN_A_ROW = 20 }; /* steps that change nothing; a dynamic loss scale has its own end */
/* The kernel walks all pages for the resident size: not for every step. */
#define RESIDENT_NS NS_PER_S

struct command {
    const char *config_path;
    char *overrides[OVERRIDE_LIMIT];
    int override_count;
    bool plan, verbose, help, version;
    int64_t world_size; /* for --plan; 0: the current world */
};

/* One run of one rank. */
struct run {
    struct train_config config;
    struct muster_world *world;
    struct model *model;
    struct data *data;
    struct trainer *trainer;
    int rank, world_size, local_size, threads;
    struct plan_options plan;
    void *arrays[BATCH_INPUTS]; /* of the model's batch, for all micro-batches */
    void **weights;             /* full parameters, rank 0 only, after the training */
    struct progress progress;
    bool listens, noticed;  /* for stop notices; of one */
    bool cut_short;         /* all ranks have stopped for a notice, before the last step */
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
    else if (!strcmp(name, "--verbose"))
        command->verbose = true;
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
        static const char *const known[] = {"--plan",       "--verbose", "--set",
                                            "--world-size", "--help",    "--version"};
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
    if (command->verbose && !command->plan)
        return usage_error("--verbose goes with --plan");
    if (!command->config_path && !command->help && !command->version)
        return usage_error("no configuration file was named");
    return 0;
}

static int print_help(void)
{
    scope_buffer out = {0};
    buffer_text(
        &out,
        "usage: muster-train CONFIG.yaml [--set key=value ...] [--plan [--world-size N] [--verbose]]\n\n"
        "Trains a model without Python: alone, or as every rank of `muster run` or torchrun.\n"
        "--plan prints the bytes that each rank will hold, by kind, and trains nothing;\n"
        "--verbose adds every buffer and every operation of a step.\n\nKeys of CONFIG.yaml, by section:\n\n");
    if (knob_help(train_config_table(), KNOB_HELP_COLUMNS, &out) < 0)
        return EXIT_CODE_FAILURE;
    return fputs(out.data, stdout) < 0 || fflush(stdout) ? EXIT_CODE_FAILURE : EXIT_CODE_OK;
}

/* Whether the user can fix it: invalid input, or a plan that does not fit into memory. */
static bool is_usage(int code)
{
    return code == MUSTER_E_INVALID || code == MUSTER_E_NOT_FOUND || code == MUSTER_E_UNSUPPORTED ||
           code == MUSTER_E_LIMIT || code == MUSTER_E_NOMEM;
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

static int make_model(struct run *run, struct muster_error *err)
{
    const struct train_place place = {
        .rank = run->rank, .world_size = run->world_size, .local_size = run->local_size};
    run->model = train_model_create(&run->config, err);
    if (!run->model)
        return -1;
    return train_plan_options(&run->config, &place, run->model, &run->plan, err);
}

static int print_plan(struct run *run, const struct command *command, struct muster_error *err)
{
    if (command->world_size)
        run->world_size = run->local_size = (int)command->world_size; /* of its nodes nothing is known */
    if (make_model(run, err) < 0)
        return -1;
    struct plan plan;
    if (plan_build(run->model, &run->plan, &plan, err) < 0)
        return -1;
    scope_buffer out = {0};
    int result = plan_summary(run->model, &plan, &out);
    if (!result && command->verbose)
        result = plan_dump(run->model, &plan, &out);
    plan_free(&plan);
    if (result < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to print the plan");
    if (fputs(out.data, stdout) < 0 || fflush(stdout))
        return error_errno(err, "cannot print the plan");
    return 0;
}

static bool saves(const struct run *run)
{
    return run->config.output && *run->config.output;
}

/* Errors in this rank's input, found before any rank waits for another. */
static int open_inputs(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    if (make_model(run, err) < 0 || data_check_inputs(run->model, err) < 0)
        return -1;
    run->data = data_open(c->path, (int)c->sequence_length, (uint64_t)c->seed, err);
    if (!run->data) {
        if (err->code == MUSTER_E_IO)
            err->code = MUSTER_E_INVALID; /* unreadable data is bad input, like missing data */
        return -1;
    }
    const struct shape shape = {(int)c->micro_batch, (int)c->sequence_length};
    for (int i = 0; i < run->model->input_count; i++) {
        run->arrays[i] =
            mem_calloc((size_t)run->plan.micro_batches, (size_t)batch_input_bytes(run->model, shape, i));
        if (!run->arrays[i])
            return error_set(err, MUSTER_E_NOMEM, "no memory for %d micro-batches", run->plan.micro_batches);
    }
    const struct files_export what = {.format = FILES_SAFETENSORS, .dtype = DTYPE_F32};
    return run->rank == 0 && saves(run) ? files_export_probe(c->output, &what, err) : 0;
}

static int open_run(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const struct agree_options everybody = {.store = world_store(run->world),
                                            .key = "inputs",
                                            .rank = run->rank,
                                            .size = run->world_size,
                                            .timeout_ns = (int64_t)(c->timeout_s * (double)NS_PER_S)};
    if (agree(&everybody, open_inputs(run, err), err))
        return -1;
    char address[WORLD_ADDRESS];
    if (world_address(run->world, address, err))
        return -1;
    run->threads = c->threads ? (int)c->threads : host_threads(run->local_size);
    struct trainer_options options = {
        .rank = run->rank,
        .world_size = run->world_size,
        .local_rank = muster_world_local_rank(run->world),
        .local_world_size = run->local_size,
        .threads = run->threads,
        .store = everybody.store,
        .address = address,
        .timeout_ns = everybody.timeout_ns,
        .memory_limit = c->memory_limit,
        .seed = (uint64_t)c->seed,
        .plan = run->plan,
        .loss_scale = train_config_loss_scale(c),
        .stop_on_nonfinite = c->on_nonfinite == TRAIN_NONFINITE_STOP,
    };
    run->trainer = trainer_create(run->model, &options, err);
    return run->trainer ? 0 : -1;
}

/* As in training.dtype. */
static const char *precision_name(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? "fp32" : dtype == DTYPE_F16 ? "fp16" : dtype_name(dtype);
}

static void say_start(struct run *run)
{
    const struct train_config *c = &run->config;
    const struct plan *plan = trainer_plan(run->trainer);
    char bytes[32], replicas[32] = "";
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++)
        run->progress.planned_bytes += plan->arena_bytes[i];
    run->progress.steps = c->steps;
    run->progress.tokens_per_step = c->global_batch * c->sequence_length;
    if (run->rank)
        return;
    if (plan->options.strategy == STRATEGY_HYBRID_SHARD)
        (void)snprintf(replicas, sizeof replicas, " in %d replicas", run->plan.mesh.replicate); /* fits */
    printf("data: %s, %d files, %lld tokens\n", c->path, data_files(run->data),
           (long long)data_tokens(run->data));
    printf("model: %s, %lld parameters in %d groups; %s over %d ranks%s, %d threads each; %s a rank planned, "
           "%d gathers in flight\n",
           train_config_architecture(c), (long long)model_parameters(run->model), plan->group_count,
           strategy_name(plan->options.strategy), run->world_size, replicas, run->threads,
           text_format_bytes(bytes, sizeof bytes, run->progress.planned_bytes), plan->gathers_in_flight);
    const enum dtype moves = plan->options.param_dtype, reduces = plan->options.reduce_dtype;
    if (moves != plan->options.dtype || reduces != plan->options.dtype)
        printf("precision: parameters are kept and gathered in %s, gradients reduced in %s; on CPUs that is "
               "storage and traffic: arithmetic, masters and optimizer state are %s\n",
               precision_name(moves), precision_name(reduces), precision_name(plan->options.dtype));
    printf("batch: %lld sequences of %lld tokens a step, %d micro-batches of %lld a rank\n",
           (long long)c->global_batch, (long long)c->sequence_length, run->plan.micro_batches,
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
    run->noticed = noticed > 0;
    run->cut_short = asked || (run->noticed && run->world_size == 1);
    return 0;
}

static const char *param_name(const struct run *run, int param)
{
    return param < 0 ? "no single parameter" : run->model->params[param].name;
}

static void say_skipped(const struct run *run, int64_t step, const struct trainer_stats *stats)
{
    if (run->rank)
        return;
    fprintf(
        stderr,
        "muster-train: warning: step %lld: the gradient of %s is not finite (rank %d has it); the step was "
        "skipped",
        (long long)step + 1, param_name(run, stats->nonfinite_param), stats->nonfinite_rank);
    if (stats->loss_scale > 0)
        fprintf(stderr, ", at loss scale %g", stats->loss_scale);
    fputs("\n", stderr);
}

/* After a step whose gradients were not checked before the optimizer used them. */
static int say_nonfinite(struct run *run, int64_t step, double loss, struct muster_error *err)
{
    int param, rank;
    if (trainer_nonfinite(run->trainer, &param, &rank, err) < 0)
        return -1;
    return error_set(err, MUSTER_E_STATE,
                     "step %lld: the loss is %f and the gradient of %s is not finite (rank %d has it); lower "
                     "training.learning_rate (%g), or set training.on_nonfinite: skip",
                     (long long)step + 1, loss, param_name(run, param), rank, run->config.learning_rate);
}

static int train(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const struct lr_schedule schedule = train_config_schedule(c);
    int64_t updates = 0; /* a skipped step does not advance the schedule */
    int skipped = 0;     /* in a row */
    struct batch batch;
    for (int i = 0; i < BATCH_INPUTS; i++)
        batch.input[i] = run->arrays[i];
    for (int64_t step = 0; step < c->steps && !run->cut_short; step++) {
        data_batch(run->data, run->model, step, run->rank, run->world_size, run->plan.micro_batches,
                   (int)c->micro_batch, run->arrays);
        const struct trainer_step_values values = {
            .learning_rate = lr_at(&schedule, updates),
            .weight_decay = c->weight_decay,
            .beta1 = lr_momentum_at(&schedule, updates, c->beta1),
            .beta2 = c->beta2,
            .epsilon = c->epsilon,
            .clip_norm = c->clip_norm,
            .global_tokens = c->global_batch * c->sequence_length,
            .first_sample = (uint64_t)(step * c->global_batch),
            .stop = run->noticed,
        };
        struct trainer_stats stats;
        if (trainer_step(run->trainer, &batch, &values, &stats, err) < 0)
            return error_wrap(err, "step %lld", (long long)step + 1);
        updates += !stats.skipped;
        skipped = stats.skipped ? skipped + 1 : 0;
        if (stats.skipped)
            say_skipped(run, step, &stats);
        if (skipped == SKIPS_IN_A_ROW && !(stats.loss_scale > 0)) /* equal on every rank */
            return error_set(err, MUSTER_E_STATE,
                             "%d steps in a row, up to step %lld, were skipped: the gradient of %s is not "
                             "finite, and nothing changes any more; lower training.learning_rate (%g)",
                             SKIPS_IN_A_ROW, (long long)step + 1, param_name(run, stats.nonfinite_param),
                             c->learning_rate);
        if (!isfinite(stats.loss) && !run->plan.clip && !run->plan.check)
            return say_nonfinite(run, step, stats.loss, err); /* equal on every rank: it is a sum over all */
        struct progress_step shown = {.loss = stats.loss,
                                      .learning_rate = values.learning_rate,
                                      .grad_norm = stats.grad_norm,
                                      .step_ns = stats.step_ns,
                                      .comm_ns = stats.comm_ns,
                                      .exposed_ns = stats.exposed_ns};
        progress_add(&run->progress, &shown);
        bool final = step + 1 == c->steps;
        if (!final && look_for_notice(run, stats.stop, err) < 0)
            return -1;
        show_progress(run, &shown, final || run->cut_short);
        if (muster_heartbeat(step, err) < 0)
            return -1;
    }
    if (muster_heartbeat(-1, err) < 0) /* the remaining work takes longer than a step */
        return -1;
    if (run->rank == 0) {
        int64_t done = run->progress.done, count = done < PROGRESS_LOSSES ? done : PROGRESS_LOSSES;
        if (run->cut_short)
            fprintf(stderr,
                    "muster-train: warning: a stop was announced: all ranks end after step %lld of %lld; "
                    "checkpoints are not supported yet, so the next round restarts at step 1%s\n",
                    (long long)done, (long long)c->steps,
                    saves(run) ? "; the current parameters are saved" : "");
        printf("mean loss of the last %lld steps: %.4f\n", (long long)count,
               progress_mean_loss(&run->progress));
    }
    return 0;
}

static int keep_weight(void *context, int param, const void *values, struct muster_error *err)
{
    struct run *run = context;
    const struct param_desc *desc = &run->model->params[param];
    size_t bytes = (size_t)param_elements(desc) * sizeof(float);
    run->weights[param] = mem_calloc(bytes, 1);
    if (!run->weights[param])
        return error_set(err, MUSTER_E_NOMEM, "no memory to gather %s", desc->name);
    memcpy(run->weights[param], values, bytes);
    return 0;
}

/* Every rank takes part; rank 0 keeps the parameters. */
static int gather_weights(struct run *run, struct muster_error *err)
{
    bool keeps = run->rank == 0;
    if (keeps) {
        run->weights = mem_calloc((size_t)run->model->param_count, sizeof *run->weights);
        if (!run->weights)
            return error_set(err, MUSTER_E_NOMEM, "no memory to gather the parameters");
    }
    return trainer_each_param(run->trainer, keeps ? keep_weight : NULL, run, err);
}

static int print_sample(const struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const struct generate_options options = {
        .sample = {.temperature = c->sample_temperature, .seed = (uint64_t)c->seed},
        .prompt = c->sample_prompt,
        .length = c->sample_length,
        .threads = run->threads,
    };
    scope_buffer text = {0};
    if (generate_text(run->model, device_cpu(), (const void *const *)run->weights, &options, &text, err) < 0)
        return -1;
    printf("sample:\n");
    (void)fwrite(text.data, 1, text.length, stdout);
    printf("\n");
    return fflush(stdout) ? error_errno(err, "cannot print the sample") : 0;
}

static int run_finish(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const bool samples = c->sample_length && !run->cut_short; /* there may not be enough time */
    if (samples && gather_weights(run, err) < 0)
        return -1;
    if (saves(run) && files_save(run->trainer, c->output, err) < 0)
        return -1;
    trainer_destroy(
        take_pointer(&run->trainer)); /* its compute stream must be gone before the sampler's is created */
    if (run->rank)
        return 0;
    if (saves(run))
        printf("saved %s\n", c->output);
    return samples ? print_sample(run, err) : 0;
}

static void close_run(struct run *run)
{
    trainer_destroy(run->trainer);
    if (run->weights)
        for (int i = 0; i < run->model->param_count; i++)
            mem_free(run->weights[i]);
    mem_free(run->weights);
    for (int i = 0; i < BATCH_INPUTS; i++)
        mem_free(run->arrays[i]);
    data_destroy(run->data);
    model_destroy(run->model);
    muster_world_close(&run->world);
    train_config_free(&run->config);
}

static int run_training(struct run *run, struct muster_error *err)
{
    run->world = muster_world_open(NULL, err);
    if (!run->world)
        return -1;
    run->rank = muster_world_rank(run->world);
    run->world_size = muster_world_size(run->world);
    run->local_size = muster_world_local_size(run->world);
    run->terminal = isatty(STDOUT_FILENO);
    if (open_run(run, err) < 0)
        return -1;
    int listens = muster_notice_listen(err);
    if (listens < 0)
        return -1;
    run->listens = listens > 0;
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
    struct run run = {.world_size = 1, .local_size = 1};
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
    close_run(&run);
    return code;
}
