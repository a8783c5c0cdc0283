/* config_mistakes.c - warnings of settings with which a job would wait for nodes that never come (pure); see
 * config_internal.h. */
#include "launcher/config/config_internal.h"

#include <string.h>

#include "launcher/config/node_identity.h"
#include "proto/base/address.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

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
