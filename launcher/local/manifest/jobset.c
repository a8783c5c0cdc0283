/* jobset.c - see jobset.h; and the kind JobSet by itself. */
#include "launcher/local/manifest/jobset.h"

#include <string.h>

#include "launcher/local/pod/schema.h"
#include "proto/base/guard.h"

/* The name of the headless service. */
static const char *jobset_subdomain(const struct jobset *set)
{
    const struct tree_node *network = tree_get(set->spec, "network"),
                           *dns = tree_get(network, "enableDNSHostnames");
    const char *given = tree_text(tree_get(network, "subdomain"));
    if (dns && dns->kind == TREE_BOOL && !dns->boolean)
        return NULL;
    return given && *given ? given : set->name;
}

const struct tree_node *jobset_jobs(const struct jobset *set)
{
    const struct tree_node *list = tree_get(set->spec, "replicatedJobs");
    return list && list->kind == TREE_LIST ? list : NULL;
}

/* --- labels --- */

/* Kubeflow Trainer has one replica of each. */
static int64_t replicas_of(const struct jobset *set, const struct tree_node *replicated)
{
    return set->adapt ? 1 : schema_integer(replicated, "replicas", 1);
}

static const char *group_of(const struct tree_node *replicated)
{
    const char *name = tree_text(tree_get(replicated, "groupName"));
    return name && *name ? name : "default";
}

/* Replicas of all replicated jobs before `end`, of one group (NULL: any). */
static int64_t count_replicas(const struct jobset *set, const char *group, size_t end)
{
    const struct tree_node *list = jobset_jobs(set);
    int64_t count = 0;
    for (size_t i = 0; list && i < list->count && i < end; i++)
        if (!group || !strcmp(group, group_of(list->items[i])))
            count += replicas_of(set, list->items[i]);
    return count;
}

static char *coordinator(const struct jobset *set)
{
    const struct tree_node *node = tree_get(set->spec, "coordinator");
    const char *job = tree_text(tree_get(node, "replicatedJob")), *subdomain = jobset_subdomain(set);
    return mem_printf("%s-%s-%lld-%lld.%s", set->name, job ? job : "",
                      (long long)schema_integer(node, "jobIndex", 0),
                      (long long)schema_integer(node, "podIndex", 0), subdomain ? subdomain : "");
}

static bool add_labels(const struct jobset *set, size_t number, int64_t index, struct facts *labels)
{
    const struct tree_node *replicated = jobset_jobs(set)->items[number];
    const char *name = tree_text(tree_get(replicated, "name")), *group = group_of(replicated);
    int64_t before = count_replicas(set, NULL, number), in_group = count_replicas(set, group, number);
    bool done =
        facts_add(labels, "jobset.sigs.k8s.io/jobset-name", mem_strdup(set->name)) &&
        facts_add(labels, "jobset.sigs.k8s.io/replicatedjob-name", mem_strdup(name)) &&
        facts_add_number(labels, "jobset.sigs.k8s.io/replicatedjob-replicas", replicas_of(set, replicated)) &&
        facts_add_number(labels, "jobset.sigs.k8s.io/global-replicas", count_replicas(set, NULL, SIZE_MAX)) &&
        facts_add_number(labels, "jobset.sigs.k8s.io/job-index", index) &&
        facts_add_number(labels, "jobset.sigs.k8s.io/job-global-index", before + index) &&
        facts_add(labels, "jobset.sigs.k8s.io/group-name", mem_strdup(group)) &&
        facts_add_number(labels, "jobset.sigs.k8s.io/group-replicas", count_replicas(set, group, SIZE_MAX)) &&
        facts_add_number(labels, "jobset.sigs.k8s.io/job-group-index", in_group + index) &&
        facts_add(labels, "jobset.sigs.k8s.io/restart-attempt", mem_strdup(LOCAL_ATTEMPT_SET)) &&
        facts_add(labels, "jobset.sigs.k8s.io/job-restart-attempt", mem_strdup(LOCAL_ATTEMPT_JOB));
    if (done && tree_get(set->spec, "coordinator"))
        done = facts_add(labels, "jobset.sigs.k8s.io/coordinator", coordinator(set));
    return done;
}

/* --- policies --- */

int jobset_number_of(const struct jobset *set, const char *name)
{
    const struct tree_node *list = jobset_jobs(set);
    for (size_t i = 0; name && list && i < list->count; i++) {
        const char *other = tree_text(tree_get(list->items[i], "name"));
        if (other && !strcmp(other, name))
            return (int)i;
    }
    return -1;
}

#define REPLICATED(set, number) PATH_INDEX(PATH_FIELD((set)->path, "replicatedJobs"), (size_t)(number))

static void read_dependency(struct building *b, const struct jobset *set, const struct tree_node *node,
                            int number, const struct path *path, struct local_group *group)
{
    const char *name = tree_text(tree_get(node, "name")), *status = tree_text(tree_get(node, "status"));
    int after = jobset_number_of(set, name);
    if (after < 0 || after >= number)
        problems_add(b->problems, PROBLEM_INVALID, set->file, node, path,
                     "'%.63s' is no replicated job before this one", name ? name : "");
    else if (!status || (strcmp(status, "Ready") && strcmp(status, "Complete")))
        problems_add(b->problems, PROBLEM_NOT_SUPPORTED, set->file, node, PATH_FIELD(path, "status"),
                     "'%.63s' is neither Ready nor Complete", status ? status : "");
    else
        group->after[group->after_count++] = (struct local_dependency){after, !strcmp(status, "Ready")};
}

/* dependsOn, all of whose entries have to hold, or startupPolicy InOrder. */
static void read_order(struct building *b, const struct jobset *set, const struct tree_node *replicated,
                       int number, struct local_group *group)
{
    const struct tree_node *depends = tree_get(replicated, "dependsOn");
    const struct path *path = PATH_FIELD(REPLICATED(set, number), "dependsOn");
    const char *order = tree_text(tree_get(tree_get(set->spec, "startupPolicy"), "startupPolicyOrder"));
    bool in_order = order && !strcmp(order, "InOrder");
    if (depends && depends->kind == TREE_LIST && depends->count) {
        if (in_order)
            problems_add(b->problems, PROBLEM_INVALID, set->file, depends, path,
                         "startupPolicy InOrder and dependsOn exclude each other");
        if (depends->count > LOCAL_DEPENDENCIES_LIMIT)
            problems_add(b->problems, PROBLEM_INVALID, set->file, depends, path,
                         "%zu dependencies are more than %d", depends->count, LOCAL_DEPENDENCIES_LIMIT);
        for (size_t i = 0; i < depends->count && i < LOCAL_DEPENDENCIES_LIMIT; i++)
            read_dependency(b, set, depends->items[i], number, PATH_INDEX(path, i), group);
    } else if (in_order && number > 0) {
        group->after[group->after_count++] = (struct local_dependency){number - 1, true};
    }
}

static void read_success(struct building *b, const struct jobset *set)
{
    struct local_job *job = b->job;
    const struct tree_node *policy = tree_get(set->spec, "successPolicy"),
                           *targets = tree_get(policy, "targetReplicatedJobs");
    const char *op = tree_text(tree_get(policy, "operator"));
    job->success_any = op && !strcmp(op, "Any");
    if (!targets || targets->kind != TREE_LIST || !targets->count)
        return;
    for (size_t k = 0; k < targets->count; k++)
        if (jobset_number_of(set, tree_text(targets->items[k])) < 0)
            problems_add(
                b->problems, PROBLEM_INVALID, set->file, targets->items[k],
                PATH_INDEX(PATH_FIELD(PATH_FIELD(set->path, "successPolicy"), "targetReplicatedJobs"), k),
                "'%.63s' is no replicated job",
                tree_text(targets->items[k]) ? tree_text(targets->items[k]) : "");
    for (int i = 0; i < job->group_count; i++) {
        job->groups[i].decides = false;
        for (size_t k = 0; k < targets->count; k++) {
            const char *name = tree_text(targets->items[k]);
            job->groups[i].decides |= name && !strcmp(name, job->groups[i].replicated);
        }
    }
}

/* --- jobs --- */

static int add_one(struct building *b, const struct jobset *set, int number, int64_t index)
{
    const struct tree_node *replicated = jobset_jobs(set)->items[number];
    const char *name = tree_text(tree_get(replicated, "name"));
    const struct path *path = REPLICATED(set, number);
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
                            .labels = &labels,
                            .claims = tree_get(set->spec, "volumeClaimPolicies"),
                            .claims_of = set->name};
    bool made = own && add_labels(set, (size_t)number, index, &labels);
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
    const struct tree_node *replicated = jobset_jobs(set)->items[number];
    const struct path *path = REPLICATED(set, number);
    int64_t replicas = schema_integer(replicated, "replicas", 1);
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
    const struct tree_node *list = jobset_jobs(set);
    for (size_t number = 0; list && number < list->count; number++)
        if (!is_named(b, set, number))
            return 0;
    jobset_check_claims(b, set);
    for (size_t number = 0; list && number < list->count; number++) {
        int64_t replicas = replicas_of(set, list->items[number]);
        for (int64_t index = 0; index < replicas; index++)
            if (add_one(b, set, (int)number, index) < 0)
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
    read_success(b, set);
    return jobset_read_failure(b, set);
}

int jobset_build(struct building *b)
{
    const char *name;
    scope_free char *owned = NULL;
    const struct tree_node *spec = tree_get(b->object->node, "spec");
    schema_check(&jobset_schema, b->object->file, b->object->node, NULL, b->problems);
    if (building_name(b, &name, &owned) < 0 || batch_fill_job(b, spec, name) < 0)
        return -1;
    b->job->active_deadline_s = -1; /* a JobSet has none, a Job in it may */
    batch_check_manager(b, spec, "jobset.sigs.k8s.io/jobset-controller");
    const struct jobset set = {.file = b->object->file,
                               .namespace_ = b->object->namespace_,
                               .name = name,
                               .spec = spec,
                               .path = PATH_FIELD(NULL, "spec")};
    return b->problems->fatal ? 0 : jobset_add(b, &set);
}
