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
#include "proto/base/guard.h"
#include "proto/exit_code.h"
#include "proto/world/world_alone.h"
#include "proto/world/world_environment.h"
#include "runtime/include/muster_world.h"
#include "trainer/formats/formats.h"
#include "trainer/formats/stages.h"
#include "trainer/run/command.h"
#include "trainer/run/prediction.h"
#include "trainer/run/prepare_command.h"
#include "trainer/run/run.h"

static int print_one_plan(struct run *run, const struct command *command, struct muster_error *err)
{
    const int world_size = command->world_size ? (int)command->world_size : 1;
    const int32_t format = command->json      ? MUSTER_PLAN_JSON
                           : command->verbose ? MUSTER_PLAN_WHOLE
                                              : MUSTER_PLAN_SUMMARY;
    if (run_open_model(run, err) < 0)
        return -1;
    const char *const *settings = (const char *const *)run->settings;
    int64_t length = muster_plan_text(run->model, world_size, settings, format, NULL, 0, err);
    scope_free char *text = length < 0 ? NULL : mem_calloc((size_t)length + 1, 1);
    if (length >= 0 && !text)
        return error_set(err, MUSTER_E_NOMEM, "no memory to print the plan");
    if (length < 0 || muster_plan_text(run->model, world_size, settings, format, text, length + 1, err) < 0)
        return -1;
    struct muster_prediction prediction = {.size = sizeof prediction};
    scope_buffer out = {0};
    const bool json = command->json;
    if (command->predict && muster_plan_predict(run->model, world_size, settings, &prediction, err) < 0)
        return -1;
    if (prediction_text(text, command->predict ? &prediction : NULL, world_size, json, &out) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to print the plan");
    if (fputs(out.data, stdout) < 0 || fflush(stdout))
        return error_errno(err, "cannot print the plan");
    return muster_plan_fits(run->model, world_size, settings, err);
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

/* Of a training in stages one for each. */
static int print_plan(struct run *run, const struct command *command, struct muster_error *err)
{
    struct plan_request request = {run, command};
    return run->config.stages ? run_stages_each(&run->config, print_stage_plan, &request, err)
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

/* What has to be said about the configuration: by rank 0, or beside an error of this rank. */
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
    const bool opens_no_world = command->plan || command->print_config;
    if (world_place_read(from_environment, NULL, &place, err) < 0) {
        if (!opens_no_world)
            return -1;
        fprintf(stderr, "muster-train: %s; what follows is for %d ranks\n", err->text,
                command->world_size ? (int)command->world_size : 1);
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

/* A command that takes no step: what its settings leave open follows from it. */
static int run_verb(struct run *run, const struct command *command, struct muster_error *err)
{
    run->checkpoint = command->checkpoint;
    run->from_model = command->model != NULL;
    if (run->from_model)
        run_take_sizes(&run->config);
    if (command->verb == COMMAND_PREPROCESS)
        return run_preprocess(run, command->json, err);
    if (stages_leave_idle(&run->config, err) < 0)
        return -1;
    const enum command_verb verb = command->verb;
    const int open = verb == COMMAND_GENERATE   ? run_generate_settings(&run->config, err)
                     : verb == COMMAND_QUANTIZE ? run_quantize_settings(&run->config, &command->quantize, err)
                                                : run_eval_settings(&run->config, err);
    run->refused = open < 0;
    if (run->refused)
        return -1;
    return verb == COMMAND_GENERATE   ? run_generate(run, &command->draw, command->json, err)
           : verb == COMMAND_QUANTIZE ? run_quantize(run, &command->quantize, command->json, err)
                                      : run_eval(run, command->json, err);
}

static int run_command(struct run *run, const struct command *command, struct muster_error *err)
{
    struct formats_settings settings = {0}; /* freed on every path, also where nothing was read */
    int result = read_settings(run, command, &settings, err);
    run->refused = result < 0 && !command->plan && !command->print_config;
    if (!result && command->print_config) {
        result = print_settings(&settings, command->json, err);
    } else if (!result) {
        run->config = settings.config; /* the run's from here */
        settings.config = (struct train_config){0};
        run->json = command->json;
        if (command->verb != COMMAND_TRAIN)
            result = run_verb(run, command, err);
        else
            result = command->plan ? print_plan(run, command, err) : run_training(run, err);
    }
    formats_free(&settings);
    return result;
}

int main(int argc, char *argv[])
{
    GUARD(command_free) struct command command = {0};
    struct muster_error err = {0};
    struct run run = {.world_size = 1};
    if (guard_output() < 0)
        return EXIT_CODE_FAILURE; /* there is nowhere to report it */
    if (argc > 1 && !strcmp(argv[1], "prepare"))
        return prepare_command(argc - 2, argv + 2);
    if (command_parse(argc, argv, &command) < 0)
        return run_fail_usage();
    if (command_is_page(&command))
        return command_page(&command);
    int code = run_command(&run, &command, &err) < 0 ? run_fail(&run, &err) : EXIT_CODE_OK;
    if (!code && run.cut_short && checkpoints_terminated())
        code = EXIT_CODE_TERMINATED;
    run_close(&run);
    return code;
}
