/* operator.c - see operator.h. */
#include "launcher/local/manifest/operator.h"

#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/text.h"

static const char label_prefix[] = "training.kubeflow.org/";

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

int operator_label(const struct pytorchjob *job, enum local_replica_type type, int index, const char *name,
                   char **out)
{
    *out = NULL;
    if (strncmp(name, label_prefix, sizeof label_prefix - 1))
        return 0;
    name += sizeof label_prefix - 1;
    bool leads = type == LOCAL_MASTER || (!has_master(job) && index == 0);
    if (!strcmp(name, "operator-name"))
        *out = mem_strdup("pytorchjob-controller");
    else if (!strcmp(name, "job-name"))
        *out = mem_strdup(job->name);
    else if (!strcmp(name, "replica-type"))
        *out = mem_strdup(lower_name(type));
    else if (!strcmp(name, "replica-index"))
        *out = mem_printf("%d", index);
    else if (!strcmp(name, "job-role") && leads)
        *out = mem_strdup("master");
    else
        return 0;
    return *out ? 0 : -1;
}

/* --- the environment --- */

/* Takes value, which is NULL if there was no memory for it. */
static bool add(struct operator_env *env, const char *name, char *value)
{
    if (!value)
        return false;
    env->list[env->count++] = (struct operator_variable){name, value};
    return true;
}

static bool add_number(struct operator_env *env, const char *name, int64_t value)
{
    return add(env, name, mem_printf("%lld", (long long)value));
}

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

static bool add_master(struct operator_env *env, const struct pytorchjob *job, enum local_replica_type type,
                       int index)
{
    int rank = type == LOCAL_MASTER ? 0 : index + 1;
    int port = job->replicas[LOCAL_MASTER].port;
    return add_number(env, "MASTER_PORT", port) && add_number(env, "PET_MASTER_PORT", port) &&
           add(env, "MASTER_ADDR", operator_pod_name(job, LOCAL_MASTER, 0)) &&
           add(env, "PET_MASTER_ADDR", operator_pod_name(job, LOCAL_MASTER, 0)) &&
           add_number(env, "WORLD_SIZE", world_size(job)) && add_number(env, "RANK", rank) &&
           add_number(env, "PET_NODE_RANK", rank);
}

static bool add_rdzv_conf(struct operator_env *env, const struct tree_node *conf)
{
    if (!conf || conf->kind != TREE_LIST)
        return true;
    scope_buffer text = {0};
    for (size_t i = 0; i < conf->count; i++) {
        const char *key = tree_text(tree_get(conf->items[i], "key"));
        const char *value = tree_text(tree_get(conf->items[i], "value"));
        buffer_printf(&text, "%s%s=%s", i ? "," : "", key ? key : "", value ? value : "");
    }
    return add(env, "PET_RDZV_CONF", buffer_take(&text));
}

static char *endpoint(const struct pytorchjob *job)
{
    const char *host = tree_text(tree_get(job->elastic, "rdzvHost"));
    int64_t port = pytorchjob_integer(job->elastic, "rdzvPort", job->replicas[LOCAL_WORKER].port);
    scope_free char *worker = operator_pod_name(job, LOCAL_WORKER, 0);
    return worker ? mem_printf("%s:%lld", host ? host : worker, (long long)port) : NULL;
}

static bool add_elastic(struct operator_env *env, const struct pytorchjob *job)
{
    const struct tree_node *policy = job->elastic, *standalone = tree_get(policy, "standalone");
    const char *backend = tree_text(tree_get(policy, "rdzvBackend")),
               *id = tree_text(tree_get(policy, "rdzvId"));
    bool done = add(env, "PET_RDZV_ENDPOINT", endpoint(job)) &&
                add(env, "PET_RDZV_BACKEND", mem_strdup(backend ? backend : "c10d")) &&
                add(env, "PET_NNODES",
                    mem_printf("%lld:%lld", (long long)job->min_replicas, (long long)job->max_replicas));
    if (done && tree_get(policy, "maxRestarts"))
        done = add_number(env, "PET_MAX_RESTARTS", pytorchjob_integer(policy, "maxRestarts", 0));
    if (done && tree_get(policy, "nProcPerNode"))
        done = add_number(env, "PET_NPROC_PER_NODE", pytorchjob_integer(policy, "nProcPerNode", 1));
    if (done && id)
        done = add(env, "PET_RDZV_ID", mem_strdup(id));
    done = done && add_rdzv_conf(env, tree_get(policy, "rdzvConf"));
    if (done && standalone && standalone->kind == TREE_BOOL && standalone->boolean)
        done =
            add(env, "PET_STANDALONE", mem_strdup("")); /* torchrun cannot read it; ours takes it as true */
    return done;
}

int operator_env(const struct pytorchjob *job, enum local_replica_type type, int index,
                 struct operator_env *env)
{
    *env = (struct operator_env){0};
    bool done = add(env, "PYTHONUNBUFFERED", mem_strdup("1"));
    if (done && has_master(job))
        done = add_master(env, job, type, index);
    if (done && job->nproc)
        done = add(env, "PET_NPROC_PER_NODE", mem_strdup(job->nproc));
    if (done)
        done = job->elastic ? add_elastic(env, job) : add_number(env, "PET_NNODES", pods_of(job));
    if (!done)
        operator_env_free(env);
    return done ? 0 : -1;
}

void operator_env_free(struct operator_env *env)
{
    for (int i = 0; i < env->count; i++)
        mem_free(env->list[i].value);
    env->count = 0;
}
