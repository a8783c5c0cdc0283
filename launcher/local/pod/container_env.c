/* container_env.c - see container_env.h. */
#include "launcher/local/pod/container_env.h"

#include <string.h>

#include "launcher/local/pod/container_sources.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

struct filling {
    const struct container_place *place;
    struct env_map *env;
    struct problems *problems;
    struct muster_error *err;
};

/* Whether the caller's --env gives the variable: the manifest's value is then not even looked up. */
static bool is_overridden(const struct filling *f, const char *name)
{
    size_t length = strlen(name);
    for (char *const *entry = f->place->extra; entry && *entry; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
            return true;
    return false;
}

/* A limit or no memory: the first is the manifest's fault and reported there. */
static int set(const struct filling *f, const struct tree_node *at, const struct path *path, const char *name,
               const char *value)
{
    struct muster_error err = {0};
    if (env_map_set(f->env, name, value, &err) == 0)
        return 0;
    if (err.code == MUSTER_E_NOMEM)
        return error_set(f->err, MUSTER_E_NOMEM, "no memory");
    problems_add(f->problems, PROBLEM_INVALID, f->place->file, at, path, "%s", err.text);
    problems_fatal(f->problems);
    return 0;
}

static int set_expanded(const struct filling *f, const struct tree_node *at, const struct path *path,
                        const char *name, const char *text)
{
    scope_buffer value = {.limit = ENV_TEXT_LIMIT};
    if (env_expand(text, f->env, &value) == 0)
        return set(f, at, path, name, value.data ? value.data : "");
    problems_add(f->problems, PROBLEM_INVALID, f->place->file, at, path,
                 "%.100s is longer than %d bytes when its variables are filled in", name, ENV_TEXT_LIMIT);
    problems_fatal(f->problems);
    return 0;
}

static int add_from(const struct filling *f, const struct tree_node *from, const struct path *path)
{
    const char *prefix = tree_text(tree_get(from, "prefix"));
    for (int secret = 0; secret < 2; secret++) {
        const char *field = secret ? "secretRef" : "configMapRef";
        struct container_values values;
        if (!tree_get(from, field))
            continue;
        const struct path *at = PATH_FIELD(path, field);
        container_values_find(f->place, secret ? "Secret" : "ConfigMap", tree_get(from, field), at, &values,
                              f->problems);
        for (size_t i = 0; i < container_values_count(&values); i++) {
            scope_free char *value = NULL;
            const char *key;
            int got = container_values_at(&values, i, &key, &value, f->problems, f->err);
            scope_free char *name = mem_printf("%s%s", prefix ? prefix : "", key ? key : "");
            if (got < 0 || !name)
                return error_set(f->err, MUSTER_E_NOMEM, "no memory");
            if (got && *name && !strchr(name, '=') && !is_overridden(f, name) &&
                set(f, from, at, name, value) < 0)
                return -1;
        }
    }
    return 0;
}

static int add_entry(const struct filling *f, const struct tree_node *entry, const struct path *path)
{
    const char *name = tree_text(tree_get(entry, "name")), *value = tree_text(tree_get(entry, "value"));
    const struct tree_node *from = tree_get(entry, "valueFrom");
    if (!name)
        return 0; /* the schema has reported it */
    if (!*name || strchr(name, '=')) {
        problems_add(f->problems, PROBLEM_INVALID, f->place->file, entry, PATH_FIELD(path, "name"),
                     "'%.100s' cannot be the name of a variable", name);
        problems_fatal(f->problems);
        return 0;
    }
    if (is_overridden(f, name))
        return 0;
    if (value && *value && from) {
        problems_add(f->problems, PROBLEM_INVALID, f->place->file, entry, PATH_FIELD(path, "valueFrom"),
                     "%.100s has both value and valueFrom", name);
        problems_fatal(f->problems);
        return 0;
    }
    if (!from || (value && *value))
        return set_expanded(f, entry, path, name, value ? value : "");
    scope_free char *text = NULL;
    int got = container_source(f->place, from, PATH_FIELD(path, "valueFrom"), &text, f->problems, f->err);
    return got <= 0 ? got : set(f, entry, path, name, text);
}

static int add_controllers(const struct filling *f)
{
    const struct facts *variables = &f->place->source->variables;
    for (int i = 0; i < variables->count; i++)
        if (set_expanded(f, f->place->container, f->place->path, variables->list[i].name,
                         variables->list[i].value) < 0)
            return -1;
    return 0;
}

/* The caller's --env: literal, like a value on a command line. First, so that $(NAME) in others is this
 * value. */
static int add_extra(const struct filling *f)
{
    for (char *const *entry = f->place->extra; entry && *entry; entry++) {
        size_t length = strcspn(*entry, "=");
        scope_free char *name = mem_strndup(*entry, length);
        if (!name)
            return error_set(f->err, MUSTER_E_NOMEM, "no memory for a pod's environment");
        if (env_map_set(f->env, name, *entry + length + 1, f->err) < 0)
            return -1;
    }
    return 0;
}

static int add_list(const struct filling *f, const struct tree_node *list)
{
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++)
        if (add_entry(f, list->items[i], PATH_INDEX(PATH_FIELD(f->place->path, "env"), i)) < 0)
            return -1;
    return 0;
}

/* A TrainJob's own variables, over the variables of the runtime's container. */
static int add_overlay(const struct filling *f)
{
    const struct pod_overlay *over = &f->place->source->over;
    struct container_place place = *f->place;
    place.file = over->file;
    place.path = over->path;
    const struct filling above = {&place, f->env, f->problems, f->err};
    return over->node ? add_list(&above, tree_get(over->node, "env")) : 0;
}

int container_env(const struct container_place *place, struct env_map *env, struct problems *problems,
                  struct muster_error *err)
{
    const struct filling f = {place, env, problems, err};
    const struct tree_node *from = tree_get(place->container, "envFrom");
    if (add_extra(&f) < 0)
        return -1;
    for (size_t i = 0; from && from->kind == TREE_LIST && i < from->count; i++)
        if (add_from(&f, from->items[i], PATH_INDEX(PATH_FIELD(place->path, "envFrom"), i)) < 0)
            return -1;
    return add_list(&f, tree_get(place->container, "env")) < 0 || add_overlay(&f) < 0 ? -1
                                                                                      : add_controllers(&f);
}
