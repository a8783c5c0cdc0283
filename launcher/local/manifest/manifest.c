/* manifest.c - see manifest.h. */
#include "launcher/local/manifest/manifest.h"

#include <string.h>

#include "launcher/local/job/network.h"
#include "launcher/local/manifest/quantity.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

enum {
    JOB_BYTES_LIMIT = 64 << 20, /* of all pods' environments together */
    ADDRESSES_IN_A_ROW = 250,
    SPARES_LIMIT = 64 /* a machine runs no more */
};

struct building {
    const struct documents *documents;
    const struct manifest_settings *settings;
    struct pytorchjob source;
    struct local_job *job;
    size_t bytes;
    struct problems *problems;
    struct muster_error *err;
};

static int no_memory(const struct building *b)
{
    return error_set(b->err, MUSTER_E_NOMEM, "no memory");
}

/* --- which job --- */

static bool is_pytorchjob(const struct document_object *object)
{
    return !strcmp(object->kind, "PyTorchJob") && !strcmp(object->api_version, "kubeflow.org/v1");
}

/* What the files hold instead, for people. */
static void list_objects(const struct documents *documents, struct buffer *out)
{
    for (size_t i = 0; i < documents->object_count && out->length < 200; i++)
        buffer_printf(out, "%s%.60s %.60s (%.60s)", i ? ", " : "", documents->objects[i].kind,
                      documents->objects[i].name, documents->objects[i].api_version);
}

static int no_job(const struct documents *documents, const char *wanted, struct muster_error *err)
{
    scope_buffer list = {0};
    list_objects(documents, &list);
    return error_set(err, MUSTER_E_NOT_FOUND,
                     "there is no PyTorchJob of kubeflow.org/v1%s%.63s in these files; %s%s",
                     wanted ? " with the name " : "", wanted ? wanted : "",
                     list.data ? "they hold " : "they hold no objects at all", list.data ? list.data : "");
}

static int choose(const struct documents *documents, const char *wanted, const struct document_object **out,
                  struct muster_error *err)
{
    scope_buffer names = {0};
    int count = 0;
    for (size_t i = 0; i < documents->object_count; i++) {
        const struct document_object *object = &documents->objects[i];
        if (!is_pytorchjob(object) || (wanted && strcmp(wanted, object->name)))
            continue;
        *out = object;
        if (names.length < 200)
            buffer_printf(&names, "%s%.63s", count ? ", " : "", object->name);
        count++;
    }
    if (count == 0)
        return no_job(documents, wanted, err);
    if (count > 1)
        return error_set(err, MUSTER_E_INVALID,
                         "there are %d PyTorchJobs in these files (%s); choose one by --job", count,
                         names.data ? names.data : "");
    return 0;
}

/* Other objects that are neither read nor meant for us. */
static void note_others(const struct building *b, const struct document_object *chosen)
{
    for (size_t i = 0; i < b->documents->object_count; i++) {
        const struct document_object *object = &b->documents->objects[i];
        if (object != chosen && strcmp(object->kind, "ConfigMap") && strcmp(object->kind, "Secret"))
            problems_add(b->problems, PROBLEM_NOTE, object->file, NULL, NULL, "%.63s %.63s is left aside",
                         object->kind, object->name);
    }
}

/* --- pods --- */

static bool is_gpu(const char *resource)
{
    return !strncmp(resource, "nvidia.com/gpu", 14) || !strncmp(resource, "nvidia.com/mig-", 15);
}

/* GPUs that a container may use: limits, else requests. */
static int count_gpus(const struct tree_node *container)
{
    const struct tree_node *resources = tree_get(container, "resources");
    const struct tree_node *map = tree_get(resources, "limits");
    int64_t count = 0;
    if (!map)
        map = tree_get(resources, "requests");
    for (size_t i = 0; map && map->kind == TREE_MAP && i < map->count; i++) {
        quantity_thousandths amount;
        const struct tree_entry *entry = &map->entries[i];
        if (is_gpu(entry->key) && entry->value->text && quantity_parse(entry->value->text, &amount) &&
            amount > 0)
            count += quantity_in(amount, 1000);
        if (count > 1000000)
            return 1000000;
    }
    return (int)count;
}

static void note_containers(const struct building *b, enum local_replica_type type)
{
    const struct pytorchjob_replica *replica = &b->source.replicas[type];
    for (size_t i = 0; i < replica->containers->count; i++) {
        const char *name = tree_text(tree_get(replica->containers->items[i], "name"));
        if ((int)i != replica->pytorch)
            problems_add(b->problems, PROBLEM_NOTE, b->source.file, NULL, NULL,
                         "the container %.63s beside pytorch is not run", name ? name : "without a name");
    }
    if (operator_adds_init_container(&b->source, type))
        problems_add(
            b->problems, PROBLEM_NOTE, b->source.file, NULL, NULL,
            "in a cluster a Worker's container starts once the master's name resolves; here it does at once");
}

static int fill_environment(struct building *b, const struct container_place *place, struct local_pod *pod)
{
    struct env_map env = {0};
    struct text_list variables = {0}, command = {0};
    int result = container_env(place, &env, b->problems, b->err);
    if (!result && (env_map_list(&env, &variables) < 0 ||
                    pod_command(&b->settings->command, b->source.file, place->container, place->path, &env,
                                &command, b->problems) < 0))
        result = no_memory(b);
    b->bytes += env.bytes;
    for (size_t i = 0; i < command.count; i++)
        b->bytes += strlen(command.items[i]);
    pod->env = variables.items;
    pod->command = command.items;
    env_map_free(&env);
    return result;
}

static char *copy_or(const char *text, const char *otherwise)
{
    return mem_strdup(text && *text ? text : otherwise);
}

static int add_pod(struct building *b, enum local_replica_type type, int index)
{
    const struct pytorchjob_replica *replica = &b->source.replicas[type];
    const struct tree_node *spec = tree_get(tree_get(replica->entry->value, "template"), "spec");
    const struct tree_node *container = replica->containers->items[replica->pytorch];
    const char *directory = tree_text(tree_get(container, "workingDir"));
    const int number = b->job->pod_count + b->job->spare_count;
    struct local_pod *pod = &b->job->pods[number];
    b->job->pod_count++;
    pod->type = type;
    pod->index = index;
    pod->gpus = count_gpus(container);
    pod->grace_s = (double)pytorchjob_integer(spec, "terminationGracePeriodSeconds", PYTORCHJOB_GRACE_S);
    pod->name = operator_pod_name(&b->source, type, index);
    pod->hostname = pod->name ? copy_or(tree_text(tree_get(spec, "hostname")), pod->name) : NULL;
    pod->address = mem_printf("127.%d.%d.%d", b->settings->network ? b->settings->network : NETWORK_FIRST,
                              number / ADDRESSES_IN_A_ROW, number % ADDRESSES_IN_A_ROW + 1);
    if (!pod->name || !pod->hostname || !pod->address)
        return no_memory(b);
    if (directory && *directory && !(pod->working_dir = mem_strdup(directory)))
        return no_memory(b);
    const struct path *specs = PATH_FIELD(PATH_FIELD(NULL, "spec"), "pytorchReplicaSpecs");
    const struct path *template_ = PATH_FIELD(PATH_KEY(specs, replica->entry->key), "template");
    const struct path *path =
        PATH_INDEX(PATH_FIELD(PATH_FIELD(template_, "spec"), "containers"), (size_t)replica->pytorch);
    const struct container_place place = {.job = &b->source,
                                          .documents = b->documents,
                                          .machine = &b->settings->machine,
                                          .type = type,
                                          .index = index,
                                          .pod_name = pod->name,
                                          .address = pod->address,
                                          .extra = b->settings->env,
                                          .container = container,
                                          .path = path};
    return fill_environment(b, &place, pod);
}

/* Workers that an elastic job may have beyond those that it begins with. */
static int64_t count_spares(const struct building *b)
{
    int64_t spares = b->source.elastic ? b->source.max_replicas - b->source.replicas[LOCAL_WORKER].count : 0;
    return spares < 0 ? 0 : spares < SPARES_LIMIT ? spares : SPARES_LIMIT;
}

/* They stand behind the pods; nothing is to be said of them that was not said of those. */
static int add_spares(struct building *b)
{
    int64_t spares = count_spares(b), first = b->source.replicas[LOCAL_WORKER].count;
    for (int64_t i = 0; i < spares && b->bytes <= JOB_BYTES_LIMIT; i++) {
        if (add_pod(b, LOCAL_WORKER, (int)(first + i)) < 0)
            return -1;
        b->job->pod_count--;
        b->job->spare_count++;
    }
    return 0;
}

static int add_pods(struct building *b)
{
    int64_t total = 0;
    for (int type = 0; type < LOCAL_REPLICA_TYPES; type++)
        total += b->source.replicas[type].count > 0 ? b->source.replicas[type].count : 0;
    total += count_spares(b);
    b->job->pods = mem_calloc((size_t)total + 1, sizeof *b->job->pods);
    if (!b->job->pods)
        return no_memory(b);
    for (int type = 0; type < LOCAL_REPLICA_TYPES; type++) {
        const struct pytorchjob_replica *replica = &b->source.replicas[type];
        if (replica->count > 0)
            note_containers(b, (enum local_replica_type)type);
        for (int64_t i = 0; i < replica->count; i++) {
            if (add_pod(b, (enum local_replica_type)type, (int)i) < 0)
                return -1;
            if (b->problems->fatal)
                return 0; /* the next pods have the same to say */
            if (b->bytes > JOB_BYTES_LIMIT)
                return error_set(b->err, MUSTER_E_LIMIT,
                                 "%s: the environments and commands of all pods are more than %d bytes",
                                 b->source.file, JOB_BYTES_LIMIT);
        }
    }
    return add_spares(b);
}

/* --- the job --- */

static int fill_job(struct building *b)
{
    const struct pytorchjob *source = &b->source;
    const struct tree_node *suspend = tree_get(source->run_policy, "suspend");
    struct local_job *job = b->job;
    job->name = mem_strdup(source->name);
    job->namespace_ = mem_strdup(source->namespace_);
    if (!job->name || !job->namespace_)
        return no_memory(b);
    for (int type = 0; type < LOCAL_REPLICA_TYPES; type++) {
        int64_t count = source->replicas[type].count;
        job->replicas[type].count = count > 0 ? (int)count : 0;
        job->replicas[type].restart_policy = source->replicas[type].restart_policy;
    }
    job->elastic = source->elastic != NULL;
    job->min_replicas = (int)source->min_replicas;
    job->max_replicas = (int)source->max_replicas;
    job->clean_policy = source->clean_policy;
    job->backoff_limit = pytorchjob_integer(source->run_policy, "backoffLimit", -1);
    job->active_deadline_s = pytorchjob_integer(source->run_policy, "activeDeadlineSeconds", -1);
    job->ttl_s = pytorchjob_integer(source->run_policy, "ttlSecondsAfterFinished", -1);
    job->suspended = suspend && suspend->kind == TREE_BOOL && suspend->boolean;
    bool of_worker = source->elastic || !source->replicas[LOCAL_MASTER].entry;
    job->port = source->replicas[of_worker ? LOCAL_WORKER : LOCAL_MASTER].port;
    return add_pods(b);
}

/* Warnings and notes as the lines of job->warnings. */
static int fill_warnings(struct building *b)
{
    scope_buffer lines = {0};
    for (size_t i = 0; i < b->problems->count; i++)
        if (b->problems->list[i].type >= PROBLEM_WARNING)
            buffer_printf(&lines, "%s%s", lines.length ? "\n" : "", b->problems->list[i].text);
    if (lines.failed)
        return no_memory(b);
    if (lines.length && !(b->job->warnings = buffer_take(&lines)))
        return no_memory(b);
    return 0;
}

static int build(struct building *b, const struct document_object *object)
{
    const char *stem = tree_text(tree_get(tree_get(object->node, "metadata"), "generateName"));
    scope_free char *generated = stem ? mem_printf("%slocal", stem) : NULL;
    if (stem && !generated)
        return no_memory(b);
    pytorchjob_read(object->file, object->node, generated, &b->source, b->problems);
    pytorchjob_validate(&b->source, b->problems);
    if (!b->problems->fatal) {
        pytorchjob_warn(&b->source, b->problems);
        note_others(b, object);
        if (fill_job(b) < 0)
            return -1;
    }
    return b->problems->failed ? no_memory(b) : fill_warnings(b);
}

int manifest_build(const struct documents *documents, const struct manifest_settings *settings,
                   struct local_job *job, struct problems *problems, struct muster_error *err)
{
    const struct document_object *object = NULL;
    struct building b = {
        .documents = documents, .settings = settings, .job = job, .problems = problems, .err = err};
    *job = (struct local_job){0};
    if (choose(documents, settings->job, &object, err) < 0)
        return -1;
    int result = build(&b, object);
    if (result < 0 || problems->fatal)
        local_job_free(job);
    return result;
}
