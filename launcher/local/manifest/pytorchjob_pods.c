/* pytorchjob_pods.c - a PyTorchJob's pods as the training operator makes them (v1.9.4); see building.h. */
#include <string.h>

#include "launcher/local/manifest/building.h"
#include "launcher/local/manifest/operator.h"
#include "proto/base/guard.h"

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

/* Workers that an elastic job may have beyond those that it begins with. */
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
    /* They stand behind the pods; nothing is to be said of them that was not said of those. */
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
