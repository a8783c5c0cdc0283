/* train_logging.c - values derived from the settings of section logging. See train_config.h. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/config/train_config.h"

enum { TRACE_STEPS = 1000 };

static bool parse_steps(const char *text, int64_t *first, int64_t *last)
{
    const char *dash = strchr(text, '-');
    scope_free char *before = mem_strndup(text, dash ? (size_t)(dash - text) : strlen(text));
    if (!before || !text_int64(before, first))
        return false;
    *last = *first;
    return (!dash || text_int64(dash + 1, last)) && *first >= 1 && *last >= *first;
}

struct tracking_wishes train_config_tracking(const struct train_config *config)
{
    return (struct tracking_wishes){.wandb = config->wandb,
                                    .project = config->wandb_project,
                                    .entity = config->wandb_entity,
                                    .group = config->wandb_group,
                                    .run_name = config->run_name,
                                    .mlflow = config->mlflow,
                                    .experiment = config->mlflow_experiment,
                                    .log_folder = config->log_folder};
}

int train_config_trace(const struct train_config *config, int64_t *first, int64_t *count,
                       struct muster_error *err)
{
    int64_t last;
    *first = *count = 0;
    if (!config->trace || !*config->trace)
        return 0;
    if (!parse_steps(config->trace, first, &last))
        return error_set(
            err, MUSTER_E_INVALID,
            "logging.trace '%s' is neither a step nor a range of steps, from 1: write 10 or 10-12",
            config->trace);
    if (last - *first >= TRACE_STEPS)
        return error_set(err, MUSTER_E_LIMIT, "logging.trace %s: at most %d steps at once", config->trace,
                         TRACE_STEPS);
    *count = last - *first + 1;
    return 0;
}
