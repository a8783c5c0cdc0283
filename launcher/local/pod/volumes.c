/* volumes.c - see volumes.h. */
#include "launcher/local/pod/volumes.h"

#include <string.h>

#include "launcher/local/pod/quantity.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { MOUNTS_LIMIT = 256, PATH_LIMIT = 3000 };

static int volumes_no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory");
}

static bool is_true(const struct tree_node *node)
{
    return node && node->kind == TREE_BOOL && node->boolean;
}

/* --- volumes --- */

/* Whether a container before the main ones mounts the volume: it would fill it, and none of them is run. */
static bool is_filled_before(const struct pod_source *source, const char *name)
{
    const struct tree_node *list = tree_get(pod_source_spec(source), "initContainers");
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
        const struct tree_node *mounts = tree_get(list->items[i], "volumeMounts");
        for (size_t k = 0; mounts && mounts->kind == TREE_LIST && k < mounts->count; k++) {
            const char *other = tree_text(tree_get(mounts->items[k], "name"));
            if (other && !strcmp(other, name))
                return true;
        }
    }
    return false;
}

static int64_t bytes_of(const struct tree_node *node)
{
    quantity_thousandths amount;
    return node && node->text && quantity_parse(node->text, &amount) && amount > 0 ? quantity_in(amount, 1000)
                                                                                   : 0;
}

static void read_host_type(const struct volumes_place *place, const struct tree_node *host,
                           const struct path *path, struct local_volume *volume)
{
    const char *text = tree_text(tree_get(host, "type"));
    for (int type = 0; text && type < LOCAL_HOST_TYPES; type++)
        if (!strcmp(text, local_host_type_name((enum local_host_type)type))) {
            volume->host_type = (enum local_host_type)type;
            return;
        }
    if (text)
        problems_add(
            place->problems, PROBLEM_NOT_SUPPORTED, place->container->file, tree_get(host, "type"),
            PATH_FIELD(PATH_FIELD(path, "hostPath"), "type"),
            "'%.60s' is none of DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice, "
            "BlockDevice",
            text);
}

/* Fills in a volume that is not made of files. 1, or 0 where it is not emulated. */
static int read_kind(const struct volumes_place *place, const struct tree_node *node, const struct path *path,
                     struct local_volume *volume, const char **source)
{
    const struct tree_node *empty = tree_get(node, "emptyDir"), *claim, *host;
    const char *medium = tree_text(tree_get(empty, "medium"));
    if ((empty || tree_get(node, "ephemeral")) && is_filled_before(place->container->source, volume->name)) {
        problems_add(place->problems, PROBLEM_NOTE, place->container->file, NULL, NULL,
                     "the volume %.63s would be filled by a container that is not run here: its path stays "
                     "this machine's",
                     volume->name);
        return 0;
    }
    if (empty || tree_get(node, "ephemeral")) {
        volume->type = medium && !strcmp(medium, "Memory") ? LOCAL_VOLUME_MEMORY : LOCAL_VOLUME_EMPTY;
        volume->size_limit = bytes_of(tree_get(empty, "sizeLimit"));
        return 1;
    }
    if ((claim = tree_get(node, "persistentVolumeClaim"))) {
        volume->type = LOCAL_VOLUME_CLAIM;
        *source = tree_text(tree_get(claim, "claimName"));
    } else if ((host = tree_get(node, "hostPath"))) {
        volume->type = LOCAL_VOLUME_HOST;
        *source = tree_text(tree_get(host, "path"));
        read_host_type(place, host, path, volume);
    }
    bool usable =
        *source && (volume->type == LOCAL_VOLUME_HOST ? **source == '/'
                                                      : **source && !strchr(*source, '/') && **source != '.');
    if (!usable)
        problems_add(place->problems, PROBLEM_NOTE, place->container->file, NULL, NULL,
                     "the volume %.63s is of a kind that is not mounted here: its path stays this machine's",
                     volume->name);
    return usable;
}

/* A claim that the JobSet's controller makes of a template, for all pods that mount it. */
static int make_claim(const struct volumes_place *place, const struct tree_node *node,
                      struct local_volume *volume, struct muster_error *err)
{
    const char *name = tree_text(tree_get(tree_get(node, "metadata"), "name"));
    *volume = (struct local_volume){
        .key = node,
        .name = mem_strdup(name ? name : ""),
        .type = LOCAL_VOLUME_CLAIM,
        .source = mem_printf("%s-%s", name ? name : "", place->container->source->claims_of)};
    return volume->name && volume->source ? 1 : volumes_no_memory(err);
}

static int make_volume(const struct volumes_place *place, const struct tree_node *node,
                       const struct path *path, struct local_volume *volume, struct muster_error *err)
{
    if (!path)
        return make_claim(place, node, volume, err);
    const char *name = tree_text(tree_get(node, "name")), *source = NULL;
    bool own = false;
    *volume = (struct local_volume){.key = node, .name = mem_strdup(name ? name : "")};
    if (!volume->name)
        return volumes_no_memory(err);
    int made = volume_has_files(node) ? volume_files(place, node, path, volume, &own, err)
                                      : read_kind(place, node, path, volume, &source);
    if (own)
        volume->key = NULL;
    if (made > 0 && source && !(volume->source = mem_strdup(source)))
        return volumes_no_memory(err);
    return made;
}

/* Index of the volume, which is made if no pod had it (path NULL: of a claim's template); -1: there is none;
 * -2 without memory. */
static int find_volume(const struct volumes_place *place, const struct tree_node *node,
                       const struct path *path, struct muster_error *err)
{
    struct local_volumes *volumes = place->volumes;
    for (int i = 0; i < volumes->count; i++)
        if (volumes->list[i].key == node)
            return i;
    struct local_volume *longer = mem_realloc(volumes->list, (size_t)volumes->count + 1, sizeof *longer);
    if (!longer)
        return volumes_no_memory(err) - 1;
    volumes->list = longer;
    int made = make_volume(place, node, path, &longer[volumes->count], err);
    if (made > 0)
        return volumes->count++;
    struct local_volumes failed = {mem_calloc(1, sizeof *longer), 1};
    if (!failed.list)
        return volumes_no_memory(err) - 1;
    *failed.list = longer[volumes->count];
    local_volumes_free(&failed);
    return made < 0 ? -2 : -1;
}

/* --- mounts --- */

/* path without "." and double slashes; NULL without memory, "" if it is not absolute or has "..". */
static char *clean_path(const char *path)
{
    scope_buffer clean = {0};
    buffer_text(&clean, "");
    if (*path != '/' || strlen(path) > PATH_LIMIT || !volume_path_is_inside(path + strspn(path, "/")))
        return mem_strdup("");
    while (*path) {
        path += strspn(path, "/");
        size_t length = strcspn(path, "/");
        if (length && !(length == 1 && *path == '.')) {
            buffer_text(&clean, "/");
            buffer_append(&clean, path, length);
        }
        path += length;
    }
    return buffer_take(&clean);
}

static int read_sub_path(const struct volumes_place *place, const struct tree_node *node, char **sub_path,
                         struct muster_error *err)
{
    const char *plain = tree_text(tree_get(node, "subPath")),
               *expression = tree_text(tree_get(node, "subPathExpr"));
    scope_buffer text = {.limit = PATH_LIMIT};
    *sub_path = NULL;
    if (expression && env_expand(expression, place->env, &text) < 0)
        return 0;
    if (plain)
        buffer_text(&text, plain);
    if (!text.length)
        return 1;
    if (text.failed || !volume_path_is_inside(text.data))
        return 0;
    *sub_path = buffer_take(&text);
    return *sub_path ? 1 : volumes_no_memory(err);
}

static const struct tree_node *volume_node(const struct pod_source *source, const char *name, size_t *at)
{
    const struct tree_node *list = tree_get(pod_source_spec(source), "volumes");
    for (*at = 0; list && list->kind == TREE_LIST && *at < list->count; ++*at) {
        const char *other = tree_text(tree_get(list->items[*at], "name"));
        if (other && name && !strcmp(other, name))
            return list->items[*at];
    }
    return NULL;
}

static int mount_refuse(const struct volumes_place *place, const struct tree_node *node,
                        const struct path *path, const char *why)
{
    problems_add(place->problems, PROBLEM_INVALID, place->container->file, node, path, "%s", why);
    return 0;
}

static int append_mount(struct local_pod *pod, struct local_mount mount, struct muster_error *err)
{
    struct local_mount *longer = mem_realloc(pod->mounts, (size_t)pod->mount_count + 1, sizeof *longer);
    if (!longer) {
        mem_free(mount.path);
        mem_free(mount.sub_path);
        return volumes_no_memory(err);
    }
    pod->mounts = longer;
    pod->mounts[pod->mount_count++] = mount;
    return 0;
}

static int add_mount(const struct volumes_place *place, const struct tree_node *node, const struct path *path,
                     struct local_pod *pod, struct muster_error *err)
{
    size_t at;
    const char *name = tree_text(tree_get(node, "name")), *to = tree_text(tree_get(node, "mountPath"));
    const struct tree_node *volume = volume_node(place->container->source, name, &at);
    const struct tree_node *claim = name ? pod_source_claim(place->container->source, name) : NULL;
    const struct path *volumes = PATH_FIELD(PATH_FIELD(place->container->source->path, "spec"), "volumes");
    scope_free char *clean = clean_path(to ? to : ""), *sub_path = NULL;
    if (!clean)
        return volumes_no_memory(err);
    if (!volume && !claim)
        return mount_refuse(place, node, PATH_FIELD(path, "name"), "there is no volume of this name");
    if (volume && claim)
        return mount_refuse(place, node, PATH_FIELD(path, "name"),
                            "a volume and a template of volumeClaimPolicies have this name");
    if (!*clean)
        return mount_refuse(place, node, PATH_FIELD(path, "mountPath"),
                            "a path from / on, without .., other than / itself is needed");
    if (strchr(to, ':'))
        return mount_refuse(place, node, PATH_FIELD(path, "mountPath"), "must not contain ':'");
    for (int i = 0; i < pod->mount_count; i++)
        if (!strcmp(pod->mounts[i].path, clean))
            return mount_refuse(place, node, PATH_FIELD(path, "mountPath"),
                                "must be unique: another mount has this path");
    if (pod->mount_count == MOUNTS_LIMIT)
        return mount_refuse(place, node, path, "more mounts than muster local makes (256)");
    int number = find_volume(place, claim ? claim : volume, claim ? NULL : PATH_INDEX(volumes, at), err);
    if (number < 0)
        return number < -1 ? -1 : 0;
    int got = read_sub_path(place, node, &sub_path, err);
    if (got <= 0)
        return got < 0 ? -1
                       : mount_refuse(place, node, PATH_FIELD(path, "subPath"),
                                      "a path inside the volume is needed: relative and without ..");
    const struct local_volume *found = &place->volumes->list[number];
    bool read_only = is_true(tree_get(node, "readOnly")) || found->type == LOCAL_VOLUME_FILES ||
                     is_true(tree_get(tree_get(volume, "persistentVolumeClaim"), "readOnly"));
    return append_mount(
        pod, (struct local_mount){number, take_pointer(&clean), take_pointer(&sub_path), read_only}, err);
}

int pod_volumes(const struct volumes_place *place, struct local_pod *pod, struct muster_error *err)
{
    const struct tree_node *list = tree_get(place->container->container, "volumeMounts");
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++)
        if (add_mount(place, list->items[i],
                      PATH_INDEX(PATH_FIELD(place->container->path, "volumeMounts"), i), pod, err) < 0)
            return -1;
    return 0;
}
