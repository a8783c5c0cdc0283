/* config_internal.h - what the parts of the configuration share: config_flags.c (the command line),
 * config_environment.c (variables), config_world.c, config_workers.c and config_logs.c (what the values
 * mean), config_supervision.c, and config.c, which calls them. All pure. */
#ifndef MUSTER_LAUNCHER_CONFIG_INTERNAL_H
#define MUSTER_LAUNCHER_CONFIG_INTERNAL_H

#include "launcher/config.h"

enum { CONFIG_SETTING_SIZE = 64 };

struct command_line {
    int argc, at; /* at: the next argument */
    char *const *argv;
};

struct config_environment {
    const char *(*get)(void *context, const char *name);
    void *context;
};

/* --- helpers (config.c): name is the row's, "nproc-per-node", and must exist --- */

const struct knob *config_row(const char *name);
enum knob_source config_source(const struct run_config *config, const char *name);
int config_set(struct run_config *config, const char *name, const char *text, enum knob_source source,
               struct muster_error *err);
/* Adds a line to what is announced at the start. */
int config_note(struct run_config *config, const char *line, struct muster_error *err);
/* The row's flag or variable, whichever set it: what an error about its value names. scratch holds the flag.
 */
const char *config_setting(const struct run_config *config, const char *name,
                           char scratch[CONFIG_SETTING_SIZE]);
/* the scratch lives as long as the block that the macro stands in */
#define CONFIG_SETTING(config, name) config_setting(config, name, (char[CONFIG_SETTING_SIZE]){0})

/* --- the steps --- */

/* Flags up to the program; nothing behind it is looked at. */
int config_parse_flags(struct command_line *line, struct run_config *config, struct muster_error *err);
/* Variables of rows that no flag has set. */
int config_read_environment(struct run_config *config, const struct config_environment *environment,
                            struct muster_error *err);
/* A refused setting in the environment, where operators and images put it for all jobs, is an error only
 * where it would change what the job does; else it is said that it is left aside. After
 * config_resolve_world. */
int config_refuse_environment(struct run_config *config, const struct config_environment *environment,
                              struct muster_error *err);
/* Nodes, this node's rank, master_addr and master_port. */
int config_resolve_world(struct run_config *config, struct muster_error *err);
/* The streams of --redirects and --tee. */
int config_check_logs(const struct run_config *config, struct muster_error *err);
/* --nproc-per-node: a number (out is it), a word that config_resolve_workers resolves (out is 0) or an error.
 */
int config_parse_nproc(const struct run_config *config, int *out, struct muster_error *err);
/* Signals, hangs, restarts. */
int config_resolve_supervision(struct run_config *config, struct muster_error *err);
int config_resolve_workers(struct run_config *config, const struct machine *machine,
                           struct muster_error *err);

#endif
