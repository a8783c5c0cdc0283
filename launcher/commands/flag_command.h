/* flag_command.h - a subcommand whose arguments are all flags: they are read by its table, then it prints
 * its help or runs. */
#ifndef MUSTER_LAUNCHER_COMMANDS_FLAG_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_FLAG_COMMAND_H

#include "proto/base/buffer.h"
#include "proto/base/knob.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What --help and the manual say of it. */
struct command_page {
    const char *name;        /* "muster status": also the prefix of its errors */
    const char *brief;       /* one line */
    const char *description; /* its lines as --help shows them */
    const char *exit_codes;
    const struct knob_table *table;
    const char *words; /* words after the flags, for the usage line; NULL: none */
};

struct flag_command {
    const struct command_page *page;
    void *options;           /* the table's struct, zeroed; freed at the end */
    const bool *help_wanted; /* in options */
    uint8_t *sources;        /* page->table->count zeros: source of each value */
    /* The exit code. out is for standard output, complaint (whole lines) for standard error; err becomes the
     * last of those. */
    int (*run)(const struct flag_command *command, struct buffer *out, struct buffer *complaint,
               struct muster_error *err);
};

/* Defaults, then the rows' variables, then argv (after the name); an error there is EXIT_CODE_USAGE.
 * Nothing after a help flag is checked. */
int flag_command(const struct flag_command *command, int argc, char *const argv[], struct buffer *out,
                 struct buffer *complaint);
/* The same where words may follow the flags: *words is the rest of argv, which ends with a NULL. */
int flag_command_words(const struct flag_command *command, int argc, char *const argv[], char *const **words,
                       struct buffer *out, struct buffer *complaint);

#ifdef __cplusplus
}
#endif
#endif
