/* pytorchjob_pods.c - a PyTorchJob's pods as the training operator makes them (v1.9.4), with its names,
 * labels and variables; see building.h. */
#include <string.h>

#include "launcher/local/manifest/building.h"
#include "launcher/local/manifest/pytorchjob.h"
#include "launcher/local/pod/env_map.h"
#include "launcher/local/pod/schema.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

/* --- the operator's variables --- */

static const char *lower_name(enum local_replica_type type)
{
    return type == LOCAL_MASTER ? "master" : "worker";
}

/* <job>-master-0, the caller's (mem_free); NULL without memory. */
static char *operator_pod_name(const struct pytorchjob *job, enum local_replica_type type, int64_t index)
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

/* Whether the operator puts its own container, which waits for the master's name, before the pod's. */
static bool operator_adds_init_container(const struct pytorchjob *job, enum local_replica_type type)
{
    return type == LOCAL_WORKER && has_master(job);
}

/* The labels that it sets. -1 without memory. */
static int operator_labels(const struct pytorchjob *job, enum local_replica_type type, int index,
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

/* The operator's additions to the environment of every container of a pod. -1 without memory. */
static int operator_env(const struct pytorchjob *job, enum local_replica_type type, int index,
                        struct facts *env)
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

/* --- pods --- */

enum { SPARES_LIMIT = 64 /* a machine runs no more */ };

struct making {
    struct building *b;
    const struct pytorchjob *source;
};

static int fill_source(const struct making *m, enum local_replica_type type, int index,
                       struct pod_source *source)
{
    const char *hostname = tree_text(tree_get(pod_source_spec(source), "hostname"));
    source->name = operator_pod_name(m->source, type, index);
    if (!source->name)
        return building_no_memory(m->b);
    source->hostname = mem_strdup(hostname && *hostname ? hostname : source->name);
    return source->hostname && operator_labels(m->source, type, index, &source->labels) == 0 &&
                   operator_env(m->source, type, index, &source->variables) == 0
               ? 0
               : building_no_memory(m->b);
}

static int add_pod(const struct making *m, enum local_replica_type type, int index)
{
    const struct pytorchjob_replica *replica = &m->source->replicas[type];
    const struct path *specs = PATH_FIELD(PATH_FIELD(NULL, "spec"), "pytorchReplicaSpecs");
    struct local_pod *pod;
    struct pod_source source = {.file = m->source->file,
                                .namespace_ = m->source->namespace_,
                                .template_ = tree_get(replica->entry->value, "template"),
                                .path = PATH_FIELD(PATH_KEY(specs, replica->entry->key), "template"),
                                .container = (size_t)replica->pytorch};
    int result = fill_source(m, type, index, &source);
    if (!result && index == 0) {
        building_note_containers(m->b, &source);
        if (tree_get(pod_source_spec(&source), "restartPolicy"))
            problems_add(m->b->problems, PROBLEM_NOTE, source.file, NULL, NULL,
                         "restartPolicy: the template's is overwritten by the replica's");
        if (operator_adds_init_container(m->source, type))
            problems_add(m->b->problems, PROBLEM_NOTE, source.file, NULL, NULL,
                         "in a cluster a Worker's container starts once the master's name resolves; here it "
                         "does at once");
    }
    if (!result) {
        result = building_add_pod(m->b, &source, &pod);
        pod->type = type;
        pod->index = index;
    }
    pod_source_free(&source);
    return result;
}

/* Workers that an elastic job may add to its first ones. */
static int64_t count_spares(const struct pytorchjob *source)
{
    int64_t spares = source->elastic ? source->max_replicas - source->replicas[LOCAL_WORKER].count : 0;
    return spares < 0 ? 0 : spares < SPARES_LIMIT ? spares : SPARES_LIMIT;
}

static int add_pods(const struct making *m)
{
    int64_t total = count_spares(m->source);
    for (int type = 0; type < LOCAL_REPLICA_TYPES; type++)
        total += m->source->replicas[type].count > 0 ? m->source->replicas[type].count : 0;
    if (building_reserve(m->b, total) < 0)
        return -1;
    for (int type = 0; type < LOCAL_REPLICA_TYPES; type++)
        for (int64_t i = 0; i < m->source->replicas[type].count; i++) {
            if (add_pod(m, (enum local_replica_type)type, (int)i) < 0)
                return -1;
            if (m->b->problems->fatal)
                return 0; /* the next pods have the same to say */
        }
    /* They follow the pods; problems of theirs were reported for the pods already. */
    int64_t spares = count_spares(m->source), first = m->source->replicas[LOCAL_WORKER].count;
    for (int64_t i = 0; i < spares; i++) {
        if (add_pod(m, LOCAL_WORKER, (int)(first + i)) < 0)
            return -1;
        m->b->job->pod_count--;
        m->b->job->spare_count++;
    }
    return 0;
}

static int fill_job(const struct making *m)
{
    const struct pytorchjob *source = m->source;
    const struct tree_node *suspend = tree_get(source->run_policy, "suspend");
    struct local_job *job = m->b->job;
    job->name = mem_strdup(source->name);
    job->namespace_ = mem_strdup(source->namespace_);
    if (!job->name || !job->namespace_)
        return building_no_memory(m->b);
    for (int type = 0; type < LOCAL_REPLICA_TYPES; type++) {
        int64_t count = source->replicas[type].count;
        job->replicas[type].count = count > 0 ? (int)count : 0;
        job->replicas[type].restart_policy = source->replicas[type].restart_policy;
    }
    job->elastic = source->elastic != NULL;
    job->min_replicas = (int)source->min_replicas;
    job->max_replicas = (int)source->max_replicas;
    job->clean_policy = source->clean_policy;
    job->backoff_limit = schema_integer(source->run_policy, "backoffLimit", -1);
    job->active_deadline_s = schema_integer(source->run_policy, "activeDeadlineSeconds", -1);
    job->ttl_s = schema_integer(source->run_policy, "ttlSecondsAfterFinished", -1);
    job->suspended = suspend && suspend->kind == TREE_BOOL && suspend->boolean;
    bool of_worker = source->elastic || !source->replicas[LOCAL_MASTER].entry;
    job->port = source->replicas[of_worker ? LOCAL_WORKER : LOCAL_MASTER].port;
    return add_pods(m);
}

int pytorchjob_build(struct building *b)
{
    const char *name;
    scope_free char *owned = NULL;
    struct pytorchjob source;
    if (building_name(b, &name, &owned) < 0)
        return -1;
    pytorchjob_read(b->object->file, b->object->node, name, &source, b->problems);
    pytorchjob_validate(&source, b->problems);
    if (b->problems->fatal)
        return 0;
    pytorchjob_warn(&source, b->problems);
    return fill_job(&(struct making){b, &source});
}
