/* pytorchjob.c - fields and their defaults; see pytorchjob.h. */
#include "launcher/local/manifest/pytorchjob.h"

#include <string.h>
#include <strings.h>

#include "launcher/local/pod/schema.h"

static const char specs[] = "pytorchReplicaSpecs";

/* "Master", "Worker" */
static const char *pytorchjob_type_name(enum local_replica_type type)
{
    return type == LOCAL_MASTER ? "Master" : "Worker";
}

static const struct tree_node *typed(const struct tree_node *map, const char *field, enum tree_kind kind)
{
    const struct tree_node *node = tree_get(map, field);
    return node && node->kind == kind ? node : NULL;
}

/* --- replicas --- */

/* The entry of a type in any letter case; the exact spelling goes first. */
static const struct tree_entry *find_replica(const struct pytorchjob *job, enum local_replica_type type,
                                             struct problems *problems)
{
    const struct tree_node *map = tree_get(job->spec, specs);
    const char *name = pytorchjob_type_name(type);
    const struct tree_entry *found = tree_entry(map, name);
    const struct path *path = PATH_FIELD(PATH_FIELD(NULL, "spec"), specs);
    for (size_t i = 0; map && map->kind == TREE_MAP && i < map->count; i++) {
        const struct tree_entry *entry = &map->entries[i];
        const struct tree_node place = {.line = entry->line, .column = entry->column};
        if (strcasecmp(entry->key, name) || entry == found)
            continue;
        if (found) {
            problems_add(problems, PROBLEM_INVALID, job->file, &place, PATH_KEY(path, entry->key),
                         "%s is given a second time", name);
            problems_fatal(problems);
            continue;
        }
        problems_add(problems, PROBLEM_WARNING, job->file, &place, PATH_KEY(path, entry->key),
                     "read as %s, as the operator would; its webhook (since v1.8) refuses this spelling",
                     name);
        found = entry;
    }
    return found;
}

static enum local_restart_policy restart_policy(const struct pytorchjob *job, const struct tree_node *replica,
                                                const struct path *path, struct problems *problems)
{
    static const char *const names[] = {"OnFailure", "Always", "Never", "ExitCode"};
    const char *text = tree_text(tree_get(replica, "restartPolicy"));
    for (size_t i = 0; text && *text && i < sizeof names / sizeof *names; i++)
        if (!strcmp(text, names[i]))
            return (enum local_restart_policy)i;
    if (text && *text)
        problems_add(problems, PROBLEM_NOT_SUPPORTED, job->file, tree_get(replica, "restartPolicy"),
                     PATH_FIELD(path, "restartPolicy"),
                     "'%.100s' is none of OnFailure, Always, Never, ExitCode: no pod could be made", text);
    return LOCAL_RESTART_ON_FAILURE;
}

/* The port named pytorchjob-port of a container. */
static int container_port(const struct tree_node *container)
{
    const struct tree_node *ports = typed(container, "ports", TREE_LIST);
    for (size_t i = 0; ports && i < ports->count; i++) {
        const char *name = tree_text(tree_get(ports->items[i], "name"));
        if (name && !strcmp(name, "pytorchjob-port"))
            return (int)schema_integer(ports->items[i], "containerPort", 0);
    }
    return PYTORCHJOB_PORT;
}

static void read_replica(struct pytorchjob *job, enum local_replica_type type, struct problems *problems)
{
    struct pytorchjob_replica *replica = &job->replicas[type];
    *replica = (struct pytorchjob_replica){.entry = find_replica(job, type, problems), .pytorch = -1};
    if (!replica->entry)
        return;
    const struct path *path = PATH_KEY(PATH_FIELD(PATH_FIELD(NULL, "spec"), specs), replica->entry->key);
    const struct tree_node *node = replica->entry->value;
    replica->count = schema_integer(node, "replicas", 1);
    replica->restart_policy = restart_policy(job, node, path, problems);
    replica->containers = typed(tree_get(tree_get(node, "template"), "spec"), "containers", TREE_LIST);
    for (size_t i = 0; replica->containers && replica->pytorch < 0 && i < replica->containers->count; i++) {
        const char *name = tree_text(tree_get(replica->containers->items[i], "name"));
        if (name && !strcmp(name, "pytorch"))
            replica->pytorch = (int)i;
    }
    replica->port =
        replica->pytorch < 0 ? PYTORCHJOB_PORT : container_port(replica->containers->items[replica->pytorch]);
}

/* --- the rest --- */

static void read_clean_policy(struct pytorchjob *job, struct problems *problems)
{
    const struct tree_node *node = tree_get(job->run_policy, "cleanPodPolicy");
    const char *text = tree_text(node);
    job->clean_policy = LOCAL_CLEAN_NONE;
    if (!text || !strcmp(text, "None"))
        return;
    job->clean_policy = !strcmp(text, "Running") ? LOCAL_CLEAN_RUNNING : LOCAL_CLEAN_ALL;
    if (strcmp(text, "Running") && strcmp(text, "All"))
        problems_add(problems, PROBLEM_WARNING, job->file, node,
                     PATH_FIELD(PATH_FIELD(PATH_FIELD(NULL, "spec"), "runPolicy"), "cleanPodPolicy"),
                     "'%.100s' is none of None, Running, All; it is not validated, and the operator then "
                     "deletes all pods",
                     text);
}

void pytorchjob_read(const char *file, const struct tree_node *object, const char *generated_name,
                     struct pytorchjob *job, struct problems *problems)
{
    *job = (struct pytorchjob){.file = file, .object = object};
    schema_check(&pytorchjob_schema, file, object, NULL, problems);
    const struct tree_node *metadata = tree_get(object, "metadata");
    job->spec = typed(object, "spec", TREE_MAP);
    job->run_policy = typed(job->spec, "runPolicy", TREE_MAP);
    job->name = tree_text(tree_get(metadata, "name"));
    if (!job->name)
        job->name = generated_name ? generated_name : "";
    job->namespace_ = tree_text(tree_get(metadata, "namespace"));
    if (!job->namespace_ || !*job->namespace_)
        job->namespace_ = "default";
    for (int type = 0; type < LOCAL_REPLICA_TYPES; type++)
        read_replica(job, (enum local_replica_type)type, problems);
    const int64_t none = INT64_MIN;
    job->elastic = typed(job->spec, "elasticPolicy", TREE_MAP);
    int64_t workers = job->replicas[LOCAL_WORKER].count;
    int64_t min = schema_integer(job->elastic, "minReplicas", none);
    int64_t max = schema_integer(job->elastic, "maxReplicas", none);
    job->min_replicas = min != none ? min : max != none ? max : workers;
    job->max_replicas = max != none ? max : min != none ? min : workers;
    job->nproc = tree_text(tree_get(job->spec, "nprocPerNode"));
    if (!job->nproc && !tree_get(job->elastic, "nProcPerNode"))
        job->nproc = "auto";
    read_clean_policy(job, problems);
}
