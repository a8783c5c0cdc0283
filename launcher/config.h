/* config.h - what `muster run` was asked to do: flags, PET_* defaults and reading rules, resolved into one struct.
 *
 * config_parse is pure but for the two callbacks it is given. The table of rows is the only list of settings. */
#ifndef MUSTER_LAUNCHER_CONFIG_H
#define MUSTER_LAUNCHER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/knob.h"
#include "proto/include/muster_error.h"

enum stream_bits { STREAM_NONE = 0, STREAM_STDOUT = 1, STREAM_STDERR = 2, STREAM_BOTH = 3 };

struct run_config {
    /* world */
    bool standalone;
    char *nnodes;          /* as typed, "2" or "1:4" */
    int min_nodes, max_nodes;
    int64_t node_rank;
    char *nproc;           /* as typed */
    int nproc_per_node;    /* resolved, >= 1 */
    char *master_addr;
    int64_t master_port;   /* 0: choose */
    char *rdzv_id;
    char *role;
    int64_t max_restarts;
    double join_timeout_s;
    /* workers */
    bool module, no_python;
    double shutdown_timeout_s; /* grace between TERM and KILL */
    double restart_grace_s;    /* the same before a restart */
    /* logs */
    char *log_dir;
    char *redirects, *tee;     /* as typed: a number or local:value,... */
    char *line_prefix;         /* template with ${role_name} ${rank} ${local_rank} */
    /* what to do */
    bool dry_run, help;
    const char *program;       /* the script, module or program: points into argv */
    char *const *arguments;    /* what follows it, NULL-terminated: points into argv */
    uint8_t sources[64];       /* enum knob_source of each row */
};

const struct knob_table *config_table(void);

/* argv without the leading "muster run". get reads an environment variable. Fills config (config_free on success).
 * Errors are MUSTER_E_INVALID (usage, exit 2) with one line. */
int config_parse(int argc, char *const argv[], const char *(*get)(void *context, const char *name), void *context,
                 struct run_config *config, struct muster_error *err);
void config_free(struct run_config *config);

/* The stream bits of one local rank in a --redirects / --tee value ("3" or "0:1,1:2"); checked by config_parse. */
int config_streams(const char *value, int local_rank);

#endif
