/* volume_files.c - see volumes.h: files of ConfigMaps, Secrets and the pod's own fields. */
#include <string.h>

#include "launcher/local/pod/container_sources.h"
#include "launcher/local/pod/schema.h"
#include "launcher/local/pod/volumes.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { MODE_DEFAULT = 0644, MODE_LIMIT = 0777 };

struct filling {
    const struct volumes_place *place;
    struct local_volume *volume;
    unsigned mode; /* defaultMode */
    bool *own;
    struct muster_error *err;
};

static int file_no_memory(const struct filling *f)
{
    return error_set(f->err, MUSTER_E_NOMEM, "no memory");
}

static unsigned mode_of(const struct tree_node *node, const char *field, unsigned otherwise)
{
    int64_t mode = schema_integer(node, field, otherwise);
    return mode < 0 || mode > MODE_LIMIT ? otherwise : (unsigned)mode;
}

bool volume_path_is_inside(const char *path)
{
    for (const char *part = path; *part; part += *part == '/') {
        size_t length = strcspn(part, "/");
        if (length == 2 && part[0] == '.' && part[1] == '.')
            return false;
        part += length;
    }
    return *path && *path != '/';
}

/* Takes data. A path that is there already is replaced, as of a projected volume's later source. */
static int volume_file_add(const struct filling *f, const char *path, struct buffer *data, unsigned mode)
{
    struct local_volume *volume = f->volume;
    struct local_file file = {mem_strdup(path), NULL, data->length, mode,
                              data->data && *f->own && local_has_attempt(data->data)};
    struct local_file *longer = mem_realloc(volume->files, volume->file_count + 1, sizeof *longer);
    if (longer)
        volume->files = longer;
    file.data = buffer_take(data);
    if (!file.path || !file.data || !longer) {
        mem_free(file.path);
        mem_free(file.data);
        return file_no_memory(f);
    }
    *f->place->bytes += file.length + strlen(path) + sizeof file;
    for (size_t i = 0; i < volume->file_count; i++)
        if (!strcmp(volume->files[i].path, path)) {
            mem_free(volume->files[i].path);
            mem_free(volume->files[i].data);
            volume->files[i] = file;
            return 1;
        }
    volume->files[volume->file_count++] = file;
    return 1;
}

static int bad_path(const struct filling *f, const struct tree_node *at, const struct path *path,
                    const char *given)
{
    problems_add(f->place->problems, PROBLEM_INVALID, f->place->container->file, at, path,
                 "'%.100s' is not a path inside the volume: relative and without ..", given);
    return 0;
}

/* --- ConfigMaps and Secrets --- */

struct data_source {
    const struct document_object *object;
    const char *map; /* data, stringData or binaryData */
    bool base64;
};

static int add_entry(const struct filling *f, const struct data_source *from, const struct tree_entry *entry,
                     const char *path, unsigned mode)
{
    const char *text = tree_text(entry->value);
    scope_buffer data = {0};
    buffer_text(&data, "");
    if (text && !from->base64)
        buffer_text(&data, text);
    if (!text || (from->base64 && !container_base64(text, true, &data))) {
        problems_add(f->place->problems, PROBLEM_INVALID, from->object->file, entry->value,
                     PATH_KEY(PATH_FIELD(NULL, from->map), entry->key), "is not %s",
                     text ? "base64" : "text; quote it");
        return 0;
    }
    return data.failed ? file_no_memory(f) : volume_file_add(f, path, &data, mode);
}

static int add_key(const struct filling *f, const struct data_source *sources, size_t count, const char *key,
                   const char *path, unsigned mode, bool *found)
{
    for (size_t i = 0; i < count; i++) {
        const struct tree_entry *entry = tree_entry(tree_get(sources[i].object->node, sources[i].map), key);
        if (!entry)
            continue;
        *found = true;
        int added = add_entry(f, &sources[i], entry, path, mode);
        if (added <= 0)
            return added;
    }
    return 1;
}

static int add_all(const struct filling *f, const struct data_source *sources, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct tree_node *map = tree_get(sources[i].object->node, sources[i].map);
        for (size_t k = 0; map && map->kind == TREE_MAP && k < map->count; k++) {
            if (!volume_path_is_inside(map->entries[k].key))
                return bad_path(f, map->entries[k].value, NULL, map->entries[k].key);
            int added = add_entry(f, &sources[i], &map->entries[k], map->entries[k].key, f->mode);
            if (added <= 0)
                return added;
        }
    }
    return 1;
}

static bool is_optional(const struct tree_node *node)
{
    const struct tree_node *optional = tree_get(node, "optional");
    return optional && optional->kind == TREE_BOOL && optional->boolean;
}

static int add_items(const struct filling *f, const struct tree_node *node, const struct path *path,
                     const struct data_source *sources, size_t count)
{
    const struct tree_node *items = tree_get(node, "items");
    if (!items || items->kind != TREE_LIST)
        return add_all(f, sources, count);
    for (size_t i = 0; i < items->count; i++) {
        const struct path *at = PATH_INDEX(PATH_FIELD(path, "items"), i);
        const char *key = tree_text(tree_get(items->items[i], "key")),
                   *to = tree_text(tree_get(items->items[i], "path"));
        bool found = false;
        if (!key || !to || !volume_path_is_inside(to))
            return bad_path(f, items->items[i], at, to ? to : "");
        int added = add_key(f, sources, count, key, to, mode_of(items->items[i], "mode", f->mode), &found);
        if (added <= 0)
            return added;
        if (!found && !is_optional(node)) {
            problems_add(f->place->problems, PROBLEM_WARNING, f->place->container->file, items->items[i], at,
                         "%s %.100s has no key %.100s: in a cluster the pod would wait for it without end",
                         sources->object->kind, sources->object->name, key);
            return 0;
        }
    }
    return 1;
}

static int add_object(const struct filling *f, const struct tree_node *node, const struct path *path,
                      bool secret, const char *name)
{
    const struct container_place *place = f->place->container;
    const char *kind = secret ? "Secret" : "ConfigMap";
    const struct document_object *object =
        documents_find(place->documents, kind, place->source->namespace_, name ? name : "");
    if (!object && is_optional(node))
        return 1;
    if (!object) {
        problems_add(f->place->problems, PROBLEM_WARNING, place->file, node, path,
                     "no %s %.100s of the namespace %.100s was given (-f): in a cluster the pod would wait "
                     "for it without end; here its path stays this machine's",
                     kind, name ? name : "(without a name)", place->source->namespace_);
        return 0;
    }
    const struct data_source sources[] = {{object, "data", secret},
                                          {object, secret ? "stringData" : "binaryData", !secret}};
    return add_items(f, node, path, sources, 2);
}

/* --- fields of the pod --- */

static int add_fields(const struct filling *f, const struct tree_node *node, const struct path *path)
{
    const struct tree_node *items = tree_get(node, "items");
    *f->own = true;
    for (size_t i = 0; items && items->kind == TREE_LIST && i < items->count; i++) {
        const struct path *at = PATH_INDEX(PATH_FIELD(path, "items"), i);
        const char *to = tree_text(tree_get(items->items[i], "path"));
        scope_free char *value = NULL;
        scope_buffer data = {0};
        if (!to || !volume_path_is_inside(to))
            return bad_path(f, items->items[i], at, to ? to : "");
        int map = container_field_map(f->place->container, items->items[i], &data);
        int got = map ? map
                      : container_source(f->place->container, items->items[i], at, &value, f->place->problems,
                                         f->err);
        if (map < 0)
            return file_no_memory(f);
        if (got <= 0)
            return got;
        if (!map)
            buffer_text(&data, value);
        int added = data.failed ? file_no_memory(f)
                                : volume_file_add(f, to, &data, mode_of(items->items[i], "mode", f->mode));
        if (added <= 0)
            return added;
    }
    return 1;
}

/* --- one source, and several --- */

static int add_source(const struct filling *f, const struct tree_node *node, const struct path *path,
                      const char *secret_name)
{
    const struct tree_node *source;
    if ((source = tree_get(node, "configMap")))
        return add_object(f, source, PATH_FIELD(path, "configMap"), false,
                          tree_text(tree_get(source, "name")));
    if ((source = tree_get(node, "secret")))
        return add_object(f, source, PATH_FIELD(path, "secret"), true,
                          tree_text(tree_get(source, secret_name)));
    if ((source = tree_get(node, "downwardAPI")))
        return add_fields(f, source, PATH_FIELD(path, "downwardAPI"));
    problems_add(f->place->problems, PROBLEM_NOTE, f->place->container->file, NULL, path,
                 "the volume %.63s lacks what only a cluster has: tokens of service accounts, trust bundles",
                 f->volume->name);
    return 1;
}

static int add_projected(struct filling *f, const struct tree_node *node, const struct path *path)
{
    const struct tree_node *list = tree_get(node, "sources");
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
        int added = add_source(f, list->items[i], PATH_INDEX(PATH_FIELD(path, "sources"), i), "name");
        if (added <= 0)
            return added;
    }
    return 1;
}

static const char *const kinds[] = {"configMap", "secret", "downwardAPI", "projected"};

static const struct tree_node *find_kind(const struct tree_node *node)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (tree_get(node, kinds[i]))
            return tree_get(node, kinds[i]);
    return NULL;
}

bool volume_has_files(const struct tree_node *node)
{
    return find_kind(node) != NULL;
}

int volume_files(const struct volumes_place *place, const struct tree_node *node, const struct path *path,
                 struct local_volume *volume, bool *own, struct muster_error *err)
{
    struct filling f = {.place = place,
                        .volume = volume,
                        .mode = mode_of(find_kind(node), "defaultMode", MODE_DEFAULT),
                        .own = own,
                        .err = err};
    const struct tree_node *projected = tree_get(node, "projected");
    return projected ? add_projected(&f, projected, PATH_FIELD(path, "projected"))
                     : add_source(&f, node, path, "secretName");
}
