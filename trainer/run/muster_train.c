/* muster_train.c - the program muster-train: a configuration file in, a trained model and a sample of its
 * text out.
 *
 * main is a list of steps; everything that can be tested alone is in the files that it calls. Rank 0
 * prints; other ranks print errors only. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/futex.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/env_names.h"
#include "proto/exit_code.h"
#include "proto/world/world_alone.h"
#include "proto/world/world_environment.h"
#include "runtime/config/train_encoder.h"
#include "runtime/config/train_settings.h"
#include "runtime/include/muster.h"
#include "trainer/formats/formats.h"
#include "trainer/formats/stages.h"
#include "trainer/run/command/command.h"
#include "trainer/run/observers.h"
#include "trainer/run/results.h"
#include "trainer/run/stages.h"
#include "trainer/run/stop.h"

enum { SUGGESTIONS_SIZE = 1 << 14 }; /* ten of them are shorter */

/* The plan's text, NULL on error. A plan names memory that is free at the moment: a text may be longer than
 * the one before it. */
static char *plan_of(const struct run *run, const char *const *settings, int world_size, int32_t format,
                     struct muster_error *err)
{
    enum { FIRST = 1 << 14 };
    for (int64_t size = FIRST, length;; size = length + FIRST) {
        scope_free char *text = mem_calloc((size_t)size, 1);
        if (!text) {
            (void)error_set(err, MUSTER_E_NOMEM, "no memory to print the plan");
            return NULL;
        }
        length = muster_plan_text(run->model, world_size, settings, format, text, size, err);
        if (length < 0)
            return NULL;
        if (length < size)
            return take_pointer(&text);
    }
}

/* Sets mesh.cut to the layers of a prediction, and makes the settings anew. */
static int set_cut(struct run *run, const char *cut, char ***texts, struct muster_error *err)
{
    static const char between[] = ", ";
    for (const char *at = cut, *end; at; at = *end ? end + strlen(between) : NULL) {
        end = strstr(at, between);
        end = end ? end : at + strlen(at);
        char name[256];
        (void)snprintf(name, sizeof name, "%.*s", (int)(end - at), at); /* a longer one is no layer's */
        if (run_set(&run->config, "mesh.cut", name, err) < 0)
            return -1;
    }
    train_settings_free(*texts);
    *texts = train_settings_texts(&run->config, "training");
    return *texts ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for the settings");
}

/* With mesh.spare: true the ranks that are left wait. */
static int ranks_that_train(const struct run *run, int world_size)
{
    const int64_t stages = run->config.mesh_pipeline, left = stages > 0 ? world_size % stages : 0;
    if (!left || world_size < stages || run->config.mesh_spare != TRAIN_SPARE_TRUE)
        return world_size;
    fprintf(stderr, "muster-train: mesh.spare: %lld of %d ranks wait%s, as mesh.pipeline %lld takes %lld\n",
            (long long)left, world_size, left == 1 ? "s" : "", (long long)stages,
            (long long)(world_size - left));
    return world_size - (int)left;
}

/* With a prediction the plan is of the stages that its times ask for. */
static int print_plan_of(struct run *run, char ***texts, const struct command *command, int32_t format,
                         struct muster_error *err)
{
    const int world_size = ranks_that_train(run, command->world_size ? (int)command->world_size : 1);
    struct muster_prediction prediction = {.size = sizeof prediction};
    scope_buffer out = {0};
    if (command->predict &&
        (muster_plan_predict(run->model, world_size, (const char *const *)*texts, &prediction, err) < 0 ||
         (*prediction.cut && set_cut(run, prediction.cut, texts, err) < 0)))
        return -1;
    const char *const *settings = (const char *const *)*texts;
    if (command->predict && command->json)
        format = MUSTER_PLAN_MEMBERS;
    scope_free char *text = plan_of(run, settings, world_size, format, err);
    if (!text)
        return -1;
    if (prediction_text(text, command->predict ? &prediction : NULL, world_size, command->json, &out) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to print the plan");
    if (fputs(out.data, stdout) < 0 || fflush(stdout))
        return error_errno(err, "cannot print the plan");
    return muster_plan_fits(run->model, world_size, settings, err);
}

static int print_suggestions(struct run *run, const char *const *settings, const struct command *command,
                             int32_t format, struct muster_error *err)
{
    const struct muster_machine machine = {.size = sizeof machine,
                                           .world_size = command->world_size ? (int)command->world_size : 1,
                                           .ranks_per_node = (int)command->ranks_per_node,
                                           .memory = command->memory,
                                           .link_bytes_s = command->link_bytes_s,
                                           .link_latency_s = command->link_latency_s};
    scope_free char *text = mem_calloc(SUGGESTIONS_SIZE, 1);
    if (!text)
        return error_set(err, MUSTER_E_NOMEM, "no memory to print suggestions");
    if (muster_plan_suggest(run->model, &machine, settings, format, text, SUGGESTIONS_SIZE, err) < 0)
        return -1;
    return fputs(text, stdout) < 0 || fflush(stdout) ? error_errno(err, "cannot print suggestions") : 0;
}

static int print_one_plan(struct run *run, const struct command *command, struct muster_error *err)
{
    const int32_t format = command->json      ? MUSTER_PLAN_JSON
                           : command->verbose ? MUSTER_PLAN_WHOLE
                                              : MUSTER_PLAN_SUMMARY;
    char **texts = run_open_model(run, err) < 0 ? NULL : train_settings_texts(&run->config, "training");
    const int result = !run->model ? -1
                       : !texts    ? error_set(err, MUSTER_E_NOMEM, "no memory for the settings")
                       : command->suggest
                           ? print_suggestions(run, (const char *const *)texts, command, format, err)
                           : print_plan_of(run, &texts, command, format, err);
    train_settings_free(texts);
    return result;
}

struct plan_request {
    struct run *run;
    const struct command *command;
};

static int print_stage_plan(void *context, int number, const char *name, const struct train_config *stage,
                            struct muster_error *err)
{
    const struct plan_request *request = context;
    struct run *run = request->run;
    const struct train_config whole = run->config;
    if (!request->command->json)
        printf("%sstage %d%s%s%s\n", number ? "\n" : "", number + 1, name ? " (" : "", name ? name : "",
               name ? ")" : "");
    run->config = *stage; /* borrowed */
    const int result = print_one_plan(run, request->command, err);
    run->config = whole;
    return result < 0 ? error_wrap(err, "stage %d", number + 1) : 0;
}

/* A training in stages has a plan for each. */
static int print_plan(struct run *run, const struct command *command, struct muster_error *err)
{
    struct plan_request request = {run, command};
    return run->config.stages ? stages_each(&run->config, print_stage_plan, &request, err)
                              : print_one_plan(run, command, err);
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

static const char *from_environment(void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

/* Notes about the configuration: of rank 0, or of a rank with an error. */
static void print_notes(const char *notes)
{
    while (notes && *notes) {
        const int length = (int)strcspn(notes, "\n");
        fprintf(stderr, "muster-train: %.*s\n", length, notes);
        notes += length + (notes[length] == '\n');
    }
}

static int print_settings(struct formats_settings *settings, bool json, struct muster_error *err)
{
    scope_buffer out = {0};
    if (formats_print(settings, json, &out) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to print the configuration");
    if (fputs(out.data, stdout) < 0 || fflush(stdout))
        return error_errno(err, "cannot print the configuration");
    return formats_check(settings, err);
}

static int read_settings(struct run *run, const struct command *command, struct formats_settings *settings,
                         struct muster_error *err)
{
    struct world_place place = {.size = 1, .local_size = 1};
    char note[WORLD_ALONE_NOTE] = "";
    const bool opens_no_world = command->plan || command->print_config || command->suggest;
    if (world_place_read(from_environment, NULL, &place, err) < 0) {
        if (!opens_no_world)
            return -1;
        fprintf(stderr, "muster-train: %s; what follows is for %d rank%s\n", err->text,
                command->world_size ? (int)command->world_size : 1, command->world_size > 1 ? "s" : "");
        error_clear(err);
    } else if (!opens_no_world && place.size == 1) {
        world_alone_note(from_environment, NULL, note);
        print_notes(note);
    }
    run->rank = place.rank;
    const struct formats_request request = {
        .paths = command->paths,
        .path_count = command->path_count,
        .options = command->options,
        .option_count = command->option_count,
        .overrides = command->overrides,
        .override_count = command->override_count,
        .unchecked =
            command->print_config || (command->verb != COMMAND_TRAIN && command->verb != COMMAND_PREPROCESS),
        .world_size = command->world_size ? (int)command->world_size : place.size};
    const int result = formats_read(&request, settings, err);
    if (result < 0 || place.rank == 0)
        print_notes(settings->notes.data);
    return result;
}

/* A command that takes no step. *refused: its settings are. */
static int run_verb(struct run *run, const struct command *command, bool *refused, struct muster_error *err)
{
    const struct restore_source source = {command->checkpoint, command->model != NULL};
    if (source.from_model)
        restore_take_sizes(&run->config);
    if (train_encoder_find(&run->config, err) < 0) {
        *refused = true;
        return -1;
    }
    if (command->verb == COMMAND_PREPROCESS)
        return run_preprocess(run, command->json, err);
    if (stages_leave_idle(&run->config, err) < 0)
        return -1;
    const enum command_verb verb = command->verb;
    const int open = verb == COMMAND_GENERATE   ? generate_settings(&run->config, err)
                     : verb == COMMAND_QUANTIZE ? quantize_settings(&run->config, &command->quantize, err)
                     : command->task.kind       ? task_settings(&run->config, err)
                                                : eval_settings(&run->config, err);
    *refused = open < 0;
    if (*refused)
        return -1;
    return verb == COMMAND_GENERATE   ? generate_run(run, &source, &command->draw, command->json, err)
           : verb == COMMAND_QUANTIZE ? quantize_run(run, &source, &command->quantize, command->json, err)
           : command->task.kind       ? eval_task_run(run, &source, &command->task, command->json, err)
                                      : eval_run(run, &source, command->json, err);
}

/* A run must not end by writing over what it was started from. */
static int check_output(const struct train_config *c, const struct command *command, struct muster_error *err)
{
    const char *const of_data[] = {c->path, c->validation_path};
    if (!c->output || !*c->output)
        return 0;
    for (int i = 0; i < command->path_count; i++)
        if (io_same_file(c->output, command->paths[i]))
            return error_set(err, MUSTER_E_INVALID,
                             "training.output %s is the configuration itself: name another file", c->output);
    for (size_t i = 0; i < sizeof of_data / sizeof *of_data; i++)
        if (of_data[i] && *of_data[i] && io_same_file(c->output, of_data[i]))
            return error_set(err, MUSTER_E_INVALID,
                             "training.output %s is what data is read from: name another path", c->output);
    return 0;
}

static int run_command(struct run *run, const struct command *command, bool *refused,
                       struct muster_error *err)
{
    struct formats_settings settings = {0}; /* freed on every path, also where nothing was read */
    if (futex_check(err) < 0)
        return -1;
    int result = read_settings(run, command, &settings, err);
    *refused = result < 0 && !command->plan && !command->print_config && !command->suggest;
    if (!result && command->print_config) {
        result = print_settings(&settings, command->json, err);
    } else if (!result) {
        run->config = settings.config; /* the run's from here */
        settings.config = (struct train_config){0};
        if (command->verb != COMMAND_TRAIN)
            result = run_verb(run, command, refused, err);
        else if ((*refused = check_output(&run->config, command, err) < 0))
            result = -1;
        else
            result = command->plan || command->suggest ? print_plan(run, command, err)
                                                       : run_training(run, command->json, err);
    }
    formats_free(&settings);
    return result;
}

/* ---- the end of a run that failed ---- */

/* Time for other ranks to print their errors. Where the error may do better the next time it is shorter: the
 * other ranks may have died of it. */
#define MEETING_NS       (5 * NS_PER_S)
#define SHORT_MEETING_NS (NS_PER_S)

/* A rank whose settings are refused has no world yet: the others learn of it there, instead of waiting. */
static void run_refuse(struct run *run, const struct muster_error *err)
{
    struct muster_error why = *err; /* which the world does not change */
    if (!getenv(ENV_WORLD_SIZE) || run_open_world(run, NULL) < 0)
        return;                                     /* then every rank prints its own */
    (void)muster_world_agree(run->world, -1, &why); /* -1, at once */
}

/* Prints the error of a run, on one rank where it ends the job, and returns the exit code. refused: its
 * settings were, before there was a world. */
static int run_fail(struct run *run, bool refused, const struct muster_error *err)
{
    bool prints = true;
    if (refused)
        run_refuse(run, err);
    const bool no_step = run->progress.done == run->progress.begun;
    /* A file that was there for the first step, and is missing now: its disk or mount has gone. */
    const int exit_code =
        err->code == MUSTER_E_NOT_FOUND && !no_step ? EXIT_CODE_ENVIRONMENT : exit_code_of_error(err->code);
    const bool fatal = exit_code == EXIT_CODE_USAGE; /* the next round would meet it again */
    if (fatal)
        prints = muster_fatal(run->world, err);
    if (prints)
        console_line_end();
    place_failed(run, err);
    if (prints && run->world_size > 1)
        fprintf(stderr, "muster-train: rank %d: error: %s\n", run->rank, err->text);
    else if (prints)
        fprintf(stderr, "muster-train: error: %s\n", err->text);
    place_linger(run, err);
    /* The launcher stops all ranks as soon as one has ended. Before the first step the ranks, which learn of
     * each other's errors at once, give each other the time to print, and to report that a restart is in
     * vain. */
    if (fatal || no_step)
        muster_fatal_meet(run->world, fatal ? MEETING_NS : SHORT_MEETING_NS);
    return exit_code;
}

/* The exit code where the command line is wrong, which has been printed. */
static int run_fail_usage(void)
{
    const struct muster_error why = {MUSTER_E_INVALID, "the command line is wrong"};
    (void)muster_fatal(NULL, &why); /* every rank has printed the mistake */
    return EXIT_CODE_USAGE;
}

int main(int argc, char *argv[])
{
    GUARD(command_free) struct command command = {0};
    struct muster_error err = {0};
    struct run run = {.world_size = 1};
    bool refused = false;
    if (guard_output() < 0)
        return EXIT_CODE_FAILURE; /* there is nowhere to report it */
    if (argc > 1 && !strcmp(argv[1], "prepare"))
        return prepare_command(argc - 2, argv + 2);
    if (command_parse(argc, argv, &command) < 0)
        return run_fail_usage();
    if (command_is_page(&command))
        return command_page(&command);
    int code = run_command(&run, &command, &refused, &err) < 0 ? run_fail(&run, refused, &err) : EXIT_CODE_OK;
    if (!code && stop_cuts_short(&run) && stop_is_terminated())
        code = EXIT_CODE_TERMINATED;
    run_close(&run);
    return code;
}
