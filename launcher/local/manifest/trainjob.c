/* trainjob.c - see trainjob.h: the runtime's JobSet with the TrainJob's trainer in it. */
#include "launcher/local/manifest/trainjob.h"

#include <ctype.h>
#include <string.h>

#include "launcher/local/manifest/jobset.h"
#include "launcher/local/pod/quantity.h"
#include "launcher/local/pod/schema.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

static const char ancestor[] = "trainer.kubeflow.org/trainjob-ancestor-step",
                  built_in_name[] = "torch-distributed";

/* What Trainer installs; its image is not used here. */
static const char built_in[] =
    "apiVersion: trainer.kubeflow.org/v1alpha1\n"
    "kind: ClusterTrainingRuntime\n"
    "metadata: {name: torch-distributed}\n"
    "spec:\n"
    "  mlPolicy: {numNodes: 1, torch: {}}\n"
    "  template:\n"
    "    spec:\n"
    "      replicatedJobs:\n"
    "      - name: node\n"
    "        template:\n"
    "          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}\n"
    "          spec: {template: {spec: {containers: [{name: node, image: pytorch}]}}}\n";

#define ERROR(b, type, file, node, path, ...)                                                                \
    problems_add((b)->problems, PROBLEM_##type, file, node, path, __VA_ARGS__)
#define FATAL(b, type, file, node, path, ...)                                                                \
    (ERROR(b, type, file, node, path, __VA_ARGS__), problems_fatal((b)->problems))

#define SPEC    PATH_FIELD(NULL, "spec")
#define TRAINER PATH_FIELD(SPEC, "trainer")

/* --- the runtime --- */

static const struct document_object *find_runtime(const struct building *b, const char *kind,
                                                  const char *name)
{
    bool in_namespace = !strcmp(kind, "TrainingRuntime");
    for (size_t i = 0; i < b->documents->object_count; i++) {
        const struct document_object *object = &b->documents->objects[i];
        if (!strcmp(object->kind, kind) && !strcmp(object->name, name) &&
            (!in_namespace || !strcmp(object->namespace_, b->object->namespace_)))
            return object;
    }
    return NULL;
}

static int read_runtime(struct building *b, struct trainjob *job)
{
    const struct tree_node *ref = tree_get(job->spec, "runtimeRef");
    const char *kind = tree_text(tree_get(ref, "kind")), *name = tree_text(tree_get(ref, "name"));
    kind = kind ? kind : "ClusterTrainingRuntime";
    job->runtime_name = name ? name : "";
    if (!ref || !name) {
        FATAL(b, REQUIRED, job->object->file, job->spec, PATH_FIELD(SPEC, "runtimeRef"), "must be given");
        return 0;
    }
    job->runtime = find_runtime(b, kind, name);
    if (!job->runtime && !strcmp(name, built_in_name) && !strcmp(kind, "ClusterTrainingRuntime")) {
        if (tree_parse("built-in torch-distributed", built_in, sizeof built_in - 1, &b->built_in, b->err) < 0)
            return -1;
        job->file = "built-in torch-distributed";
        job->runtime_node = b->built_in.documents[0];
        return 0;
    }
    if (!job->runtime) {
        FATAL(b, INVALID, job->object->file, ref, PATH_FIELD(SPEC, "runtimeRef"),
              "no %.63s %.63s was given; put it into the same file or name its file by another -f "
              "(kubectl get %.63s %.63s -o yaml prints it)",
              kind, name, kind, name);
        return 0;
    }
    job->file = job->runtime->file;
    job->runtime_node = job->runtime->node;
    schema_check(&training_runtime_schema, job->file, job->runtime_node, NULL, b->problems);
    return 0;
}

/* --- processes of a node --- */

static bool is_gpu(const char *resource)
{
    for (; *resource; resource++)
        if (!strncasecmp(resource, "gpu", 3))
            return true;
    return false;
}

static int64_t amount_of(const struct tree_node *value)
{
    quantity_thousandths amount;
    return value->text && quantity_parse(value->text, &amount) && amount > 0 ? quantity_in(amount, 1000) : 0;
}

/* The TrainJob's resources hide the runtime's, GPUs too (as in v2.3). */
static const struct tree_node *resources_of(const struct trainjob *job, const struct tree_node *container)
{
    const struct tree_node *own = tree_get(job->trainer, "resourcesPerNode");
    return own ? own : tree_get(container, "resources");
}

/* requests, else limits, of the first GPU-like resource, or of cpu. */
static int64_t find_amount(const struct tree_node *resources, bool gpus)
{
    static const char *const maps[] = {"requests", "limits"};
    for (size_t m = 0; m < 2; m++) {
        const struct tree_node *map = tree_get(resources, maps[m]);
        for (size_t i = 0; map && map->kind == TREE_MAP && i < map->count; i++) {
            const char *key = map->entries[i].key;
            int64_t amount = amount_of(map->entries[i].value);
            if (amount && (gpus ? is_gpu(key) : !strcmp(key, "cpu")))
                return amount;
        }
    }
    return 0;
}

static char *count_processes(const struct trainjob *job, const struct tree_node *container)
{
    const struct tree_node *resources = resources_of(job, container);
    int64_t given = schema_integer(job->trainer, "numProcPerNode", 0);
    if (given > 0)
        return mem_printf("%lld", (long long)given);
    if (find_amount(resources, true))
        return mem_strdup("auto");
    int64_t cpus = find_amount(resources, false);
    return mem_printf("%lld", (long long)(cpus > 1 ? cpus : 1));
}

/* --- the trainer's replicated job --- */

static int add_variables(struct trainjob *job)
{
    bool done = facts_add_number(&job->variables, "PET_NNODES", job->nodes) &&
                facts_add(&job->variables, "PET_NPROC_PER_NODE", mem_strdup(job->processes)) &&
                facts_add(&job->variables, "PET_NODE_RANK", mem_strdup(batch_job_index));
    if (done && !trainjob_is_tune(job))
        done = facts_add(&job->variables, "PET_MASTER_ADDR", mem_strdup(job->master)) &&
               facts_add_number(&job->variables, "PET_MASTER_PORT", TRAINJOB_PORT);
    return done ? 0 : -1;
}

/* Without a trainer section nothing is injected. */
static int trainjob_prepare(struct trainjob *job, const struct batch_job *batch)
{
    const struct tree_node *template_ = tree_get(batch->spec, "template");
    int at = pod_source_find(template_, "node");
    const struct tree_node *container =
        at < 0 ? NULL : tree_get(tree_get(template_, "spec"), "containers")->items[at];
    const char *subdomain = batch->subdomain ? batch->subdomain : job->name;
    if (!job->torch || !job->trainer || job->processes)
        return 0;
    job->processes = count_processes(job, container);
    job->master = mem_printf("%s-%s-0-0.%s", job->name, batch->replicated, subdomain);
    if (!job->processes || !job->master || add_variables(job) < 0)
        return -1;
    return trainjob_is_tune(job)
               ? trainjob_tune(job, container, find_amount(resources_of(job, container), true), &job->more)
               : 0;
}

struct adapting {
    struct building *b;
    struct trainjob *job;
};

/* The label of a step may stand at the Job's template or at the pod's. */
static bool is_step(const struct tree_node *replicated, const char *step)
{
    const struct tree_node *job = tree_get(replicated, "template");
    const struct tree_node *metadata[] = {tree_get(job, "metadata"),
                                          tree_get(tree_get(tree_get(job, "spec"), "template"), "metadata")};
    for (size_t i = 0; i < 2; i++) {
        const char *label = tree_text(tree_get(tree_get(metadata[i], "labels"), ancestor));
        if (label)
            return !strcmp(label, step);
    }
    const char *name = tree_text(tree_get(replicated, "name"));
    return name && strcmp(step, "trainer") != 0 && !strcmp(name, step);
}

static bool is_true(const struct tree_node *node)
{
    return node && node->kind == TREE_BOOL && node->boolean;
}

/* Pods of a job: the trainer's are the nodes, but under MPI one launcher starts the processes of all node
 * pods, and may be a node pod itself. */
static int64_t count_pods(const struct trainjob *job, const struct batch_job *batch, bool trainer)
{
    if (!job->mpi)
        return trainer ? job->nodes : 0;
    if (trainer)
        return 1;
    if (strcmp(batch->replicated, "node") != 0 || !tree_get(job->trainer, "numNodes"))
        return 0; /* the runtime's own number */
    int64_t others = job->nodes - is_true(tree_get(job->mpi, "runLauncherAsNode"));
    return others > 1 ? others : 1;
}

/* Lives as long as the batch job that is made with it. */
static const struct path spec_path = {.name = "spec"}, trainer_path = {.up = &spec_path, .name = "trainer"};

static int adapt(void *context, const struct tree_node *replicated, struct batch_job *batch)
{
    const struct adapting *a = context;
    bool trainer = is_step(replicated, "trainer");
    if (is_step(replicated, "dataset-initializer") || is_step(replicated, "model-initializer")) {
        ERROR(a->b, NOTE, a->job->file, NULL, NULL,
              "the replicated job %.63s of the runtime is not run: the files that it fetches must be here",
              batch->replicated);
        return 0;
    }
    batch->nodes = count_pods(a->job, batch, trainer);
    if (!trainer)
        return 1;
    if (trainjob_prepare(a->job, batch) < 0)
        return building_no_memory(a->b);
    bool launcher = pod_source_find(tree_get(batch->spec, "template"), "node") < 0 && a->job->mpi;
    batch->container = launcher ? "launcher" : "node";
    batch->over = (struct pod_overlay){a->job->object->file, a->job->trainer, &trainer_path};
    batch->variables = &a->job->variables;
    batch->more = &a->job->more;
    return 1;
}

/* --- validation --- */

static void check_reserved(struct building *b, const struct trainjob *job)
{
    static const char *const reserved[] = {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK",
                                           "PET_MASTER_ADDR", "PET_MASTER_PORT"};
    const struct tree_node *env = tree_get(job->trainer, "env");
    for (size_t i = 0; job->torch && env && env->kind == TREE_LIST && i < env->count; i++) {
        const char *name = tree_text(tree_get(env->items[i], "name"));
        for (size_t k = 0; name && k < sizeof reserved / sizeof *reserved; k++)
            if (!strcmp(name, reserved[k]))
                ERROR(b, INVALID, job->object->file, env->items[i], PATH_INDEX(PATH_FIELD(TRAINER, "env"), i),
                      "%s is set by Trainer", name);
    }
}

static bool has_container(const struct tree_node *spec, const char *name)
{
    static const char *const lists[] = {"containers", "initContainers"};
    for (size_t l = 0; l < 2; l++) {
        const struct tree_node *list = tree_get(spec, lists[l]);
        for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
            const char *other = tree_text(tree_get(list->items[i], "name"));
            if (other && !strcmp(other, name))
                return true;
        }
    }
    return false;
}

static const struct tree_node *pod_of(const struct tree_node *jobs, const char *name)
{
    for (size_t i = 0; jobs && jobs->kind == TREE_LIST && i < jobs->count; i++) {
        const char *other = tree_text(tree_get(jobs->items[i], "name"));
        const struct tree_node *job = tree_get(tree_get(jobs->items[i], "template"), "spec");
        if (other && !strcmp(other, name))
            return tree_get(tree_get(job, "template"), "spec");
    }
    return NULL;
}

/* Other containers that get the variables too: they must exist; they are not run here. */
static void check_injection(struct building *b, const struct trainjob *job, const struct tree_node *jobs)
{
    const struct tree_node *targets = tree_get(tree_get(job->torch, "envInjection"), "targets");
    for (size_t i = 0; targets && targets->kind == TREE_LIST && i < targets->count; i++) {
        const char *name = tree_text(tree_get(targets->items[i], "jobName"));
        const struct tree_node *names = tree_get(targets->items[i], "containerNames"),
                               *pod = name ? pod_of(jobs, name) : NULL;
        for (size_t k = 0; names && names->kind == TREE_LIST && k < names->count; k++) {
            const char *container = tree_text(names->items[k]);
            if (!container || !strcmp(container, "node") || !has_container(pod, container))
                FATAL(b, INVALID, job->file, names->items[k], PATH_FIELD(SPEC, "mlPolicy"),
                      "envInjection: '%.63s' of the job %.63s is no other container than node",
                      container ? container : "", name ? name : "");
        }
    }
}

/* spec.initializer needs jobs of the runtime that fetch; here the data must be there already. */
static void check_initializer(struct building *b, const struct trainjob *job, const struct tree_node *jobs)
{
    static const char *const parts[] = {"dataset", "model"};
    const struct tree_node *initializer = tree_get(job->spec, "initializer");
    for (size_t i = 0; i < 2; i++) {
        const struct tree_node *part = tree_get(initializer, parts[i]);
        const char *from = tree_text(tree_get(part, "storageUri"));
        scope_free char *step = mem_printf("%s-initializer", parts[i]);
        bool found = false;
        for (size_t k = 0; step && jobs && jobs->kind == TREE_LIST && k < jobs->count; k++)
            found |= is_step(jobs->items[k], step);
        if (!part)
            continue;
        if (found)
            ERROR(b, NOTE, job->object->file, NULL, NULL,
                  "initializer.%s is not run: %.200s must be here, where the runtime's volume has it "
                  "(--volumes=DIR)",
                  parts[i], from ? from : "its data");
        else
            ERROR(b, INVALID, job->object->file, part, PATH_FIELD(PATH_FIELD(SPEC, "initializer"), parts[i]),
                  "the runtime %.63s has no job %s-initializer that would fetch it", job->runtime_name,
                  parts[i]);
    }
}

/* --- the kind --- */

static int build(struct building *b, struct trainjob *job)
{
    const struct tree_node *spec = tree_get(job->runtime_node, "spec"), *policy = tree_get(spec, "mlPolicy");
    struct adapting adapting = {b, job};
    job->set_spec = tree_get(tree_get(spec, "template"), "spec");
    job->torch = tree_get(policy, "torch");
    job->mpi = tree_get(policy, "mpi");
    job->nodes = schema_integer(job->trainer, "numNodes", schema_integer(policy, "numNodes", 1));
    if (job->nodes < 1 || job->nodes > BUILDING_PODS_LIMIT)
        FATAL(b, INVALID, job->object->file, job->trainer, PATH_FIELD(TRAINER, "numNodes"),
              "%lld nodes: muster local takes 1 to %d", (long long)job->nodes, BUILDING_PODS_LIMIT);
    const struct path *path = PATH_FIELD(SPEC, "mlPolicy");
    if (job->mpi)
        ERROR(b, WARNING, job->file, job->mpi, PATH_FIELD(path, "mpi"),
              "no ssh keys and no hostfile (/etc/mpi/hostfile) are made here: mpirun in the launcher's pod "
              "reaches no other pod");
    else if (!job->torch)
        ERROR(b, WARNING, job->file, policy, path,
              "the runtime has no torch policy: the pods get no variables for torchrun");
    if (job->torch && !job->trainer)
        ERROR(b, WARNING, job->object->file, job->spec, SPEC,
              "without a trainer section Trainer sets no variables: each pod starts alone");
    check_reserved(b, job);
    check_injection(b, job, tree_get(job->set_spec, "replicatedJobs"));
    check_initializer(b, job, tree_get(job->set_spec, "replicatedJobs"));
    if (b->problems->fatal)
        return 0;
    if (job->set_spec && trainjob_patch(b, job) < 0)
        return -1;
    const struct jobset set = {.file = job->file,
                               .namespace_ = b->object->namespace_,
                               .name = job->name,
                               .spec = job->set_spec,
                               .path = PATH_FIELD(PATH_FIELD(SPEC, "template"), "spec"),
                               .adapt = adapt,
                               .context = &adapting};
    return jobset_add(b, &set);
}

int trainjob_build(struct building *b)
{
    scope_free char *owned = NULL;
    struct trainjob job = {.object = b->object, .spec = tree_get(b->object->node, "spec")};
    schema_check(&trainjob_schema, b->object->file, b->object->node, NULL, b->problems);
    if (building_name(b, &job.name, &owned) < 0 || batch_fill_job(b, job.spec, job.name) < 0)
        return -1;
    job.trainer = tree_get(job.spec, "trainer");
    batch_check_manager(b, job.spec, "trainer.kubeflow.org/trainjob-controller");
    int result = b->problems->fatal ? 0 : read_runtime(b, &job);
    if (!result && !b->problems->fatal)
        result = build(b, &job);
    facts_free(&job.variables);
    text_list_free(&job.more);
    mem_free(job.processes);
    mem_free(job.master);
    return result;
}
