/* jobset_policies.c - see jobset.h: failurePolicy and volumeClaimPolicies. */
#include <regex.h>
#include <string.h>

#include "launcher/local/manifest/api.h"
#include "launcher/local/manifest/jobset.h"
#include "launcher/local/pod/schema.h"
#include "proto/base/guard.h"

/* --- failurePolicy --- */

static int read_reasons(struct building *b, const struct jobset *set, const struct tree_node *list,
                        const struct path *path, unsigned *reasons)
{
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
        const char *text = tree_text(list->items[i]);
        int known = 0;
        while (text && known < LOCAL_FAILURE_TYPES &&
               strcmp(text, local_failure_name((enum local_failure)known)) != 0)
            known++;
        if (!text || known == LOCAL_FAILURE_TYPES)
            problems_add(b->problems, PROBLEM_NOT_SUPPORTED, set->file, list->items[i], PATH_INDEX(path, i),
                         "'%.60s' is no reason for which a Job fails", text ? text : "");
        else
            *reasons |= 1u << known;
    }
    return 0;
}

static int read_targets(struct building *b, const struct jobset *set, const struct tree_node *list,
                        const struct path *path, bool **targets)
{
    if (!list || list->kind != TREE_LIST || !list->count)
        return 0;
    *targets = mem_calloc(jobset_jobs(set)->count + 1, sizeof **targets);
    if (!*targets)
        return building_no_memory(b);
    for (size_t i = 0; i < list->count; i++) {
        const char *name = tree_text(list->items[i]);
        int number = jobset_number_of(set, name);
        if (number >= 0)
            (*targets)[number] = true;
        else
            problems_add(b->problems, PROBLEM_INVALID, set->file, list->items[i], PATH_INDEX(path, i),
                         "'%.63s' is no replicated job", name ? name : "");
    }
    return 0;
}

/* Written for RE2; what POSIX does not have is refused rather than read otherwise. */
static int read_patterns(struct building *b, const struct jobset *set, const struct tree_node *list,
                         const struct path *path, char ***patterns)
{
    struct text_list copies = {0};
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
        const char *text = tree_text(list->items[i]);
        regex_t pattern;
        bool good = text && !strstr(text, "(?") && !strstr(text, "\\d") && !strstr(text, "\\D") &&
                    regcomp(&pattern, text, REG_EXTENDED | REG_NOSUB) == 0;
        if (good)
            regfree(&pattern);
        else
            problems_add(b->problems, PROBLEM_NOT_SUPPORTED, set->file, list->items[i], PATH_INDEX(path, i),
                         "'%.100s' is not an extended regular expression without (?...) and \\d",
                         text ? text : "");
        if (good && text_list_take(&copies, mem_strdup(text)) < 0) {
            text_list_free(&copies);
            return building_no_memory(b);
        }
    }
    *patterns = copies.items;
    return 0;
}

static int read_restart_rule(struct building *b, const struct jobset *set, const struct tree_node *node,
                             size_t number, const struct path *path)
{
    const char *action = tree_text(tree_get(node, "action")), *name = tree_text(tree_get(node, "name"));
    struct local_restart_rule *rule = &b->job->restart_rules[b->job->restart_rule_count++];
    int known = 0;
    while (action && known < LOCAL_RESTART_ACTIONS &&
           strcmp(action, local_restart_action_name((enum local_restart_action)known)) != 0)
        known++;
    if (action && known == LOCAL_RESTART_ACTIONS)
        problems_add(b->problems, PROBLEM_NOT_SUPPORTED, set->file, node, PATH_FIELD(path, "action"),
                     "'%.60s' is no action of " API_JOBSET, action);
    rule->action = known < LOCAL_RESTART_ACTIONS ? (enum local_restart_action)known : LOCAL_RESTART_SET;
    rule->name = name ? mem_strdup(name) : mem_printf("failurePolicyRule%zu", number);
    if (!rule->name)
        return building_no_memory(b);
    return read_targets(b, set, tree_get(node, "targetReplicatedJobs"),
                        PATH_FIELD(path, "targetReplicatedJobs"), &rule->targets) < 0 ||
                   read_reasons(b, set, tree_get(node, "onJobFailureReasons"),
                                PATH_FIELD(path, "onJobFailureReasons"), &rule->reasons) < 0 ||
                   read_patterns(b, set, tree_get(node, "onJobFailureMessagePatterns"),
                                 PATH_FIELD(path, "onJobFailureMessagePatterns"), &rule->patterns) < 0
               ? -1
               : 0;
}

int jobset_read_failure(struct building *b, const struct jobset *set)
{
    const struct tree_node *failure = tree_get(set->spec, "failurePolicy"),
                           *rules = tree_get(failure, "rules");
    const struct path *path = PATH_FIELD(set->path, "failurePolicy");
    const char *strategy = tree_text(tree_get(failure, "restartStrategy"));
    int64_t restarts = schema_integer(failure, "maxRestarts", 0);
    b->job->max_restarts = restarts < 0 ? 0 : restarts > INT32_MAX ? INT32_MAX : (int)restarts;
    if (strategy && strcmp(strategy, "Recreate") && strcmp(strategy, "BlockingRecreate"))
        problems_add(b->problems, PROBLEM_NOT_SUPPORTED, set->file, tree_get(failure, "restartStrategy"),
                     PATH_FIELD(path, "restartStrategy"),
                     "muster local has Recreate and BlockingRecreate, not '%.60s'%s", strategy,
                     !strcmp(strategy, "InPlaceRestart") ? ", for which each pod needs JobSet's agent" : "");
    if (!rules || rules->kind != TREE_LIST || !rules->count)
        return 0;
    b->job->restart_rules = mem_calloc(rules->count, sizeof *b->job->restart_rules);
    if (!b->job->restart_rules)
        return building_no_memory(b);
    for (size_t i = 0; i < rules->count; i++)
        if (read_restart_rule(b, set, rules->items[i], i, PATH_INDEX(PATH_FIELD(path, "rules"), i)) < 0)
            return -1;
    return 0;
}

/* --- volumeClaimPolicies --- */

static bool mounts_claim(const struct tree_node *pod, const char *name)
{
    static const char *const lists[] = {"containers", "initContainers"};
    for (size_t l = 0; l < 2; l++) {
        const struct tree_node *list = tree_get(pod, lists[l]);
        for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
            const struct tree_node *mounts = tree_get(list->items[i], "volumeMounts");
            for (size_t k = 0; mounts && mounts->kind == TREE_LIST && k < mounts->count; k++) {
                const char *other = tree_text(tree_get(mounts->items[k], "name"));
                if (other && !strcmp(other, name))
                    return true;
            }
        }
    }
    return false;
}

/* Every template needs a container that mounts it. */
void jobset_check_claims(struct building *b, const struct jobset *set)
{
    const struct tree_node *policies = tree_get(set->spec, "volumeClaimPolicies"), *jobs = jobset_jobs(set);
    const struct path *path = PATH_FIELD(set->path, "volumeClaimPolicies");
    for (size_t i = 0; policies && policies->kind == TREE_LIST && i < policies->count; i++) {
        const struct tree_node *list = tree_get(policies->items[i], "templates");
        for (size_t k = 0; list && list->kind == TREE_LIST && k < list->count; k++) {
            const char *name = tree_text(tree_get(tree_get(list->items[k], "metadata"), "name"));
            bool mounted = false;
            for (size_t n = 0; name && jobs && n < jobs->count; n++) {
                const struct tree_node *job = tree_get(tree_get(jobs->items[n], "template"), "spec");
                mounted |= mounts_claim(tree_get(tree_get(job, "template"), "spec"), name);
            }
            if (!mounted)
                problems_add(b->problems, PROBLEM_INVALID, set->file, list->items[k],
                             PATH_INDEX(PATH_FIELD(PATH_INDEX(path, i), "templates"), k), "%s",
                             name ? "no container mounts a volume of this name"
                                  : "metadata.name must be given");
        }
    }
}
