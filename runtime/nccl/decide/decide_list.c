/* decide_list.c - for rules: the list of decisions, and questions about the machine. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "runtime/nccl/decide/decide_internal.h"

/* --- the list --- */

static struct decision *decision_append(struct decider *d)
{
    struct decision_list *list = d->list;
    if (list->count == d->capacity) {
        int capacity = d->capacity ? 2 * d->capacity : 16;
        struct decision *items = mem_realloc(list->items, (size_t)capacity, sizeof *items);
        if (!items) {
            d->failed = true;
            return NULL;
        }
        list->items = items;
        d->capacity = capacity;
    }
    return &list->items[list->count++];
}

static void put(struct decider *d, enum decision_kind kind, const char *name, const char *value,
                const char *format, va_list arguments)
{
    struct decision *decision = decision_append(d);
    if (!decision)
        return;
    memset(decision, 0, sizeof *decision);
    decision->kind = kind;
    (void)snprintf(decision->name, sizeof decision->name, "%s", name);
    (void)snprintf(decision->value, sizeof decision->value, "%s", value ? value : "");
    (void)snprintf(decision->rule, sizeof decision->rule, "%s", d->rule);
    (void)vsnprintf(decision->reason, sizeof decision->reason, format, arguments);
}

void decide_add(struct decider *d, enum decision_kind kind, const char *name, const char *value,
                const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put(d, kind, name, value, format, arguments);
    va_end(arguments);
}

void decide_warn(struct decider *d, const char *name, const char *value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put(d, DECISION_WARNED, name, value, format, arguments);
    va_end(arguments);
}

void decide_set(struct decider *d, const char *name, const char *value, const char *format, ...)
{
    const struct description_setting *user = description_setting_of(d->machine, name);
    va_list arguments;
    va_start(arguments, format);
    if (!user)
        put(d, DECISION_SET, name, value, format, arguments);
    else if (strcmp(user->value, value))
        decide_add(d, DECISION_KEPT, name, user->value, "set in %s; muster would set %s", user->source,
                   value);
    else
        decide_add(d, DECISION_KEPT, name, user->value, "set in %s, equal to muster's choice", user->source);
    va_end(arguments);
}

void decision_list_free(struct decision_list *list)
{
    if (!list)
        return;
    mem_free(list->items);
    *list = (struct decision_list){0};
}

/* --- questions --- */

const char *decide_user(const struct decider *d, const char *name)
{
    const struct description_setting *user = description_setting_of(d->machine, name);
    return user ? user->value : NULL;
}

bool decide_user_is_one(const struct decider *d, const char *name)
{
    const char *value = decide_user(d, name);
    return value && strtoll(value, NULL, 0) == 1;
}

bool decide_many_nodes(const struct decider *d)
{
    return d->machine->nnodes > 1;
}

bool decide_has_gpus(const struct decider *d)
{
    return d->machine->gpu_count > 0 || d->machine->device_files > 0;
}

bool decide_has_profile(const struct decider *d)
{
    static const char *const profiles[] = {"efa", "tcpx", "tcpxo", "gib"};
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++)
        if (!strcmp(d->machine->cloud, profiles[i]))
            return true;
    return false;
}

static const struct description_interface *default_route(const struct description *machine)
{
    for (int i = 0; i < machine->interface_count; i++)
        if (machine->interfaces[i].default_route && decide_is_candidate(&machine->interfaces[i]))
            return &machine->interfaces[i];
    return NULL;
}

const struct description_interface *decide_interface(const struct description *description)
{
    for (int i = 0; i < description->interface_count; i++)
        if (description->interfaces[i].to_master)
            return &description->interfaces[i];
    return default_route(description);
}

const struct description_interface *decide_default_route(const struct decider *d)
{
    return default_route(d->machine);
}

const struct description_interface *decide_route(const struct decider *d)
{
    return decide_interface(d->machine);
}

bool decide_is_candidate(const struct description_interface *interface)
{
    return interface->up && interface->address_count > 0 && !interface->loopback &&
           strncmp(interface->name, "lo", 2) && strncmp(interface->name, "docker", 6);
}

bool decide_is_usable(const struct description_rdma *port)
{
    return !strcmp(port->state, "ACTIVE") && port->uverbs;
}
