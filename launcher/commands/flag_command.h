/* flag_command.h - a subcommand whose arguments are all flags: they are read by its table, then it prints
 * its help or runs. */
#ifndef MUSTER_LAUNCHER_COMMANDS_FLAG_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_FLAG_COMMAND_H

#include "proto/base/buffer.h"
#include "proto/base/knob.h"

#ifdef __cplusplus
extern "C" {
#endif

struct flag_command {
    const char *name; /* "muster status": prefix of its errors */
    const struct knob_table *table;
    void *options;           /* the table's struct, zeroed; freed at the end */
    const bool *help_wanted; /* in options */
    uint8_t *sources;        /* table->count zeros: source of each value */
    void (*help)(struct buffer *out);
    /* The exit code. out is for standard output, complaint (whole lines) for standard error; err becomes the
     * last of those. */
    int (*run)(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
               struct muster_error *err);
};

/* Defaults, then the rows' variables, then argv (after the name); an error there is EXIT_CODE_USAGE.
 * Nothing after a help flag is checked. */
int flag_command(const struct flag_command *command, int argc, char *const argv[], struct buffer *out,
                 struct buffer *complaint);

#ifdef __cplusplus
}
#endif
#endif
