/* config_world.c - what the settings about nodes mean together: how many, which one this is, and where node 0
 * is found (pure); see config_internal.h. */
#include "launcher/config_internal.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

enum { DEFAULT_PORT = 29500, HOST_LIMIT = 253 };

/* What the environment says of other nodes does not concern a standalone job; a flag that contradicts is an
 * error. */
static int apply_standalone(struct run_config *config, struct muster_error *err)
{
    static const struct {
        const char *name, *value;
    } aside[] = {{"nnodes", "1"},      {"node-rank", "0"},       {"master-addr", "127.0.0.1"},
                 {"master-port", "0"}, {"rdzv-backend", "c10d"}, {"rdzv-endpoint", ""}};
    for (size_t i = 0; i < sizeof aside / sizeof *aside; i++)
        if (config_source(config, aside[i].name) != KNOB_FROM_FLAG &&
            config_set(config, aside[i].name, aside[i].value, KNOB_FROM_RULE, err) < 0)
            return -1;
    return 0;
}

static bool parse_count(const char *text, size_t length, int *out)
{
    char copy[16];
    int64_t value;
    if (length == 0 || length >= sizeof copy)
        return false;
    memcpy(copy, text, length);
    copy[length] = 0;
    if (!text_int64(copy, &value) || value < 1 || value > CONFIG_NODES_LIMIT)
        return false;
    *out = (int)value;
    return true;
}

static int resolve_nodes(struct run_config *config, struct muster_error *err)
{
    const char *where = CONFIG_SETTING(config, "nnodes"), *text = config->nnodes;
    size_t first = strcspn(text, ":");
    bool range = text[first] == ':';
    if (!parse_count(text, first, &config->min_nodes) ||
        (range && !parse_count(text + first + 1, strlen(text + first + 1), &config->max_nodes)))
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not a number of nodes of 1 to %d", where, text,
                         CONFIG_NODES_LIMIT);
    if (!range)
        config->max_nodes = config->min_nodes;
    if (config->min_nodes > config->max_nodes)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' has a minimum above its maximum", where, text);
    if (config->min_nodes < config->max_nodes)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s: '%s' asks for a world that changes its size, which is not there yet; give one number", where,
            text);
    if (config->standalone && config->max_nodes > 1)
        return error_set(err, MUSTER_E_INVALID, "--standalone is one node, but %s is %s", where, text);
    if (config->node_rank >= config->max_nodes)
        return error_set(err, MUSTER_E_INVALID, "%s: '%lld' is not below the number of nodes, %d (%s)",
                         CONFIG_SETTING(config, "node-rank"), (long long)config->node_rank, config->max_nodes,
                         where);
    return 0;
}

/* --rdzv-endpoint host:port as master_addr and master_port. */
static int take_endpoint(struct run_config *config, struct muster_error *err)
{
    const char *where = CONFIG_SETTING(config, "rdzv-endpoint"), *text = config->rdzv_endpoint;
    const char *colon = strrchr(text, ':');
    int64_t port;
    if (!colon || colon == text || !text_int64(colon + 1, &port) || port < 1 || port > 65535)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not host:port with a port of 1 to 65535", where,
                         text);
    scope_free char *host = mem_strndup(text, (size_t)(colon - text));
    if (!host)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    if (config_set(config, "master-addr", host, KNOB_FROM_RULE, err) < 0)
        return -1;
    config->master_port = port;
    return 0;
}

static int resolve_backend(struct run_config *config, struct muster_error *err)
{
    const char *where = CONFIG_SETTING(config, "rdzv-backend"), *backend = config->rdzv_backend;
    bool fixed = !strcmp(backend, "static"), endpoint = config->rdzv_endpoint && *config->rdzv_endpoint;
    if (!strncmp(backend, "etcd", 4))
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s: '%s' is not supported, no etcd is needed; use static with --node-rank, --master-addr and "
            "--master-port",
            where, backend);
    if (!fixed && strcmp(backend, "c10d"))
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not one of static, c10d", where, backend);
    if (!fixed && config->max_nodes > 1)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s: c10d with several nodes is not there yet; use static with --node-rank, --master-addr and "
            "--master-port",
            where);
    return fixed && endpoint ? take_endpoint(config, err) : 0;
}

static int resolve_master(struct run_config *config, struct muster_error *err)
{
    char *host = config->master_addr;
    const char *where = CONFIG_SETTING(config, "master-addr");
    size_t length = strlen(host);
    if (length > 1 && host[0] == '[' && host[length - 1] == ']') { /* an IPv6 address as in URLs */
        memmove(host, host + 1, length - 2);
        host[length - 2] = 0;
    }
    if (!*host || strlen(host) > HOST_LIMIT || strcspn(host, " \t\r\n/") != strlen(host))
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not a host name or an address", where, host);
    if (config->max_nodes > 1 && config->master_port == 0)
        config->master_port = DEFAULT_PORT;
    if (config->max_nodes > 1 && config_source(config, "node-rank") == KNOB_FROM_DEFAULT)
        return config_note(config, "no --node-rank and no PET_NODE_RANK: this is node 0", err);
    return 0;
}

/* --rdzv-conf: what it says counts where no flag of its own does. */
static int apply_rdzv_conf(struct run_config *config, struct muster_error *err)
{
    struct rdzv_conf *conf = &config->rdzv_conf;
    const char *where = CONFIG_SETTING(config, "rdzv-conf");
    scope_buffer aside = {0};
    if (rdzv_conf_parse(config->rdzv_conf_text, where, conf, &aside, err) < 0)
        return -1;
    double wait = conf->join_timeout > 0 ? conf->join_timeout : conf->timeout;
    if (wait > 0 && config_source(config, "join-timeout") == KNOB_FROM_DEFAULT) {
        scope_free char *text = mem_printf("%.15g", wait);
        if (!text)
            return error_set(err, MUSTER_E_NOMEM, "no memory");
        if (config_set(config, "join-timeout", text, KNOB_FROM_RULE, err) < 0)
            return -1;
    }
    if (!aside.length)
        return 0;
    scope_free char *line = mem_printf("%s: without meaning here: %s", where, aside.data);
    return line ? config_note(config, line, err) : error_set(err, MUSTER_E_NOMEM, "no memory");
}

int config_resolve_world(struct run_config *config, struct muster_error *err)
{
    if (config->standalone && apply_standalone(config, err) < 0)
        return -1;
    return apply_rdzv_conf(config, err) < 0 || resolve_nodes(config, err) < 0 ||
                   resolve_backend(config, err) < 0 || resolve_master(config, err) < 0
               ? -1
               : 0;
}
