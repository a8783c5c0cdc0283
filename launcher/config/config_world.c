/* config_world.c - checks of the settings for nodes (pure): their number, the address of node 0, and this
 * node's place if it was not given; see config_internal.h. */
#include "launcher/config/config_internal.h"

#include <stdio.h>
#include <string.h>

#include "launcher/config/node_identity.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/env_names.h"
#include "rendezvous/roster/roster.h"

static const char default_endpoint_port[] = "29400"; /* torchrun's, of c10d */

_Static_assert((int)CONFIG_NODES_LIMIT == (int)ROSTER_MEMBER_LIMIT, "this address can be served");

/* Ignores the environment's values about other nodes. */
static int leave_aside(struct run_config *config, const char *reason, struct muster_error *err)
{
    static const struct {
        const char *name, *value;
    } aside[] = {
        {"node-rank", "0"}, {"master-addr", "127.0.0.1"}, {"master-port", "0"}, {"rdzv-endpoint", ""}};
    for (size_t i = 0; i < sizeof aside / sizeof *aside; i++)
        if (config_source(config, aside[i].name) != KNOB_FROM_FLAG &&
            config_set(config, aside[i].name, aside[i].value, reason, err) < 0)
            return -1;
    return 0;
}

/* The environment's values about other nodes do not apply to a standalone job; a contradicting flag is an
 * error. */
static int apply_standalone(struct run_config *config, struct muster_error *err)
{
    if (config_source(config, "nnodes") != KNOB_FROM_FLAG &&
        config_set(config, "nnodes", "1", "--standalone", err) < 0)
        return -1;
    if (config_source(config, "rdzv-backend") != KNOB_FROM_FLAG &&
        config_set(config, "rdzv-backend", "c10d", "--standalone", err) < 0)
        return -1;
    return leave_aside(config, "--standalone", err);
}

/* A number of nodes. */
static bool parse_count(const char *text, size_t length, int *out)
{
    char copy[32];
    int64_t value;
    if (length == 0 || length >= sizeof copy)
        return false;
    memcpy(copy, text, length);
    copy[length] = 0;
    text_trim(copy);
    if (!text_int64(copy, &value) || value < 1 || value > CONFIG_NODES_LIMIT)
        return false;
    *out = (int)value;
    return true;
}

/* min_nodes and max_nodes from nnodes. */
static int resolve_nodes(struct run_config *config, struct muster_error *err)
{
    const char *where = CONFIG_SETTING(config, "nnodes"), *text = config->nnodes;
    size_t first = strcspn(text, ":");
    bool range = text[first] == ':';
    if (!parse_count(text, first, &config->min_nodes) ||
        (range && !parse_count(text + first + 1, strlen(text + first + 1), &config->max_nodes)))
        return error_set(err, MUSTER_E_INVALID,
                         "%s: '%s' is not a number of nodes of 1 to %d, or MIN:MAX of them", where, text,
                         CONFIG_NODES_LIMIT);
    if (!range)
        config->max_nodes = config->min_nodes;
    if (config->min_nodes > config->max_nodes)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' has a minimum above its maximum", where, text);
    if (config->standalone && config->max_nodes > 1)
        return error_set(err, MUSTER_E_INVALID, "--standalone is one node, but %s is %s", where, text);
    return 0;
}

/* The rendezvous of the nodes: torchrun's localhost if not given. */
static int take_meeting_point(struct run_config *config, bool endpoint, const struct machine *machine,
                              struct muster_error *err)
{
    config->elastic = true;
    config->full_name = mem_strdup(machine->full_name);
    if (!config->full_name)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    config->wanted_rank =
        config_source(config, "node-rank") != KNOB_FROM_DEFAULT ? (int)config->node_rank : -1;
    if (endpoint)
        return config_take_endpoint(config, default_endpoint_port, err);
    return config_set(config, "master-addr", "localhost", "--rdzv-backend=c10d", err) < 0 ||
                   config_set(config, "master-port", default_endpoint_port, "--rdzv-backend=c10d", err) < 0
               ? -1
               : config_warn(
                     config, err,
                     "no --rdzv-endpoint was given: only nodes on this machine can meet, at localhost:%s",
                     default_endpoint_port);
}

/* As torchrun: a static world has the largest number of nodes. */
static int fix_nodes(struct run_config *config, struct muster_error *err)
{
    int least = config->min_nodes;
    config->min_nodes = config->max_nodes;
    if (least == config->max_nodes)
        return 0;
    return config_note(config, err,
                       "%s: '%s' means %d nodes with --rdzv-backend=static, as in torchrun; for an elastic "
                       "world give --rdzv-backend=c10d and --rdzv-endpoint",
                       CONFIG_SETTING(config, "nnodes"), config->nnodes, config->max_nodes);
}

/* "1:1" with an endpoint: one node trains, and others may wait for its place. "1" is a job of its own, which
 * needs no port; nor can nodes meet at port 0. */
static bool waits_for_its_place(const struct run_config *config)
{
    const char *endpoint = config->rdzv_endpoint, *port = endpoint ? strrchr(endpoint, ':') : NULL;
    return endpoint && *endpoint && strchr(config->nnodes, ':') && !config->standalone &&
           (!port || strcmp(port, ":0") != 0);
}

static int resolve_backend(struct run_config *config, const struct machine *machine, struct muster_error *err)
{
    text_trim(config->rdzv_backend);
    const char *where = CONFIG_SETTING(config, "rdzv-backend"), *backend = config->rdzv_backend;
    bool fixed = !strcmp(backend, "static"), endpoint = config->rdzv_endpoint && *config->rdzv_endpoint;
    if (!strncmp(backend, "etcd", 4))
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s: '%s' is not supported, no etcd is needed; use c10d with --rdzv-endpoint, or static with "
            "--node-rank, --master-addr and --master-port",
            where, backend);
    if (!fixed && strcmp(backend, "c10d"))
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is neither static nor c10d", where, backend);
    if (!fixed && (config->max_nodes > 1 || waits_for_its_place(config)))
        return take_meeting_point(config, endpoint, machine, err);
    if (!fixed)
        return endpoint && !config->standalone ? config_check_endpoint(config, default_endpoint_port, err)
                                               : 0;
    if (fix_nodes(config, err) < 0)
        return -1;
    return endpoint ? config_take_endpoint(config, NULL, err) : 0;
}

/* --rdzv-conf: its values apply unless a flag or variable of their own is set. */
static int apply_rdzv_conf(struct run_config *config, struct muster_error *err)
{
    struct rdzv_conf *conf = &config->rdzv_conf;
    const char *where = CONFIG_SETTING(config, "rdzv-conf");
    const char *reason = config_said_by(config, "rdzv-conf", "--rdzv-conf");
    char number[32];
    scope_buffer aside = {0};
    if (rdzv_conf_parse(config->rdzv_conf_text, where, conf, &aside, err) < 0)
        return -1;
    /* torchrun's c10d does not read timeout; of static it is the only one */
    const bool meets = !strcmp(config->rdzv_backend, "c10d");
    double wait = conf->join_timeout > 0 || meets ? conf->join_timeout : conf->timeout;
    if (meets && conf->timeout > 0)
        buffer_printf(&aside, "%stimeout (with c10d it is join_timeout)", aside.length ? ", " : "");
    if (aside.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    (void)snprintf(number, sizeof number, "%.15g", wait);
    if (wait > 0 && !config_is_said(config, "join-timeout") &&
        config_set(config, "join-timeout", number, reason, err) < 0)
        return -1;
    (void)snprintf(number, sizeof number, "%.15g", conf->last_call_timeout);
    if (conf->last_call_timeout > 0 && !config_is_said(config, "last-call-timeout") &&
        config_set(config, "last-call-timeout", number, reason, err) < 0)
        return -1;
    (void)snprintf(number, sizeof number, "%lld", (long long)conf->rank);
    if (conf->rank >= 0 && !config->standalone && !config_is_said(config, "node-rank") &&
        config_set(config, "node-rank", number, reason, err) < 0)
        return -1;
    return aside.length ? config_note(config, err, "%s: no effect here: %s", where, aside.data) : 0;
}

/* --port-range first-last */
static int resolve_ports(struct run_config *config, struct muster_error *err)
{
    const char *text = config->port_range;
    int64_t first, last;
    if (!text || !*text)
        return 0;
    size_t length = strcspn(text, "-:");
    scope_free char *begin = mem_strndup(text, length);
    if (!begin)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    if (!text[length] || !text_int64(begin, &first) || !text_int64(text + length + 1, &last) || first < 1 ||
        last < first || last > 65535)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not first-last with ports of 1 to 65535",
                         CONFIG_SETTING(config, "port-range"), text);
    config->first_port = (int)first;
    config->last_port = (int)last;
    return 0;
}

/* Whether the nodes have ranks before they meet. */
static bool is_fixed(const struct run_config *config)
{
    return config->standalone ||
           (!strcmp(config->rdzv_backend, "static") && config->min_nodes == config->max_nodes);
}

static int take_place(struct run_config *config, const struct node_identity_found *found,
                      struct muster_error *err)
{
    char number[32];
    if (!*found->source)
        return config->max_nodes > 1 && config_source(config, "node-rank") == KNOB_FROM_DEFAULT
                   ? config_note(config, err, "no --node-rank and no PET_NODE_RANK: this is node 0")
                   : 0;
    mem_free(config->place_source);
    config->place_source = mem_strdup(found->source);
    if (!config->place_source)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    const char *reason = config->place_source;
    (void)snprintf(number, sizeof number, "%d", found->nodes);
    if (found->nodes &&
        (config_set(config, "nnodes", number, reason, err) < 0 || resolve_nodes(config, err) < 0))
        return -1;
    (void)snprintf(number, sizeof number, "%d", found->node_rank);
    if (config_set(config, "node-rank", number, reason, err) < 0)
        return -1;
    if (*found->master_addr && config_set(config, "master-addr", found->master_addr, reason, err) < 0)
        return -1;
    (void)snprintf(number, sizeof number, "%d", found->master_port);
    if (found->master_port && config_set(config, "master-port", number, reason, err) < 0)
        return -1;
    return *found->job_id && !config_is_said(config, "rdzv-id")
               ? config_set(config, "rdzv-id", found->job_id, reason, err)
               : 0;
}

/* A file's value counts as known at first; where that matches no rule, the file may be that of another world.
 */
static bool is_known(const struct run_config *config, const char *name, bool file)
{
    enum knob_source source = config_source(config, name);
    return source != KNOB_FROM_DEFAULT && (file || source != KNOB_FROM_FILE);
}

/* If this node's rank was not given, applies the rules of node_identity.h. A standalone job has one node;
 * in a world ranked by the server no node has a rank beforehand. */
static int find_place(struct run_config *config, const struct config_environment *environment,
                      const struct machine *machine, struct muster_error *err)
{
    if (config->standalone || !is_fixed(config) || !config_is_free(config, "node-rank"))
        return 0;
    struct node_identity_found found = {0};
    for (int file = config->places.count > 0; file >= 0 && !*found.source; file--) {
        const bool nodes = config_is_said(config, "nnodes") || (file && config->max_nodes > 1);
        const struct node_identity_known known = {
            .nodes = nodes ? config->max_nodes : 0,
            .master_addr = is_known(config, "master-addr", file) ? config->master_addr : NULL,
            .master_port = is_known(config, "master-port", file) ? config->master_port : -1,
            .host_name = machine->host_name,
            .full_name = machine->full_name,
            .get = environment->get,
            .context = environment->context};
        if (node_identity_find(&known, &found, err) < 0)
            return -1;
    }
    return take_place(config, &found, err);
}

/* --- implausible places --- */

/* Pods counted by the operator: it writes WORLD_SIZE in processes if their number is given. */
static int64_t count_pods(const struct config_environment *environment)
{
    const char *world = config_get(environment, ENV_WORLD_SIZE),
               *nproc = config_get(environment, "PET_NPROC_PER_NODE");
    int64_t size, each;
    if (!world || !text_int64(world, &size))
        return 0;
    return nproc && text_int64(nproc, &each) && each > 0 && size % each == 0 ? size / each : size;
}

/* Elastic and with a Master: the operator counts workers in PET_NNODES, but the Master runs the command too.
 */
static int warn_of_the_master(struct run_config *config, const struct config_environment *environment,
                              struct muster_error *err)
{
    int64_t pods = count_pods(environment);
    if (config_source(config, "nnodes") != KNOB_FROM_ENVIRONMENT || !strchr(config->nnodes, ':') ||
        !config_get(environment, ENV_MASTER_ADDR) || !config_get(environment, "PET_NODE_RANK") ||
        pods <= config->max_nodes)
        return 0;
    return config_warn(config, err,
                       "PET_NNODES=%s counts workers only, but %lld pods run this command, including the "
                       "Master: at most %d take part, the last one waits as a spare. Remove the Master, or "
                       "raise maxReplicas (elasticPolicy and a Master do not work together)",
                       config->nnodes, (long long)pods, config->max_nodes);
}

/* How many pods run this command, although a flag makes each a separate job; 0: this is not the case. */
static int64_t count_lone_pods(const struct run_config *config, const struct config_environment *environment)
{
    const char *given = config_get(environment, "PET_NNODES");
    bool overruled = config_source(config, "nnodes") == KNOB_FROM_FLAG || config->standalone;
    int nodes = 0;
    if (config->max_nodes > 1 || !overruled || config_get(environment, ENV_RUN_ID))
        return 0;
    if (given) {
        const char *colon = strchr(given, ':'), *most = colon ? colon + 1 : given;
        return parse_count(most, strlen(most), &nodes) && nodes > 1 ? nodes : 0;
    }
    /* from an older operator, but overridden by a flag */
    bool operators = config_get(environment, ENV_MASTER_ADDR) && config_get(environment, ENV_MASTER_PORT) &&
                     config_get(environment, ENV_RANK);
    int64_t pods = operators ? count_pods(environment) : 0;
    return pods > 1 ? pods : 0;
}

/* A pod of many that starts a separate job: the environment's values about the others do not apply. */
static int leave_other_pods(struct run_config *config, const struct config_environment *environment,
                            struct muster_error *err)
{
    const char *way = config->standalone ? "--standalone" : "--nnodes=1";
    int64_t pods = count_lone_pods(config, environment);
    if (!pods)
        return 0;
    return leave_aside(config, way, err) < 0
               ? -1
               : config_warn(
                     config, err,
                     "this is one of %lld pods by %s, but %s makes it a separate job: %lld independent jobs "
                     "would train. Leave --nnodes and --standalone out for one job of all pods",
                     (long long)pods,
                     config_get(environment, "PET_NNODES") ? "PET_NNODES" : "WORLD_SIZE and MASTER_ADDR", way,
                     (long long)pods);
}

/* srun with several tasks a node: no task knows a place for its agent (node_identity.h), so that each would
 * train alone. */
static int warn_of_slurm_tasks(struct run_config *config, const struct config_environment *environment,
                               struct muster_error *err)
{
    const char *given = config_get(environment, "SLURM_STEP_NUM_TASKS"),
               *count = config_get(environment, "SLURM_STEP_NUM_NODES");
    int64_t tasks, nodes;
    if (config->max_nodes > 1 || config->standalone || config_is_said(config, "nnodes") ||
        config_get(environment, ENV_RUN_ID) || !config_get(environment, "SLURM_PROCID") || !given || !count ||
        !text_int64(given, &tasks) || !text_int64(count, &nodes) || nodes < 1 || tasks <= nodes)
        return 0;
    return config_warn(config, err,
                       "this is one of %lld tasks that srun started on %lld node%s, and each is an agent of "
                       "its own: %lld independent jobs would train. Start one agent a node: srun "
                       "--ntasks-per-node=1 muster run --nproc-per-node=%lld",
                       (long long)tasks, (long long)nodes, nodes == 1 ? "" : "s", (long long)tasks,
                       (long long)(tasks / nodes));
}

static int check_secret(struct run_config *config, struct muster_error *err)
{
    if (config->secret_file && !*config->secret_file) { /* as PET_*: empty is not given */
        mem_free(config->secret_file);
        config->secret_file = NULL;
    }
    if (!config->require_auth || config->secret_file || !config_meets(config) ||
        config_is_loopback(config->master_addr))
        return 0;
    return error_set(err, MUSTER_E_INVALID,
                     "%s: %d nodes with a rendezvous at '%s' need the job's secret: give all of them "
                     "--secret-file (muster secret makes one)",
                     CONFIG_SETTING(config, "require-auth"), config->max_nodes, config->master_addr);
}

int config_resolve_world(struct run_config *config, const struct config_environment *environment,
                         const struct machine *machine, struct muster_error *err)
{
    if (config->standalone && apply_standalone(config, err) < 0)
        return -1;
    if (apply_rdzv_conf(config, err) < 0 || resolve_nodes(config, err) < 0 ||
        leave_other_pods(config, environment, err) < 0 || resolve_backend(config, machine, err) < 0 ||
        find_place(config, environment, machine, err) < 0)
        return -1;
    if (!config->elastic)
        config->wanted_rank = (int)config->node_rank;
    if (is_fixed(config) && config->node_rank >= config->max_nodes)
        return error_set(err, MUSTER_E_INVALID, "%s: '%lld' is not below the number of nodes, %d (%s)",
                         CONFIG_SETTING(config, "node-rank"), (long long)config->node_rank, config->max_nodes,
                         CONFIG_SETTING(config, "nnodes"));
    if (config_resolve_addresses(config, err) < 0 || config_warn_of_mistakes(config, environment, err) < 0 ||
        resolve_ports(config, err) < 0 || check_secret(config, err) < 0)
        return -1;
    config_take_siblings(config, machine);
    return warn_of_slurm_tasks(config, environment, err) < 0 ? -1
                                                             : warn_of_the_master(config, environment, err);
}
