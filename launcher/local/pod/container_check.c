/* container_check.c - see container_check.h. */
#include "launcher/local/pod/container_check.h"

#include <string.h>

#include "launcher/local/pod/quantity.h"

struct place {
    struct problems *problems;
    const char *file;
    const struct path *path; /* of the resources */
};

static void container_tell(const struct place *place, enum problem_type type, const char *kind,
                           const struct tree_entry *entry, const char *why)
{
    problems_add(place->problems, type, place->file, entry->value,
                 PATH_KEY(PATH_FIELD(place->path, kind), entry->key), "%s", why);
}

/* Devices: whole ones, which are not shared. */
static bool is_device(const char *resource)
{
    return strchr(resource, '/') != NULL;
}

static bool amount_of(const struct tree_node *node, quantity_thousandths *out)
{
    return node && node->text && quantity_parse(node->text, out); /* others were reported by their type */
}

static void check_request(const struct place *place, const struct tree_entry *entry,
                          const struct tree_node *limits)
{
    quantity_thousandths asked, limit;
    const bool limited = amount_of(tree_get(limits, entry->key), &limit);
    if (!amount_of(entry->value, &asked))
        return;
    if (is_device(entry->key) && !limited)
        /* the controllers' own examples have it, and their tests have no API server */
        container_tell(place, PROBLEM_WARNING, "requests", entry,
                       "an API server refuses the pod: a device needs a limit, too");
    else if (is_device(entry->key) && asked != limit)
        container_tell(place, PROBLEM_INVALID, "requests", entry,
                       "must be equal to the limit: devices are not overcommitted");
    else if (limited && asked > limit)
        container_tell(place, PROBLEM_INVALID, "requests", entry, "must be less than or equal to the limit");
}

static const struct tree_node *map_of(const struct tree_node *resources, const char *kind)
{
    const struct tree_node *map = tree_get(resources, kind);
    return map && map->kind == TREE_MAP ? map : NULL;
}

static void check_resources(const struct place *place, const struct tree_node *resources)
{
    const struct tree_node *limits = map_of(resources, "limits"), *requests = map_of(resources, "requests");
    quantity_thousandths amount;
    for (size_t i = 0; limits && i < limits->count; i++)
        if (is_device(limits->entries[i].key) && amount_of(limits->entries[i].value, &amount) &&
            amount % 1000)
            container_tell(place, PROBLEM_INVALID, "limits", &limits->entries[i],
                           "must be an integer: devices are whole");
    for (size_t i = 0; requests && i < requests->count; i++)
        check_request(place, &requests->entries[i], limits);
}

static void check_ports(struct problems *problems, const struct pod_source *source,
                        const struct path *container)
{
    const struct tree_node *list = tree_get(pod_source_container(source), "ports");
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
        const struct tree_node *port = tree_get(list->items[i], "containerPort");
        if (port && port->kind == TREE_INT && (port->integer < 1 || port->integer > 65535))
            problems_add(problems, PROBLEM_INVALID, source->file, port,
                         PATH_FIELD(PATH_INDEX(PATH_FIELD(container, "ports"), i), "containerPort"),
                         "must be between 1 and 65535, inclusive");
    }
}

void container_check(struct problems *problems, const struct pod_source *source)
{
    const struct path *containers = PATH_FIELD(PATH_FIELD(source->path, "spec"), "containers");
    const struct path *container = PATH_INDEX(containers, source->container);
    const struct tree_node *over = tree_get(source->over.node, "resourcesPerNode"),
                           *own = tree_get(pod_source_container(source), "resources");
    const struct place place = {.problems = problems,
                                .file = over ? source->over.file : source->file,
                                .path = over ? PATH_FIELD(source->over.path, "resourcesPerNode")
                                             : PATH_FIELD(container, "resources")};
    check_resources(&place, over ? over : own);
    check_ports(problems, source, container);
}
