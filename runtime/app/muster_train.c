/* muster_train.c - the program muster-train: a configuration file in, a trained model and a sample of its
 * text out.
 *
 * main is a list of steps; everything that can be tested alone is in the files that it calls. Rank 0
 * prints; other ranks print errors only. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/exit_code.h"
#include "runtime/app/command.h"
#include "runtime/app/prediction.h"
#include "runtime/app/run.h"
#include "runtime/app/train_file.h"

/* Whether the user can fix it: invalid input, or a plan that does not fit into memory. */
static bool is_usage(int code)
{
    return code == MUSTER_E_INVALID || code == MUSTER_E_NOT_FOUND || code == MUSTER_E_UNSUPPORTED ||
           code == MUSTER_E_LIMIT || code == MUSTER_E_NOMEM || code == MUSTER_E_REFUSED;
}

static int run_fail(struct run *run, const struct muster_error *err)
{
    run_show_line_end(run);
    if (run->world_size > 1)
        fprintf(stderr, "muster-train: rank %d: error: %s\n", run->rank, err->text);
    else
        fprintf(stderr, "muster-train: error: %s\n", err->text);
    return is_usage(err->code) ? EXIT_CODE_USAGE : EXIT_CODE_FAILURE;
}

static int print_plan(struct run *run, const struct command *command, struct muster_error *err)
{
    const int world_size = command->world_size ? (int)command->world_size : 1;
    if (run_open_model(run, err) < 0)
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
    if (command_parse(argc, argv, &command) < 0)
        return EXIT_CODE_USAGE;
    if (command.help)
        return command_help();
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
    run_close(&run);
    return code;
}
