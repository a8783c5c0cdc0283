/* config_internal.h - shared by the parts of the configuration: config_sources.c (rows, and where their
 * values come from), config_world.c, config_endpoint.c, config_workers.c and config_checks.c (checks of the
 * values), config_print.c, and config.c, which calls them. */
#ifndef MUSTER_LAUNCHER_CONFIG_CONFIG_INTERNAL_H
#define MUSTER_LAUNCHER_CONFIG_CONFIG_INTERNAL_H

#include "launcher/config/config.h"

struct command_line {
    int argc, at; /* at: the next argument */
    char *const *argv;
};

struct config_environment {
    const char *(*get)(void *context, const char *name);
    void *context;
};

/* --- rows (config_sources.c): name is the row's, "nproc-per-node", and must exist --- */

const struct knob *config_row(const char *name);
enum knob_source config_source(const struct run_config *config, const char *name);
/* Whether a flag or a variable set the row, not a rule. */
bool config_is_said(const struct run_config *config, const char *name);
/* Sets the row by a rule. reason is its source in `muster env` and in the announcement, and lives as long
 * as config; a reason that begins with "--" is a flag and is not announced. */
int config_set(struct run_config *config, const char *name, const char *text, const char *reason,
               struct muster_error *err);
/* The variable's value; NULL if it is not set or empty: operators export empty variables for missing
 * values. */
const char *config_get(const struct config_environment *environment, const char *name);
/* The row's flag, variable or reason, whichever set it, else its flag: used by errors about its value.
 * scratch holds the flag. */
const char *config_setting(const struct run_config *config, const char *name,
                           char scratch[CONFIG_SETTING_SIZE]);
/* scratch lives as long as the block around the macro */
#define CONFIG_SETTING(config, name) config_setting(config, name, (char[CONFIG_SETTING_SIZE]){0})

/* the reason of choices that follow from a single node */
#define config_reason_one_node "one node"

/* --- the steps --- */

/* Flags up to the program; arguments after it are not read. */
int config_parse_flags(struct command_line *line, struct run_config *config, struct muster_error *err);
/* Variables of rows that no flag has set. */
int config_read_environment(struct run_config *config, const struct config_environment *environment,
                            struct muster_error *err);
/* Notes in one line all settings that did not come from flags, with their source. */
int config_announce(struct run_config *config, struct muster_error *err);
/* A refused setting in the environment is an error, unless it switches off what muster does not do
 * anyway. */
int config_refuse_environment(const struct config_environment *environment, struct muster_error *err);
/* Nodes, this node's rank, master_addr and master_port: flags and variables, then the rules of
 * node_identity.h. */
int config_resolve_world(struct run_config *config, const struct config_environment *environment,
                         const struct machine *machine, struct muster_error *err);
/* The reason of a rule that follows from a row: its variable, or its flag. */
const char *config_said_by(const struct run_config *config, const char *name, const char *flag);
/* --- hosts that no look-up can ever find, so that no node waits for one --- */

enum { CONFIG_HOST_TEXT = 320 };

/* Whether host, without port and brackets, can be neither a name nor an address; why gets the reason, to be
 * read after "...: ". A name that may exist passes without a look-up. */
bool config_host_is_impossible(const char *host, char why[CONFIG_HOST_TEXT]);

/* --- addresses --- */

/* Whether host can only mean this machine. A name that resolves to it cannot be recognised here. */
bool config_is_loopback(const char *host);
/* --rdzv-endpoint host:port as master_addr and master_port. port: the default; NULL: a port must be given. A
 * list's first entry gives both, and the others, whose default is the first one's port, are kept in order. */
int config_take_endpoint(struct run_config *config, const char *port, struct muster_error *err);
/* Only checks it: a single node has no use for it, but a malformed endpoint is a mistake there too. */
int config_check_endpoint(struct run_config *config, const char *port, struct muster_error *err);
/* Without a list: the names of the job's other pods, where they can be derived (node_identity.h). */
void config_take_siblings(struct run_config *config, const struct machine *machine);
/* master_addr, local_addr, bind_addr and metrics_addr, without brackets; a host that cannot exist is refused.
 */
int config_resolve_addresses(struct run_config *config, struct muster_error *err);
/* Warns of settings with which a job of several nodes waits for nodes that never come. */
int config_warn_of_mistakes(struct run_config *config, const struct config_environment *environment,
                            struct muster_error *err);
/* The streams of --redirects and --tee, and the filters. */
int config_check_logs(struct run_config *config, struct muster_error *err);
/* --nproc-per-node: a number (out is it), a word that config_resolve_workers resolves (out is 0) or an error.
 */
int config_parse_nproc(const struct run_config *config, int *out, struct muster_error *err);
/* Signals, hangs, restarts. */
int config_resolve_supervision(struct run_config *config, struct muster_error *err);
/* Program and flags that fit together: --module, --no-python, --use-env. */
int config_check_command(const struct run_config *config, struct muster_error *err);
void config_free_file(struct run_config *config);
/* Number of workers, and notes about GPUs. */
int config_resolve_workers(struct run_config *config, const struct config_environment *environment,
                           const struct machine *machine, struct muster_error *err);

#endif
