/* jobset.c - see jobset.h; and the kind JobSet by itself. */
#include "launcher/local/manifest/jobset.h"

#include <string.h>

#include "launcher/local/pod/schema.h"
#include "proto/base/guard.h"

const char *jobset_subdomain(const struct jobset *set)
{
    const struct tree_node *network = tree_get(set->spec, "network"),
                           *dns = tree_get(network, "enableDNSHostnames");
    const char *given = tree_text(tree_get(network, "subdomain"));
    if (dns && dns->kind == TREE_BOOL && !dns->boolean)
        return NULL;
    return given && *given ? given : set->name;
}

/* --- labels --- */

static int64_t replicas_of(const struct tree_node *replicated)
{
    return schema_integer(replicated, "replicas", 1);
}

static char *coordinator(const struct jobset *set)
{
    const struct tree_node *node = tree_get(set->spec, "coordinator");
    const char *job = tree_text(tree_get(node, "replicatedJob")), *subdomain = jobset_subdomain(set);
    return mem_printf("%s-%s-%lld-%lld.%s", set->name, job ? job : "",
                      (long long)schema_integer(node, "jobIndex", 0),
                      (long long)schema_integer(node, "podIndex", 0), subdomain ? subdomain : "");
}

static bool add_labels(const struct jobset *set, const struct tree_node *replicated, int64_t index,
                       int64_t global, struct facts *labels)
{
    const char *name = tree_text(tree_get(replicated, "name"));
    bool done =
        facts_add(labels, "jobset.sigs.k8s.io/jobset-name", mem_strdup(set->name)) &&
        facts_add(labels, "jobset.sigs.k8s.io/replicatedjob-name", mem_strdup(name)) &&
        facts_add_number(labels, "jobset.sigs.k8s.io/replicatedjob-replicas", replicas_of(replicated)) &&
        facts_add_number(labels, "jobset.sigs.k8s.io/job-index", index) &&
        facts_add_number(labels, "jobset.sigs.k8s.io/job-global-index", global) &&
        facts_add_number(labels, "jobset.sigs.k8s.io/restart-attempt", 0);
    if (done && tree_get(set->spec, "coordinator"))
        done = facts_add(labels, "jobset.sigs.k8s.io/coordinator", coordinator(set));
    return done;
}

/* --- policies --- */

static const struct tree_node *jobs_of(const struct jobset *set)
{
    const struct tree_node *list = tree_get(set->spec, "replicatedJobs");
    return list && list->kind == TREE_LIST ? list : NULL;
}

static int number_of(const struct jobset *set, const char *name)
{
    const struct tree_node *list = jobs_of(set);
    for (size_t i = 0; name && list && i < list->count; i++) {
        const char *other = tree_text(tree_get(list->items[i], "name"));
        if (other && !strcmp(other, name))
            return (int)i;
    }
    return -1;
}

/* dependsOn (its first entry; the API allows one) and startupPolicy InOrder. */
static void read_order(struct building *b, const struct jobset *set, const struct tree_node *replicated,
                       int number, struct local_group *group)
{
    const struct tree_node *depends = tree_get(replicated, "dependsOn");
    const char *order = tree_text(tree_get(tree_get(set->spec, "startupPolicy"), "startupPolicyOrder"));
    if (depends && depends->kind == TREE_LIST && depends->count) {
        const char *status = tree_text(tree_get(depends->items[0], "status"));
        int after = number_of(set, tree_text(tree_get(depends->items[0], "name")));
        group->after_ready = status && !strcmp(status, "Ready");
        if (after < 0 || after >= number) {
            problems_add(
                b->problems, PROBLEM_INVALID, set->file, depends,
                PATH_FIELD(PATH_INDEX(PATH_FIELD(set->path, "replicatedJobs"), (size_t)number), "dependsOn"),
                "names no replicated job before this one");
            return;
        }
        group->after = after;
    } else if (order && !strcmp(order, "InOrder") && number > 0) {
        group->after = number - 1;
        group->after_ready = true;
    }
}

static void read_success(const struct jobset *set, struct local_job *job)
{
    const struct tree_node *policy = tree_get(set->spec, "successPolicy"),
                           *targets = tree_get(policy, "targetReplicatedJobs");
    const char *op = tree_text(tree_get(policy, "operator"));
    job->success_any = op && !strcmp(op, "Any");
    if (!targets || targets->kind != TREE_LIST || !targets->count)
        return;
    for (int i = 0; i < job->group_count; i++) {
        job->groups[i].decides = false;
        for (size_t k = 0; k < targets->count; k++) {
            const char *name = tree_text(targets->items[k]);
            job->groups[i].decides |= name && !strcmp(name, job->groups[i].replicated);
        }
    }
}

static void read_policies(struct building *b, const struct jobset *set)
{
    const struct tree_node *failure = tree_get(set->spec, "failurePolicy");
    int64_t restarts = schema_integer(failure, "maxRestarts", 0);
    b->job->max_restarts = restarts < 0 ? 0 : restarts > INT32_MAX ? INT32_MAX : (int)restarts;
    if (tree_get(failure, "rules"))
        problems_add(b->problems, PROBLEM_NOTE, set->file, NULL, NULL,
                     "failurePolicy: its rules are not read; a failed Job restarts all, up to maxRestarts");
    read_success(set, b->job);
}

/* --- jobs --- */

static int add_one(struct building *b, const struct jobset *set, int number, int64_t index, int64_t global)
{
    const struct tree_node *replicated = jobs_of(set)->items[number];
    const char *name = tree_text(tree_get(replicated, "name"));
    const struct path *path = PATH_INDEX(PATH_FIELD(set->path, "replicatedJobs"), (size_t)number);
    scope_free char *own = mem_printf("%s-%s-%lld", set->name, name, (long long)index);
    struct facts labels = {0};
    struct batch_job job = {.file = set->file,
                            .namespace_ = set->namespace_,
                            .name = own,
                            .spec = tree_get(tree_get(replicated, "template"), "spec"),
                            .path = PATH_FIELD(PATH_FIELD(path, "template"), "spec"),
                            .replicated = name,
                            .number = number,
                            .subdomain = jobset_subdomain(set),
                            .labels = &labels};
    bool made = own && add_labels(set, replicated, index, global, &labels);
    int result = made ? 1 : building_no_memory(b);
    if (made && set->adapt)
        result = set->adapt(set->context, replicated, &job);
    if (result > 0) {
        int before = b->job->group_count;
        result = batch_job_add(b, &job);
        if (!result && b->job->group_count > before)
            read_order(b, set, replicated, number, &b->job->groups[before]);
    }
    facts_free(&labels);
    return result;
}

static bool is_named(struct building *b, const struct jobset *set, size_t number)
{
    const struct tree_node *replicated = jobs_of(set)->items[number];
    const struct path *path = PATH_INDEX(PATH_FIELD(set->path, "replicatedJobs"), number);
    int64_t replicas = replicas_of(replicated);
    bool good = tree_text(tree_get(replicated, "name")) && replicas >= 0 && replicas <= BUILDING_PODS_LIMIT;
    if (!good) {
        problems_add(b->problems, PROBLEM_INVALID, set->file, replicated, path,
                     "a replicated job needs a name and 0 to %d replicas", BUILDING_PODS_LIMIT);
        problems_fatal(b->problems);
    }
    return good;
}

int jobset_add(struct building *b, const struct jobset *set)
{
    const struct tree_node *list = jobs_of(set);
    int64_t global = 0;
    for (size_t number = 0; list && number < list->count; number++) {
        if (!is_named(b, set, number))
            return 0;
        int64_t replicas = set->adapt ? 1 : replicas_of(list->items[number]);
        for (int64_t index = 0; index < replicas; index++)
            if (add_one(b, set, (int)number, index, global++) < 0)
                return -1;
            else if (b->problems->fatal)
                return 0;
    }
    if (!b->job->pod_count) {
        problems_add(b->problems, PROBLEM_REQUIRED, set->file, set->spec,
                     PATH_FIELD(set->path, "replicatedJobs"), "there is no job in it that could be run");
        problems_fatal(b->problems);
        return 0;
    }
    read_policies(b, set);
    return 0;
}

int jobset_build(struct building *b)
{
    const char *name;
    scope_free char *owned = NULL;
    const struct tree_node *spec = tree_get(b->object->node, "spec");
    schema_check(&jobset_schema, b->object->file, b->object->node, NULL, b->problems);
    if (building_name(b, &name, &owned) < 0 || batch_fill_job(b, spec, name) < 0)
        return -1;
    b->job->active_deadline_s = -1;
    const struct jobset set = {.file = b->object->file,
                               .namespace_ = b->object->namespace_,
                               .name = name,
                               .spec = spec,
                               .path = PATH_FIELD(NULL, "spec")};
    return b->problems->fatal ? 0 : jobset_add(b, &set);
}
