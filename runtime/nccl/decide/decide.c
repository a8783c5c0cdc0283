/* decide.c - runs the rules, applies the policy and puts the decisions in order. */
#include "runtime/nccl/decide/decide.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/nccl/decide/decide_internal.h"
#include "runtime/nccl/decide/policy.h"

/* --- the policy --- */

static bool was_decided(const struct decision_list *list, const char *name, enum decision_kind kind)
{
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == kind && !strcmp(list->items[i].name, name))
            return true;
    return false;
}

static void drop(struct decision_list *list, const char *name, enum decision_kind kind)
{
    int kept = 0;
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind != kind || strcmp(list->items[i].name, name))
            list->items[kept++] = list->items[i];
    list->count = kept;
}

static const char *reason_of(const struct policy_entry *entry)
{
    return *entry->reason ? entry->reason : "no reason given";
}

static void forbid(struct decider *d, const struct policy *policy, const struct policy_entry *entry)
{
    const struct description_setting *user = description_setting_of(d->machine, entry->name);
    drop(d->list, entry->name, DECISION_SET); /* a forbidden variable is not set by muster either */
    if (user && !was_decided(d->list, entry->name, DECISION_FORBIDDEN))
        decide_add(d, DECISION_FORBIDDEN, entry->name, user->value,
                   "%s:%d forbids it (%s), but it is set in %s: remove it there", policy->file, entry->line,
                   reason_of(entry), user->source);
}

static void pin(struct decider *d, const struct policy *policy, const struct policy_entry *entry)
{
    const struct description_setting *user = description_setting_of(d->machine, entry->name);
    drop(d->list, entry->name, DECISION_SET);
    drop(d->list, entry->name, DECISION_KEPT);
    drop(d->list, entry->name, DECISION_WARNED); /* a value that no worker sees */
    if (user && strcmp(user->value, entry->value))
        decide_add(d, DECISION_SET, entry->name, entry->value, "pinned by %s:%d (%s); %s has %.60s",
                   policy->file, entry->line, reason_of(entry), user->source, user->value);
    else
        decide_add(d, DECISION_SET, entry->name, entry->value, "pinned by %s:%d (%s)", policy->file,
                   entry->line, reason_of(entry));
}

static void add_by_policy(struct decider *d, const struct policy *policy, const struct policy_entry *entry)
{
    drop(d->list, entry->name, DECISION_SET); /* the operator knows the site better than our rules */
    drop(d->list, entry->name, DECISION_KEPT);
    decide_set(d, entry->name, entry->value, "added by %s:%d (%s)", policy->file, entry->line,
               reason_of(entry));
}

static void apply_policy(struct decider *d, const struct policy *policy)
{
    d->rule = "policy";
    for (int i = 0; policy && i < policy->count; i++) {
        const struct policy_entry *entry = &policy->entries[i];
        if (policy_find(policy, entry->name, entry->kind, d->machine) != entry)
            continue; /* another rule came first, or its conditions do not hold */
        if (entry->kind == POLICY_PIN)
            pin(d, policy, entry);
        else if (entry->kind == POLICY_ADD && !policy_find(policy, entry->name, POLICY_PIN, d->machine))
            add_by_policy(d, policy, entry);
    }
    for (int i = 0; policy && i < policy->count; i++)
        if (policy->entries[i].kind == POLICY_FORBID && policy_applies(&policy->entries[i], d->machine))
            forbid(d, policy, &policy->entries[i]);
}

/* --- the whole list --- */

static int by_name(const void *a, const void *b)
{
    const struct decision *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order == 0)
        order = (int)x->kind - (int)y->kind;
    if (order == 0)
        order = strcmp(x->rule, y->rule);
    return order ? order : strcmp(x->reason, y->reason);
}

static void run_rules(struct decider *d)
{
    static const struct decide_rule *const topics[] = {decide_rules_socket, decide_rules_rdma,
                                                       decide_rules_cloud,  decide_rules_gpu,
                                                       decide_rules_values, decide_rules_torch};
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++)
        for (const struct decide_rule *rule = topics[i]; rule->name; rule++) {
            d->rule = rule->name;
            rule->run(d);
        }
}

/* A debugging variable with a wrong value gets the warning about its value only. */
static void drop_repetitions(struct decision_list *list)
{
    int kept = 0;
    for (int i = 0; i < list->count; i++) {
        bool warned = false;
        for (int k = 0; k < list->count && !strcmp(list->items[i].rule, "debugging"); k++)
            warned |= list->items[k].kind == DECISION_WARNED && strcmp(list->items[k].rule, "debugging") &&
                      !strcmp(list->items[k].name, list->items[i].name);
        if (!warned)
            list->items[kept++] = list->items[i];
    }
    list->count = kept;
}

static int decision_list_finish(struct decider *d, const struct policy *policy, struct muster_error *err)
{
    apply_policy(d, policy);
    if (d->failed) {
        decision_list_free(d->list);
        return error_set(err, MUSTER_E_NOMEM, "no memory for NCCL's settings");
    }
    if (d->list->count > 1)
        qsort(d->list->items, (size_t)d->list->count, sizeof *d->list->items, by_name);
    return 0;
}

int decide(const struct description *description, const struct policy *policy, struct decision_list *list,
           struct muster_error *err)
{
    struct decider d = {
        .machine = description, .list = list, .version = description_version(description->nccl)};
    run_rules(&d);
    drop_repetitions(list);
    return decision_list_finish(&d, policy, err);
}

int decide_policy(const struct description *description, const struct policy *policy,
                  struct decision_list *list, struct muster_error *err)
{
    struct decider d = {.machine = description, .list = list};
    return decision_list_finish(&d, policy, err);
}

const struct decision *decision_first(const struct decision_list *list, enum decision_kind kind)
{
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == kind)
            return &list->items[i];
    return NULL;
}

const char *decision_kind_name(enum decision_kind kind)
{
    static const char *const names[] = {"set", "kept", "warned", "forbidden"};
    return kind <= DECISION_FORBIDDEN ? names[kind] : "?";
}
