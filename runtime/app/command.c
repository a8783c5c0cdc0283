/* command.c - see command.h. */
#include "runtime/app/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/knob.h"
#include "proto/base/text.h"
#include "proto/exit_code.h"
#include "runtime/config/train_config.h"
#include "runtime/include/muster.h"

static int command_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int command_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("muster-train: error: ", stderr);
    vfprintf(stderr, format, args);
    fputs(" (muster-train --help)\n", stderr);
    va_end(args);
    return -1;
}

static int command_option(struct command *command, char *const argv[], int argc, int *at)
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
        return command_error("%s needs a value", name);
    else if (set && command->override_count == OVERRIDE_LIMIT)
        return command_error("more than %d --set", OVERRIDE_LIMIT);
    else if (set)
        command->overrides[command->override_count++] = argv[++*at];
    else if (world) {
        const char *value = argv[++*at];
        if (!text_int64(value, &command->world_size) || command->world_size < 1 ||
            command->world_size > 1 << 20)
            return command_error("--world-size: '%s' is not a number of ranks from 1 to 1048576", value);
    } else {
        static const char *const known[] = {"--plan",        "--predict",    "--verbose", "--set",
                                            "--output=json", "--world-size", "--help",    "--version"};
        const char *nearest = text_nearest(name, known, sizeof known / sizeof *known);
        return command_error("unknown option '%s'%s%s%s", name, nearest ? "; did you mean '" : "",
                             nearest ? nearest : "", nearest ? "'?" : "");
    }
    return 0;
}

int command_parse(int argc, char *const argv[], struct command *command)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') {
            if (command_option(command, argv, argc, &i) < 0)
                return -1;
        } else if (command->config_path) {
            return command_error("one configuration file at a time: '%s' and '%s'", command->config_path,
                                 argv[i]);
        } else {
            command->config_path = argv[i];
        }
    }
    if (command->world_size && !command->plan)
        return command_error("--world-size goes with --plan");
    if (command->predict && !command->plan)
        return command_error("--predict goes with --plan");
    if (command->format && !command->plan)
        return command_error("--verbose and --output=json go with --plan");
    if (!command->config_path && !command->help && !command->version)
        return command_error("no configuration file was named");
    return 0;
}

int command_help(void)
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
