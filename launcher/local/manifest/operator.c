/* operator.c - see operator.h. */
#include "launcher/local/manifest/operator.h"

#include <string.h>

#include "launcher/local/pod/schema.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

static const char *lower_name(enum local_replica_type type)
{
    return type == LOCAL_MASTER ? "master" : "worker";
}

char *operator_pod_name(const struct pytorchjob *job, enum local_replica_type type, int64_t index)
{
    char *name = mem_printf("%s-%s-%lld", job->name, lower_name(type), (long long)index);
    for (char *at = name; at && *at; at++)
        if (*at == '/')
            *at = '-';
    return name;
}

static bool has_master(const struct pytorchjob *job)
{
    return job->replicas[LOCAL_MASTER].entry != NULL;
}

bool operator_adds_init_container(const struct pytorchjob *job, enum local_replica_type type)
{
    return type == LOCAL_WORKER && has_master(job);
}

int operator_labels(const struct pytorchjob *job, enum local_replica_type type, int index,
                    struct facts *labels)
{
    bool leads = type == LOCAL_MASTER || (!has_master(job) && index == 0);
    bool done =
        facts_add(labels, "training.kubeflow.org/operator-name", mem_strdup("pytorchjob-controller")) &&
        facts_add(labels, "training.kubeflow.org/job-name", mem_strdup(job->name)) &&
        facts_add(labels, "training.kubeflow.org/replica-type", mem_strdup(lower_name(type))) &&
        facts_add_number(labels, "training.kubeflow.org/replica-index", index);
    if (done && leads)
        done = facts_add(labels, "training.kubeflow.org/job-role", mem_strdup("master"));
    return done ? 0 : -1;
}

/* --- the environment --- */

static int64_t pods_of(const struct pytorchjob *job)
{
    return job->replicas[LOCAL_MASTER].count + job->replicas[LOCAL_WORKER].count;
}

/* Pods, times the processes of each if that is a number: RANK counts pods all the same. */
static int64_t world_size(const struct pytorchjob *job)
{
    int64_t each, total;
    if (!job->nproc || !text_int64(job->nproc, &each) || __builtin_mul_overflow(pods_of(job), each, &total))
        return pods_of(job);
    return total;
}

static bool add_rdzv_conf(struct facts *env, const struct tree_node *conf)
{
    if (!conf || conf->kind != TREE_LIST)
        return true;
    scope_buffer text = {0};
    for (size_t i = 0; i < conf->count; i++) {
        const char *key = tree_text(tree_get(conf->items[i], "key"));
        const char *value = tree_text(tree_get(conf->items[i], "value"));
        buffer_printf(&text, "%s%s=%s", i ? "," : "", key ? key : "", value ? value : "");
    }
    return facts_add(env, "PET_RDZV_CONF", buffer_take(&text));
}

static char *endpoint(const struct pytorchjob *job)
{
    const char *host = tree_text(tree_get(job->elastic, "rdzvHost"));
    int64_t port = schema_integer(job->elastic, "rdzvPort", job->replicas[LOCAL_WORKER].port);
    scope_free char *worker = operator_pod_name(job, LOCAL_WORKER, 0);
    return worker ? mem_printf("%s:%lld", host ? host : worker, (long long)port) : NULL;
}

static bool add_elastic(struct facts *env, const struct pytorchjob *job)
{
    const struct tree_node *policy = job->elastic, *standalone = tree_get(policy, "standalone");
    const char *backend = tree_text(tree_get(policy, "rdzvBackend")),
               *id = tree_text(tree_get(policy, "rdzvId"));
    bool done =
        facts_add(env, "PET_RDZV_ENDPOINT", endpoint(job)) &&
        facts_add(env, "PET_RDZV_BACKEND", mem_strdup(backend ? backend : "c10d")) &&
        facts_add(env, "PET_NNODES",
                  mem_printf("%lld:%lld", (long long)job->min_replicas, (long long)job->max_replicas));
    if (done && tree_get(policy, "maxRestarts"))
        done = facts_add_number(env, "PET_MAX_RESTARTS", schema_integer(policy, "maxRestarts", 0));
    if (done && tree_get(policy, "nProcPerNode"))
        done = facts_add_number(env, "PET_NPROC_PER_NODE", schema_integer(policy, "nProcPerNode", 1));
    if (done && id)
        done = facts_add(env, "PET_RDZV_ID", mem_strdup(id));
    done = done && add_rdzv_conf(env, tree_get(policy, "rdzvConf"));
    if (done && standalone && standalone->kind == TREE_BOOL && standalone->boolean)
        done = facts_add(env, "PET_STANDALONE",
                         mem_strdup("")); /* torchrun cannot read it; ours takes it as true */
    return done;
}

int operator_env(const struct pytorchjob *job, enum local_replica_type type, int index, struct facts *env)
{
    bool done = facts_add(env, "PYTHONUNBUFFERED", mem_strdup("1"));
    if (done && has_master(job)) {
        int rank = type == LOCAL_MASTER ? 0 : index + 1;
        int port = job->replicas[LOCAL_MASTER].port;
        done = facts_add_number(env, "MASTER_PORT", port) && facts_add_number(env, "PET_MASTER_PORT", port) &&
               facts_add(env, "MASTER_ADDR", operator_pod_name(job, LOCAL_MASTER, 0)) &&
               facts_add(env, "PET_MASTER_ADDR", operator_pod_name(job, LOCAL_MASTER, 0)) &&
               facts_add_number(env, "WORLD_SIZE", world_size(job)) && facts_add_number(env, "RANK", rank) &&
               facts_add_number(env, "PET_NODE_RANK", rank);
    }
    if (done && job->nproc)
        done = facts_add(env, "PET_NPROC_PER_NODE", mem_strdup(job->nproc));
    if (done)
        done = job->elastic ? add_elastic(env, job) : facts_add_number(env, "PET_NNODES", pods_of(job));
    return done ? 0 : -1;
}
