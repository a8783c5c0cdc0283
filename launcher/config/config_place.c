/* config_place.c - this node's place in the world if it was not given, and checks against implausible
 * places (pure); see config_internal.h. */
#include "launcher/config/config_internal.h"

#include <stdio.h>
#include <string.h>

#include "launcher/config/node_identity.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

static int take_place(struct run_config *config, const struct node_identity_found *found,
                      struct muster_error *err)
{
    char number[32];
    if (!*found->source)
        return config->max_nodes > 1
                   ? config_note(config, err, "no --node-rank and no PET_NODE_RANK: this is node 0")
                   : 0;
    mem_free(config->place_source);
    config->place_source = mem_strdup(found->source);
    if (!config->place_source)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    const char *reason = config->place_source;
    (void)snprintf(number, sizeof number, "%d", found->nodes);
    if (found->nodes &&
        (config_set(config, "nnodes", number, reason, err) < 0 || config_resolve_nodes(config, err) < 0))
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

/* If this node's rank was not given, applies the rules of node_identity.h. A standalone job has one node;
 * in a world ranked by the server no node has a rank beforehand. */
int config_find_place(struct run_config *config, const struct config_environment *environment,
                      const struct machine *machine, struct muster_error *err)
{
    if (config->standalone || !config_is_fixed(config) ||
        config_source(config, "node-rank") != KNOB_FROM_DEFAULT)
        return 0;
    struct node_identity_known known = {
        .nodes = config_is_said(config, "nnodes") ? config->max_nodes : 0,
        .master_addr = config_source(config, "master-addr") != KNOB_FROM_DEFAULT ? config->master_addr : NULL,
        .master_port = config_source(config, "master-port") != KNOB_FROM_DEFAULT ? config->master_port : -1,
        .host_name = machine->host_name,
        .full_name = machine->full_name,
        .get = environment->get,
        .context = environment->context};
    struct node_identity_found found;
    return node_identity_find(&known, &found, err) < 0 ? -1 : take_place(config, &found, err);
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
int config_warn_of_the_master(struct run_config *config, const struct config_environment *environment,
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
    const char *said = config_get(environment, "PET_NNODES");
    bool overruled = config_source(config, "nnodes") == KNOB_FROM_FLAG || config->standalone;
    int nodes = 0;
    if (config->max_nodes > 1 || !overruled || config_get(environment, ENV_RUN_ID))
        return 0;
    if (said) {
        const char *colon = strchr(said, ':'), *most = colon ? colon + 1 : said;
        return config_parse_count(most, strlen(most), &nodes) && nodes > 1 ? nodes : 0;
    }
    /* from an older operator, but overridden by a flag */
    bool operators = config_get(environment, ENV_MASTER_ADDR) && config_get(environment, ENV_MASTER_PORT) &&
                     config_get(environment, ENV_RANK);
    int64_t pods = operators ? count_pods(environment) : 0;
    return pods > 1 ? pods : 0;
}

/* A pod of many that starts a separate job: the environment's values about the others do not apply. */
int config_leave_other_pods(struct run_config *config, const struct config_environment *environment,
                            struct muster_error *err)
{
    const char *way = config->standalone ? "--standalone" : "--nnodes=1";
    int64_t pods = count_lone_pods(config, environment);
    if (!pods)
        return 0;
    return config_leave_aside(config, way, err) < 0
               ? -1
               : config_warn(
                     config, err,
                     "this is one of %lld pods by %s, but %s makes it a separate job: %lld independent jobs "
                     "would train. Leave --nnodes and --standalone out for one job of all pods",
                     (long long)pods,
                     config_get(environment, "PET_NNODES") ? "PET_NNODES" : "WORLD_SIZE and MASTER_ADDR", way,
                     (long long)pods);
}
