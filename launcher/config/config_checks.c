/* config_checks.c - checks of the settings for the workers' output, signals, hangs and restarts (pure); see
 * config_internal.h. */
#include "launcher/config/config_internal.h"

#include <stdlib.h>
#include <string.h>

#include "launcher/host/signal_names.h"
#include "launcher/output/log_filter.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

/* One "local:value" of a map; returns what follows it, or NULL. */
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
