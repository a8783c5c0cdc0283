/* command.h - the command line of muster-train. */
#ifndef MUSTER_RUNTIME_APP_COMMAND_H
#define MUSTER_RUNTIME_APP_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

enum { OVERRIDE_LIMIT = 64 };

struct command {
    const char *config_path;
    char *overrides[OVERRIDE_LIMIT];
    int override_count;
    bool plan, predict, help, version;
    int32_t format;     /* of --plan: enum muster_plan_format */
    int64_t world_size; /* for --plan; 0: the current world */
};

/* Reads argv into command, whose texts are argv's. An error is printed to standard error. */
int command_parse(int argc, char *const argv[], struct command *command);
/* Prints --help; the exit code. */
int command_help(void);

#endif
