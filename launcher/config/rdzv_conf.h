/* rdzv_conf.h - pure: the text of --rdzv-conf, torchrun's "key=value,key=value", read into typed values.
 *
 * As torchrun does, an unknown key is accepted, quotes that a shell or a manifest left around the whole
 * list are removed, and the last value of a key wins. Unlike it, a known key's value is checked here. */
#ifndef MUSTER_LAUNCHER_CONFIG_RDZV_CONF_H
#define MUSTER_LAUNCHER_CONFIG_RDZV_CONF_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { RDZV_CONF_UNSET = -1 };

/* RDZV_CONF_UNSET if the key was not given. Durations are in seconds and above 0. */
struct rdzv_conf {
    double join_timeout, last_call_timeout, timeout;
    int64_t rank;
    int is_host; /* 0 or 1 */
};

/* where: the setting's name in errors ("--rdzv-conf", "PET_RDZV_CONF"). aside gets the names of the given
 * keys without effect, separated by ", ", each once: unknown ones, and those for mechanisms that muster
 * does not use (close_timeout, keep_alive_interval, use_libuv and others). text may be NULL. */
int rdzv_conf_parse(const char *text, const char *where, struct rdzv_conf *conf, struct buffer *aside,
                    struct muster_error *err);

#endif
