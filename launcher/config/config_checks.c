/* config_checks.c - checks of the settings for the workers' output, signals, hangs and restarts, and warnings
 * of settings with which a job would wait for nodes that never come (pure); see config_internal.h. */
#include "launcher/config/config_internal.h"

#include <stdlib.h>
#include <string.h>

#include "launcher/config/node_identity.h"
#include "launcher/host/signal_names.h"
#include "launcher/output/log_filter.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

/* One "local:value" of a map; returns the rest of the text, or NULL. */
static const char *map_entry(const char *text, long *local, int *value)
{
    char *end;
    if (*text < '0' || *text > '9')
        return NULL;
    *local = strtol(text, &end, 10); /* overflow gives LONG_MAX, which is no local rank */
    if (*local >= CONFIG_WORKERS_LIMIT || end[0] != ':' || end[1] < '0' || end[1] > '3')
        return NULL;
    *value = end[1] - '0';
    return end + 2;
}

int config_streams(const char *value, int local_rank)
{
    if (value[0] >= '0' && value[0] <= '3' && !value[1])
        return value[0] - '0';
    int found = STREAM_NONE;
    for (const char *at = value;; at++) {
        long local;
        int bits;
        at = map_entry(at, &local, &bits);
        if (!at || (*at && *at != ','))
            return -1;
        if (local == local_rank)
            found = bits;
        if (!*at)
            return found;
    }
}

static int check_streams(const struct run_config *config, const char *name, const char *value,
                         struct muster_error *err)
{
    if (config_streams(value, 0) >= 0)
        return 0;
    return error_set(err, MUSTER_E_INVALID,
                     "%s: '%s' is not 0, 1, 2, 3 or a map of local ranks such as 0:1,1:3",
                     CONFIG_SETTING(config, name), value);
}

/* A filter without a stream to filter is a mistake: warn. */
static int check_filter(struct run_config *config, const char *name, const char *text, int bit,
                        struct muster_error *err)
{
    int first = config_streams(config->tee, 0);
    bool map = strchr(config->tee, ':') != NULL;
    if (!text || !*text || map || first & bit)
        return 0;
    return config_note(config, err, "%s has no effect: it filters lines of --tee, and --tee=%s has no %s",
                       CONFIG_SETTING(config, name), config->tee, bit == STREAM_STDOUT ? "stdout" : "stderr");
}

int config_check_logs(struct run_config *config, struct muster_error *err)
{
    if (check_streams(config, "redirects", config->redirects, err) < 0 ||
        check_streams(config, "tee", config->tee, err) < 0)
        return -1;
    if (log_filter_shows(config->local_ranks_filter, 0) < 0)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not a list of local ranks such as 0,2",
                         CONFIG_SETTING(config, "local-ranks-filter"), config->local_ranks_filter);
    if (check_filter(config, "duplicate-stdout-filters", config->duplicate_stdout_filters, STREAM_STDOUT,
                     err) < 0)
        return -1;
    return check_filter(config, "duplicate-stderr-filters", config->duplicate_stderr_filters, STREAM_STDERR,
                        err);
}

static bool names_a_stream(const char *value)
{
    return value && strpbrk(value, "123") && strcmp(value, "0") != 0;
}

/* A map such as 1:0 selects no stream, though it has a digit. */
static bool wants_streams(const struct run_config *config, const char *value)
{
    for (int i = 0; names_a_stream(value) && i < config->nproc_per_node; i++)
        if (config_streams(value, i) > 0)
            return true;
    return false;
}

bool config_wants_log_directory(const struct run_config *config)
{
    if (config->log_dir && !strcmp(config->log_dir, "/dev/null"))
        return false;
    return (config->log_dir && *config->log_dir) || wants_streams(config, config->redirects) ||
           wants_streams(config, config->tee);
}

/* Unknown names are reported and left out, as by torchrun: a list written for another system still works. */
static int parse_signals(struct run_config *config, const char *name, const char *text, signal_bits *bits,
                         struct muster_error *err)
{
    scope_buffer unknown = {0};
    *bits = signal_names_parse(text, &unknown);
    if (unknown.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    if (!unknown.length)
        return 0;
    return config_note(config, err, "%s: %s left out: not a signal that can be handled on this system",
                       CONFIG_SETTING(config, name), unknown.data);
}

int config_resolve_supervision(struct run_config *config, struct muster_error *err)
{
    if (parse_signals(config, "signals-to-handle", config->signals_to_handle, &config->stop_signals, err) <
            0 ||
        parse_signals(config, "forward-signals", config->forward_signals, &config->forwarded_signals, err) <
            0)
        return -1;
    const char *handler = config->event_log_handler;
    if (strcmp(handler, "null") != 0 && strcmp(handler, "console") != 0 && !strchr(handler, '/'))
        return error_set(err, MUSTER_E_INVALID,
                         "%s: '%.100s' is not null, console or the path of a file, which has a slash",
                         CONFIG_SETTING(config, "event-log-handler"), handler);
    if (config->hang_watch == HANG_WATCH_OUTSIDE && config->hang_timeout_s <= 0)
        return error_set(err, MUSTER_E_INVALID, "%s=outside needs a time limit: give --hang-timeout=SECONDS",
                         CONFIG_SETTING(config, "hang-watch"));
    if (config->state_dir && config_source(config, "rdzv-id") == KNOB_FROM_DEFAULT)
        return error_set(err, MUSTER_E_INVALID,
                         "%s needs an explicit job id to find the job's state again: give --rdzv-id",
                         CONFIG_SETTING(config, "state-dir"));
    config->termination_log_asked = config_source(config, "termination-log") != KNOB_FROM_DEFAULT;
    config->stop_signals &= ~config->forwarded_signals;
    return 0;
}

/* --- mistakes --- */

/* An address that every machine has for itself. A node whose own address is one, too, is a pod of muster
 * local. */
static int warn_of_loopback(struct run_config *config, struct muster_error *err)
{
    const char *master = config->master_addr, *own = config->local_addr;
    if (config->elastic && (!config->rdzv_endpoint || !*config->rdzv_endpoint)) /* said already */
        return 0;
    if ((!config_is_loopback(master) && !address_is_any(master)) || (own && address_is_loopback(own)))
        return 0;
    return config_warn(
        config, err,
        "%s: %s is every machine's own: only nodes on this machine can meet at port %lld. Give the "
        "address of one node to all",
        CONFIG_SETTING(config, "master-addr"), master, (long long)config->master_port);
}

/* The last number of "2" or "1:4"; 0: there is none. */
static int64_t count_of(const char *text)
{
    const char *colon = text ? strchr(text, ':') : NULL;
    int64_t count;
    return text && text_int64(colon ? colon + 1 : text, &count) && count > 0 ? count : 0;
}

static int warn_of_count(struct run_config *config, const struct config_environment *environment,
                         struct muster_error *err)
{
    static const struct {
        const char *nodes, *processes; /* that count, and that is taken for it */
    } counts[] = {{"PET_NNODES", ENV_WORLD_SIZE},
                  {"SLURM_STEP_NUM_NODES", "SLURM_NTASKS"},
                  {"SLURM_JOB_NUM_NODES", "SLURM_NTASKS"}};
    if (config_source(config, "nnodes") != KNOB_FROM_FLAG)
        return 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const char *given = config_get(environment, counts[i].nodes);
        int64_t nodes = count_of(given);
        if (!nodes)
            continue;
        if (config->min_nodes <= nodes)
            return 0;
        bool taken = count_of(config_get(environment, counts[i].processes)) == config->min_nodes;
        return config_warn(
            config, err, "--nnodes=%s, but %s is %s: the job waits for nodes that do not exist%s%s%s",
            config->nnodes, counts[i].nodes, given, taken ? ". " : "", taken ? counts[i].processes : "",
            taken ? " counts processes here: leave --nnodes out" : "");
    }
    return 0;
}

/* A job of several roles counts its pods by role, so that their index is no rank: then only rank 0 is a
 * mistake. */
static int warn_of_rank(struct run_config *config, const struct config_environment *environment,
                        struct muster_error *err)
{
    static const struct {
        const char *name;
        bool of_role;
    } ranks[] = {{"PET_NODE_RANK", false}, {"SLURM_NODEID", false}, {"JOB_COMPLETION_INDEX", true}};
    if (config->elastic || config_source(config, "node-rank") != KNOB_FROM_FLAG)
        return 0;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *given = config_get(environment, ranks[i].name);
        int64_t rank;
        if (!given || !text_int64(given, &rank))
            continue;
        if (rank == config->node_rank || (ranks[i].of_role && config->node_rank))
            return 0;
        return config_warn(
            config, err,
            "--node-rank=%lld, but %s is %s: two nodes with one rank wait for each other. Leave "
            "--node-rank out",
            (long long)config->node_rank, ranks[i].name, given);
    }
    return 0;
}

int config_warn_of_mistakes(struct run_config *config, const struct config_environment *environment,
                            struct muster_error *err)
{
    if (!config_meets(config))
        return 0;
    if (warn_of_loopback(config, err) < 0)
        return -1;
    if (config_get(environment, ENV_RUN_ID)) /* a worker's environment is another job's */
        return 0;
    return warn_of_count(config, environment, err) < 0 ? -1 : warn_of_rank(config, environment, err);
}
