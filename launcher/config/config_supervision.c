/* config_supervision.c - checks of the settings for signals, hangs and restarts (pure); see
 * config_internal.h. */
#include <string.h>

#include "launcher/config/config_internal.h"
#include "launcher/host/signal_names.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

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
    if (config->state_dir && config_source(config, "rdzv-id") == KNOB_FROM_DEFAULT)
        return error_set(err, MUSTER_E_INVALID,
                         "%s needs an explicit job id to find the job's state again: give --rdzv-id",
                         CONFIG_SETTING(config, "state-dir"));
    config->termination_log_asked = config_source(config, "termination-log") != KNOB_FROM_DEFAULT;
    config->stop_signals &= ~config->forwarded_signals;
    return 0;
}
