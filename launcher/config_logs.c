/* config_logs.c - what the settings about the workers' output mean (pure); see config_internal.h. */
#include "launcher/config_internal.h"

#include <stdlib.h>

#include "proto/base/error.h"

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

int config_check_logs(const struct run_config *config, struct muster_error *err)
{
    if (config_streams(config->redirects, 0) < 0 || config_streams(config->tee, 0) < 0) {
        bool first = config_streams(config->redirects, 0) < 0;
        return error_set(
            err, MUSTER_E_INVALID, "%s: '%s' is not 0, 1, 2, 3 or a map of local ranks such as 0:1,1:3",
            CONFIG_SETTING(config, first ? "redirects" : "tee"), first ? config->redirects : config->tee);
    }
    return 0;
}
