/* batch_job.c - see batch_job.h; and the kind Job by itself. */
#include "launcher/local/manifest/batch_job.h"

#include <stdlib.h>
#include <string.h>

#include "launcher/local/manifest/api.h"
#include "launcher/local/pod/schema.h"
#include "proto/base/guard.h"

enum { BACKOFF_LIMIT = 6, RULES_LIMIT = 20, CODES_LIMIT = 255 };

const char batch_job_index[] = "%INDEX%";

#define ERROR(b, type, job, node, path, ...)                                                                 \
    problems_add((b)->problems, PROBLEM_##type, (job)->file, node, path, __VA_ARGS__)
#define FATAL(b, type, job, node, path, ...)                                                                 \
    (ERROR(b, type, job, node, path, __VA_ARGS__), problems_fatal((b)->problems))

static bool is_indexed(const struct batch_job *job)
{
    const char *mode = tree_text(tree_get(job->spec, "completionMode"));
    return job->replicated ? !mode || !strcmp(mode, "Indexed") : mode && !strcmp(mode, "Indexed");
}

/* --- the group --- */

/* Conditions of pods, such as a disruption, do not come about here: such rules never match. */
static int read_rule(struct building *b, const struct batch_job *job, const struct tree_node *node,
                     const struct path *path, struct local_group *group)
{
    const char *action = tree_text(tree_get(node, "action"));
    const struct tree_node *codes = tree_get(node, "onExitCodes");
    const char *op = tree_text(tree_get(codes, "operator"));
    if (!codes || !action)
        return 0;
    struct local_failure_rule *rule = &group->rules[group->rule_count++];
    rule->others = op && !strcmp(op, "NotIn");
    static const char *const actions[] = {"Count", "Ignore", "FailJob", "FailIndex"};
    size_t known = 0;
    while (known < sizeof actions / sizeof *actions && strcmp(action, actions[known]) != 0)
        known++;
    if (known == sizeof actions / sizeof *actions)
        ERROR(b, NOT_SUPPORTED, job, tree_get(node, "action"), PATH_FIELD(path, "action"),
              "'%.30s' is none of FailJob, FailIndex, Ignore, Count (" API_JOB " and before)", action);
    else
        rule->action = (enum local_failure_action)known;
    if (rule->action == LOCAL_FAILURE_FAIL_INDEX && !group->per_index)
        ERROR(b, INVALID, job, node, PATH_FIELD(path, "action"), "FailIndex needs backoffLimitPerIndex");
    const struct tree_node *values = tree_get(codes, "values");
    size_t count = values && values->kind == TREE_LIST ? values->count : 0;
    rule->codes = mem_calloc(count + 1, sizeof *rule->codes);
    if (!rule->codes)
        return building_no_memory(b);
    for (size_t i = 0; i < count && i < CODES_LIMIT; i++)
        if (values->items[i]->kind == TREE_INT)
            rule->codes[rule->code_count++] = (int)values->items[i]->integer;
    return 0;
}

static int read_rules(struct building *b, const struct batch_job *job, struct local_group *group)
{
    const struct tree_node *policy = tree_get(job->spec, "podFailurePolicy"),
                           *rules = tree_get(policy, "rules");
    const struct path *path = PATH_FIELD(job->path, "podFailurePolicy");
    if (!rules || rules->kind != TREE_LIST)
        return 0;
    if (group->restart_policy != LOCAL_RESTART_NEVER)
        ERROR(b, INVALID, job, policy, path, "needs restartPolicy Never in the template");
    group->rules = mem_calloc(RULES_LIMIT, sizeof *group->rules);
    if (!group->rules)
        return building_no_memory(b);
    for (size_t i = 0; i < rules->count && i < RULES_LIMIT; i++)
        if (read_rule(b, job, rules->items[i], PATH_INDEX(PATH_FIELD(path, "rules"), i), group) < 0)
            return -1;
    return 0;
}

/* "1,3-5": as marks of a group's pods. False: it is no such list. */
static bool read_indexes(const char *text, bool *marks, int count)
{
    while (*text) {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (end == text || first < 0)
            return false;
        text = end;
        if (*text == '-') {
            last = strtol(text + 1, &end, 10);
            if (end == text + 1 || last < first)
                return false;
            text = end;
        }
        if (*text && *text != ',')
            return false;
        text += *text == ',';
        for (long i = first; i <= last && i < count; i++)
            marks[i] = true;
    }
    return true;
}

static int read_success_rule(struct building *b, const struct batch_job *job, const struct tree_node *node,
                             const struct path *path, struct local_group *group)
{
    const char *text = tree_text(tree_get(node, "succeededIndexes"));
    int64_t count = schema_integer(node, "succeededCount", 0);
    struct local_success_rule *rule = &group->success[group->success_count];
    if (!text && count < 1) {
        ERROR(b, REQUIRED, job, node, path, "needs succeededIndexes or succeededCount");
        return 0;
    }
    rule->count = count > INT32_MAX ? INT32_MAX : (int)count;
    group->success_count++;
    if (!text)
        return 0;
    rule->indexes = mem_calloc((size_t)group->count + 1, sizeof *rule->indexes);
    if (!rule->indexes)
        return building_no_memory(b);
    if (!read_indexes(text, rule->indexes, group->count))
        ERROR(b, INVALID, job, tree_get(node, "succeededIndexes"), PATH_FIELD(path, "succeededIndexes"),
              "'%.60s' is not a list of indexes such as 0,2-4", text);
    return 0;
}

/* successPolicy, backoffLimitPerIndex and maxFailedIndexes, which only Indexed Jobs have. */
static int read_indexed(struct building *b, const struct batch_job *job, struct local_group *group)
{
    const struct tree_node *rules = tree_get(tree_get(job->spec, "successPolicy"), "rules");
    const struct path *path = PATH_FIELD(PATH_FIELD(job->path, "successPolicy"), "rules");
    const struct tree_node *limit = tree_get(job->spec, "backoffLimitPerIndex");
    group->per_index = limit != NULL;
    group->index_limit = schema_integer(job->spec, "backoffLimitPerIndex", 0);
    group->failed_indexes = schema_integer(job->spec, "maxFailedIndexes", -1);
    if (limit && (!is_indexed(job) || group->restart_policy != LOCAL_RESTART_NEVER))
        ERROR(b, INVALID, job, limit, PATH_FIELD(job->path, "backoffLimitPerIndex"),
              "needs completionMode Indexed, and restartPolicy Never in the template");
    if (!rules || rules->kind != TREE_LIST || !rules->count)
        return 0;
    if (!is_indexed(job))
        ERROR(b, INVALID, job, rules, path, "needs completionMode Indexed");
    group->success = mem_calloc(rules->count, sizeof *group->success);
    if (!group->success)
        return building_no_memory(b);
    for (size_t i = 0; i < rules->count; i++)
        if (read_success_rule(b, job, rules->items[i], PATH_INDEX(path, i), group) < 0)
            return -1;
    return 0;
}

static enum local_restart_policy read_policy(const struct building *b, const struct batch_job *job)
{
    const struct tree_node *spec = tree_get(tree_get(job->spec, "template"), "spec");
    const struct tree_node *node = tree_get(spec, "restartPolicy");
    const char *policy = tree_text(node);
    if (policy && !strcmp(policy, "Never"))
        return LOCAL_RESTART_NEVER;
    bool known = policy ? !strcmp(policy, "OnFailure") : job->replicated != NULL;
    if (!known)
        ERROR(b, NOT_SUPPORTED, job, node ? node : job->spec,
              PATH_FIELD(PATH_FIELD(PATH_FIELD(job->path, "template"), "spec"), "restartPolicy"),
              "%s%.50s%s; a Job's pods have OnFailure or Never", policy ? "'" : "",
              policy ? policy : "none given", policy ? "'" : "");
    return LOCAL_RESTART_ON_FAILURE;
}

static void read_counts(struct building *b, const struct batch_job *job, struct local_group *group)
{
    int64_t completions = schema_integer(job->spec, "completions", -1),
            parallelism = schema_integer(job->spec, "parallelism", 1);
    if (completions < 0 && is_indexed(job) && !job->nodes && !job->replicated)
        ERROR(b, REQUIRED, job, job->spec, PATH_FIELD(job->path, "completions"),
              "must be given where completionMode is Indexed");
    if (job->nodes)
        completions = parallelism = job->nodes;
    if (completions < 0)
        completions = parallelism;
    if (completions < 1 || parallelism < 1 || completions > BUILDING_PODS_LIMIT) {
        FATAL(b, INVALID, job, job->spec, job->path,
              "%lld completions of which %lld run at once: muster local takes 1 to %d pods",
              (long long)completions, (long long)parallelism, BUILDING_PODS_LIMIT);
        return;
    }
    group->count = (int)completions;
    group->parallelism = (int)(parallelism < completions ? parallelism : completions);
}

/* Zeroed memory after the groups; counted once it is filled, so that it is freed. */
static struct local_group *add_group(struct building *b, const struct batch_job *job)
{
    struct local_group *longer = mem_realloc(b->job->groups, (size_t)b->job->group_count + 1, sizeof *longer);
    if (!longer)
        return NULL;
    b->job->groups = longer;
    struct local_group *group = &longer[b->job->group_count++];
    *group = (struct local_group){.name = mem_strdup(job->name),
                                  .replicated = mem_strdup(job->replicated ? job->replicated : ""),
                                  .number = job->number,
                                  .first = b->job->pod_count,
                                  .decides = true};
    return group->name && group->replicated ? group : NULL;
}

/* --- its pods --- */

static int add_variables(const struct batch_job *job, int index, struct facts *out)
{
    for (int i = 0; job->variables && i < job->variables->count; i++) {
        const struct fact *fact = &job->variables->list[i];
        bool own = !strcmp(fact->value, batch_job_index);
        if (own ? !facts_add_number(out, fact->name, index)
                : !facts_add(out, fact->name, mem_strdup(fact->value)))
            return -1;
    }
    return 0;
}

static int add_labels(const struct batch_job *job, int index, struct pod_source *pod)
{
    static const char completion[] = "batch.kubernetes.io/job-completion-index";
    bool done = facts_add(&pod->labels, "batch.kubernetes.io/job-name", mem_strdup(job->name)) &&
                facts_add(&pod->labels, "job-name", mem_strdup(job->name));
    if (done && is_indexed(job))
        done = facts_add_number(&pod->labels, completion, index) &&
               facts_add_number(&pod->annotations, completion, index) &&
               facts_add_number(&pod->variables, "JOB_COMPLETION_INDEX", index);
    for (int i = 0; done && job->labels && i < job->labels->count; i++)
        done =
            facts_add(&pod->labels, job->labels->list[i].name, mem_strdup(job->labels->list[i].value)) &&
            facts_add(&pod->annotations, job->labels->list[i].name, mem_strdup(job->labels->list[i].value));
    return done ? 0 : -1;
}

static int fill_source(const struct batch_job *job, int index, struct pod_source *pod)
{
    const struct tree_node *spec = pod_source_spec(pod);
    const char *subdomain = tree_text(tree_get(spec, "subdomain"));
    const char *hostname = tree_text(tree_get(spec, "hostname"));
    pod->name = mem_printf("%s-%d", job->name, index);
    pod->hostname = hostname && *hostname && !is_indexed(job) ? mem_strdup(hostname)
                    : pod->name                               ? mem_strdup(pod->name)
                                                              : NULL;
    if (!subdomain || job->subdomain)
        subdomain = job->subdomain;
    if (subdomain && !(pod->subdomain = mem_strdup(subdomain)))
        return -1;
    return pod->name && pod->hostname && add_labels(job, index, pod) == 0 &&
                   add_variables(job, index, &pod->variables) == 0
               ? 0
               : -1;
}

static int add_pod(struct building *b, const struct batch_job *job, int index, size_t container)
{
    struct local_pod *made;
    struct pod_source pod = {.file = job->file,
                             .namespace_ = job->namespace_,
                             .template_ = tree_get(job->spec, "template"),
                             .path = PATH_FIELD(job->path, "template"),
                             .container = container,
                             .over = job->over,
                             .more = job->more,
                             .claims = job->claims,
                             .claims_of = job->claims_of};
    int result = fill_source(job, index, &pod) < 0 ? building_no_memory(b) : 0;
    if (!result && index == 0)
        building_note_containers(b, &pod);
    if (!result) {
        result = building_add_pod(b, &pod, &made);
        made->type = LOCAL_WORKER;
        made->group = b->job->group_count - 1;
        made->index = index;
    }
    pod_source_free(&pod);
    return result;
}

int batch_job_add(struct building *b, const struct batch_job *job)
{
    struct local_group *group = add_group(b, job);
    if (!group)
        return building_no_memory(b);
    group->restart_policy = read_policy(b, job);
    group->backoff_limit = schema_integer(job->spec, "backoffLimit", BACKOFF_LIMIT);
    if (job->replicated)
        group->active_deadline_s = schema_integer(job->spec, "activeDeadlineSeconds", 0);
    read_counts(b, job, group);
    /* The container that is run, -1 if there is none (reported). */
    const struct tree_node *template_ = tree_get(job->spec, "template");
    const struct tree_node *list = tree_get(tree_get(template_, "spec"), "containers");
    int container = !list || list->kind != TREE_LIST || !list->count ? -1
                    : job->container ? pod_source_find(template_, job->container)
                                     : 0;
    const struct path *path = PATH_FIELD(PATH_FIELD(PATH_FIELD(job->path, "template"), "spec"), "containers");
    if (container < 0)
        FATAL(b, REQUIRED, job, template_ ? template_ : job->spec, path, "there is no container%s%s",
              job->container ? " with the name " : "", job->container ? job->container : "");
    if (read_indexed(b, job, group) < 0 || read_rules(b, job, group) < 0)
        return -1;
    if (b->job->pod_count + group->count > BUILDING_PODS_LIMIT)
        FATAL(b, INVALID, job, job->spec, job->path, "more than the %d pods that one machine supports",
              BUILDING_PODS_LIMIT);
    if (b->problems->fatal)
        return 0;
    const int count = group->count;
    if (building_reserve(b, count) < 0)
        return -1;
    for (int i = 0; i < count; i++) {
        if (add_pod(b, job, i, (size_t)container) < 0)
            return -1;
        if (b->problems->fatal)
            return 0; /* the next pods have the same to say */
    }
    return 0;
}

/* --- the kind Job --- */

int batch_fill_job(struct building *b, const struct tree_node *spec, const char *name)
{
    const struct tree_node *suspend = tree_get(spec, "suspend");
    struct local_job *job = b->job;
    job->name = mem_strdup(name);
    job->namespace_ = mem_strdup(b->object->namespace_);
    if (!job->name || !job->namespace_)
        return building_no_memory(b);
    job->clean_policy = LOCAL_CLEAN_RUNNING; /* a finished Job's pods are deleted where they still run */
    job->backoff_limit = -1;
    job->active_deadline_s = schema_integer(spec, "activeDeadlineSeconds", -1);
    job->ttl_s = schema_integer(spec, "ttlSecondsAfterFinished", -1);
    job->suspended = suspend && suspend->kind == TREE_BOOL && suspend->boolean;
    if (!*name) {
        problems_add(b->problems, PROBLEM_REQUIRED, b->object->file, b->object->node,
                     PATH_FIELD(PATH_FIELD(NULL, "metadata"), "name"), "the job needs a name");
        problems_fatal(b->problems);
    }
    return 0;
}

void batch_check_manager(const struct building *b, const struct tree_node *spec, const char *own)
{
    const struct tree_node *node = tree_get(spec, "managedBy");
    const char *text = tree_text(node);
    if (text && *text && strcmp(text, own) != 0)
        problems_add(b->problems, PROBLEM_WARNING, b->object->file, node,
                     PATH_FIELD(PATH_FIELD(NULL, "spec"), "managedBy"),
                     "its controller leaves such an object to %.100s; it runs here all the same", text);
}

/* A pod's name resolves for others only by a headless Service that its subdomain names. */
static void check_names(const struct building *b, const struct batch_job *job)
{
    const struct path *path = PATH_FIELD(PATH_FIELD(PATH_FIELD(job->path, "template"), "spec"), "subdomain");
    const struct tree_node *template_ = tree_get(job->spec, "template");
    const char *subdomain = tree_text(tree_get(tree_get(template_, "spec"), "subdomain"));
    if (b->job->pod_count < 2)
        return;
    if (!subdomain)
        ERROR(b, WARNING, job, template_, path,
              "is not given: no pod's name resolves for the others (a headless Service and its name here)");
    else if (!documents_find(b->documents, "Service", job->namespace_, subdomain))
        ERROR(b, NOTE, job, NULL, path,
              "no Service %.63s was given: in a cluster the pods' names resolve only with one", subdomain);
}

int indexed_job_build(struct building *b)
{
    const char *name;
    scope_free char *owned = NULL;
    const struct tree_node *spec = tree_get(b->object->node, "spec");
    schema_check(&batch_job_schema, b->object->file, b->object->node, NULL, b->problems);
    if (building_name(b, &name, &owned) < 0 || batch_fill_job(b, spec, name) < 0)
        return -1;
    if (b->problems->fatal)
        return 0;
    const struct batch_job job = {.file = b->object->file,
                                  .namespace_ = b->object->namespace_,
                                  .name = name,
                                  .spec = spec,
                                  .path = PATH_FIELD(NULL, "spec")};
    batch_check_manager(b, spec, "kubernetes.io/job-controller");
    if (batch_job_add(b, &job) < 0)
        return -1;
    if (!b->problems->fatal)
        check_names(b, &job);
    return 0;
}
