/* pytorchjob_validate.c - the webhook's rules of v1.9.4, all of them in its order, and warnings about
 * cases that it accepts; see pytorchjob.h. */
#include <string.h>
#include <strings.h>

#include "launcher/local/manifest/pytorchjob.h"
#include "launcher/local/pod/placeholder.h"

enum { LABEL_LIMIT = 63, PODS_LIMIT = 1000 };

static const char managed_by_operator[] = "kubeflow.org/training-operator";
static const char managed_by_kueue[] = "kueue.x-k8s.io/multikueue";

#define SPEC     PATH_FIELD(NULL, "spec")
#define REPLICAS PATH_FIELD(SPEC, "pytorchReplicaSpecs")
#define ELASTIC  PATH_FIELD(SPEC, "elasticPolicy")

struct validation {
    const struct pytorchjob *job;
    struct problems *problems;
};

#define ERROR(v, type, node, path, ...)                                                                      \
    problems_add((v)->problems, PROBLEM_##type, (v)->job->file, node, path, __VA_ARGS__)
#define FATAL(v, type, node, path, ...)                                                                      \
    (ERROR(v, type, node, path, __VA_ARGS__), problems_fatal((v)->problems))

/* A DNS-1035 label: a letter, then letters, digits and dashes, no dash at the end. */
static bool is_label(const char *name)
{
    size_t length = strlen(name);
    return length >= 1 && length <= LABEL_LIMIT && name[0] >= 'a' && name[0] <= 'z' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == length && name[length - 1] != '-';
}

static void check_name(const struct validation *v)
{
    const struct tree_node *metadata = tree_get(v->job->object, "metadata");
    const struct tree_node *at = tree_get(metadata, "name");
    const struct path *path = PATH_FIELD(PATH_FIELD(NULL, "metadata"), "name");
    if (!*v->job->name)
        FATAL(v, REQUIRED, metadata, path, "the job needs a name");
    else if (!is_label(v->job->name) && placeholder_in_text(v->job->name).kind == PLACEHOLDER_NONE)
        ERROR(v, INVALID, at, path,
              "'%.100s' is not a label: at most 63 lower-case letters, digits and dashes, a letter first and "
              "no dash last",
              v->job->name);
}

static void check_containers(const struct validation *v, const struct pytorchjob_replica *replica,
                             const struct path *path)
{
    const struct path *containers =
        PATH_FIELD(PATH_FIELD(PATH_FIELD(path, "template"), "spec"), "containers");
    const struct tree_node *at = replica->containers ? replica->containers : replica->entry->value;
    size_t count = replica->containers ? replica->containers->count : 0;
    if (!count)
        ERROR(v, REQUIRED, at, containers, "must be specified");
    for (size_t i = 0; i < count; i++) {
        const char *image = tree_text(tree_get(replica->containers->items[i], "image"));
        if (!image || !*image)
            ERROR(v, REQUIRED, replica->containers->items[i], PATH_FIELD(PATH_INDEX(containers, i), "image"),
                  "must be given");
    }
    if (replica->pytorch < 0)
        FATAL(v, REQUIRED, at, containers, "one container must have the name pytorch");
}

static void check_replica(const struct validation *v, enum local_replica_type type)
{
    const struct pytorchjob_replica *replica = &v->job->replicas[type];
    if (!replica->entry)
        return;
    const struct path *path = PATH_KEY(REPLICAS, replica->entry->key),
                      *replicas = PATH_FIELD(path, "replicas");
    const struct tree_node *given = tree_get(replica->entry->value, "replicas");
    check_containers(v, replica, path);
    if (type == LOCAL_MASTER && !given)
        ERROR(v, FORBIDDEN, replica->entry->value, replicas, "must be 1 and must be given");
    else if (type == LOCAL_MASTER && replica->count != 1)
        ERROR(v, FORBIDDEN, given, replicas, "must be 1, not %lld", (long long)replica->count);
    else if (type == LOCAL_WORKER && replica->count < 1)
        ERROR(v, FORBIDDEN, given, replicas, "must be at least 1, not %lld", (long long)replica->count);
    if (replica->port < 1 || replica->port > 65535) {
        problems_add(v->problems, PROBLEM_INVALID, v->job->file, replica->entry->value, path,
                     "pytorchjob-port %d is outside 1 to 65535", replica->port);
        problems_fatal(v->problems);
    }
}

static void check_replicas(const struct validation *v)
{
    const struct tree_node *map = tree_get(v->job->spec, "pytorchReplicaSpecs");
    if (!map) {
        FATAL(v, REQUIRED, v->job->spec ? v->job->spec : v->job->object, REPLICAS, "must be given");
        return;
    }
    for (size_t i = 0; map->kind == TREE_MAP && i < map->count; i++) {
        const struct tree_entry *entry = &map->entries[i];
        const struct tree_node place = {.line = entry->line, .column = entry->column};
        if (strcasecmp(entry->key, "Master") && strcasecmp(entry->key, "Worker"))
            ERROR(v, NOT_SUPPORTED, &place, PATH_KEY(REPLICAS, entry->key),
                  "the types are Master and Worker");
    }
    int64_t pods = 0;
    for (int type = 0; type < LOCAL_REPLICA_TYPES; type++) {
        check_replica(v, (enum local_replica_type)type);
        pods += v->job->replicas[type].count > 0 ? v->job->replicas[type].count : 0;
    }
    if (pods > PODS_LIMIT)
        FATAL(v, INVALID, map, REPLICAS, "%lld pods are more than the %d that one machine supports",
              (long long)pods, PODS_LIMIT);
    if (pods)
        return;
    if (!v->problems->errors)
        ERROR(v, REQUIRED, map, REPLICAS, "there is neither a Master nor a Worker");
    problems_fatal(v->problems);
}

static void check_elastic(const struct validation *v)
{
    const struct pytorchjob *job = v->job;
    if (!job->elastic)
        return;
    const struct tree_node *old = tree_get(job->elastic, "nProcPerNode");
    const struct tree_node *conf = tree_get(job->elastic, "rdzvConf");
    if (!job->replicas[LOCAL_WORKER].entry)
        FATAL(v, REQUIRED, job->elastic, PATH_KEY(REPLICAS, "Worker"), "elasticPolicy needs Workers");
    if (old)
        problems_add(v->problems, PROBLEM_WARNING, job->file, old, PATH_FIELD(ELASTIC, "nProcPerNode"),
                     "deprecated since v1.7; use spec.nprocPerNode, which is text");
    if (old && tree_get(job->spec, "nprocPerNode"))
        ERROR(v, FORBIDDEN, old, PATH_FIELD(ELASTIC, "nProcPerNode"),
              "must not be given with spec.nprocPerNode");
    if (conf && conf->kind == TREE_LIST && !conf->count)
        FATAL(v, INVALID, conf, PATH_FIELD(ELASTIC, "rdzvConf"),
              "an empty list crashes the operator; leave it out");
}

void pytorchjob_validate(const struct pytorchjob *job, struct problems *problems)
{
    const struct validation v = {job, problems};
    check_name(&v);
    check_replicas(&v);
    check_elastic(&v);
    const struct tree_node *node = tree_get(v.job->run_policy, "managedBy");
    const struct path *path = PATH_FIELD(PATH_FIELD(SPEC, "runPolicy"), "managedBy");
    const char *text = tree_text(node);
    if (text && !strcmp(text, managed_by_kueue))
        problems_add(v.problems, PROBLEM_WARNING, v.job->file, node, path,
                     "the operator ignores such a job; it runs here all the same");
    else if (text && strcmp(text, managed_by_operator))
        ERROR(&v, NOT_SUPPORTED, node, path, "'%.100s' is neither %s nor %s", text, managed_by_operator,
              managed_by_kueue);
}

/* --- cases that are not validated --- */

static void warn_elastic(const struct validation *v)
{
    const struct pytorchjob *job = v->job;
    const struct pytorchjob_replica *worker = &job->replicas[LOCAL_WORKER];
    if (!job->elastic)
        return;
    long long min = (long long)job->min_replicas, max = (long long)job->max_replicas;
    if (job->replicas[LOCAL_MASTER].entry)
        ERROR(v, WARNING, job->elastic, ELASTIC,
              "with a Master, PET_NNODES=%lld:%lld counts the Workers alone while %lld pods start: %s; "
              "leave the "
              "Master out",
              min, max, (long long)(worker->count + 1),
              worker->count + 1 > max ? "not all can join" : "the Master takes a Worker's place");
    if (min > max)
        ERROR(v, WARNING, job->elastic, ELASTIC,
              "minReplicas %lld is above maxReplicas %lld; this is not validated", min, max);
    else if (worker->entry && (worker->count < min || worker->count > max))
        ERROR(v, WARNING, job->elastic, ELASTIC, "%lld Workers are outside %lld:%lld: %s",
              (long long)worker->count, min, max,
              worker->count < min ? "too few to start" : "some cannot join");
    const struct tree_node *standalone = tree_get(job->elastic, "standalone");
    if (standalone && standalone->kind == TREE_BOOL && standalone->boolean)
        ERROR(v, WARNING, standalone, PATH_FIELD(ELASTIC, "standalone"),
              "becomes an empty PET_STANDALONE, with which torchrun itself cannot start");
}

static void warn_nproc(const struct validation *v)
{
    static const char *const words[] = {"auto", "cpu", "gpu"};
    const struct tree_node *node = tree_get(v->job->spec, "nprocPerNode");
    const char *text = tree_text(node);
    if (!text)
        return;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i]))
            return;
    if (!*text || strspn(text, "0123456789") != strlen(text) || strspn(text, "0") == strlen(text))
        ERROR(v, WARNING, node, PATH_FIELD(SPEC, "nprocPerNode"),
              "'%.100s' is neither auto, cpu, gpu nor a number above 0; this is not validated", text);
}

void pytorchjob_warn(const struct pytorchjob *job, struct problems *problems)
{
    const struct validation v = {job, problems};
    const struct pytorchjob_replica *worker = &job->replicas[LOCAL_WORKER];
    warn_elastic(&v);
    warn_nproc(&v);
    int digits = 1;
    for (int64_t last = worker->count - 1; last >= 10; last /= 10)
        digits++;
    size_t longest =
        strlen(job->name) + (worker->entry ? strlen("-worker-") + (size_t)digits : strlen("-master-0"));
    if (longest > LABEL_LIMIT)
        ERROR(&v, WARNING, tree_get(tree_get(job->object, "metadata"), "name"),
              PATH_FIELD(PATH_FIELD(NULL, "metadata"), "name"),
              "with -%s-<index> appended the name is %zu characters long; above 63 a cluster creates no "
              "service, and the job hangs",
              worker->entry ? "worker" : "master", longest);
}
