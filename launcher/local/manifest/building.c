/* building.c - see building.h: one pod from its source. */
#include "launcher/local/manifest/building.h"

#include <string.h>

#include "launcher/local/job/job.h"
#include "launcher/local/pod/container_check.h"
#include "launcher/local/pod/schema.h"
#include "launcher/local/pod/volumes.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { JOB_BYTES_LIMIT = 64 << 20, ADDRESSES_IN_A_ROW = 250, GRACE_S = 30 };

int building_no_memory(const struct building *b)
{
    return error_set(b->err, MUSTER_E_NOMEM, "no memory");
}

int building_reserve(struct building *b, int64_t more)
{
    int64_t total = b->job->pod_count + b->job->spare_count + more;
    struct local_pod *longer = mem_realloc(b->job->pods, (size_t)total + 1, sizeof *longer);
    if (!longer)
        return building_no_memory(b);
    b->job->pods = longer;
    memset(longer + b->room, 0, (size_t)(total + 1 - b->room) * sizeof *longer);
    b->room = total + 1;
    return 0;
}

/* Containers before the main one; with restartPolicy Always they go on next to it. */
static void note_init_containers(const struct building *b, const struct pod_source *source)
{
    const struct tree_node *list = tree_get(pod_source_spec(source), "initContainers");
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
        const char *name = tree_text(tree_get(list->items[i], "name")),
                   *policy = tree_text(tree_get(list->items[i], "restartPolicy"));
        bool sidecar = policy && !strcmp(policy, "Always");
        problems_add(b->problems, PROBLEM_NOTE, source->file, NULL, NULL,
                     "initContainers: the %s %.63s is not run%s", sidecar ? "sidecar" : "container",
                     name ? name : "without a name", sidecar ? "" : "; its files must be here");
    }
}

/* Devices by resource claims: how many a claim stands for is known to the cluster's driver alone. */
static void note_claims(const struct building *b, const struct pod_source *source)
{
    const struct tree_node *claims = tree_get(pod_source_spec(source), "resourceClaims");
    for (size_t i = 0; claims && claims->kind == TREE_LIST && i < claims->count; i++) {
        const char *name = tree_text(tree_get(claims->items[i], "name")),
                   *of = tree_text(tree_get(claims->items[i], "resourceClaimTemplateName"));
        if (!of)
            of = tree_text(tree_get(claims->items[i], "resourceClaimName"));
        problems_add(b->problems, PROBLEM_NOTE, source->file, NULL, NULL,
                     "resourceClaims: the devices of %.63s (%.63s) are not counted; --gpus=LIST shares its "
                     "GPUs among the pods that have claims",
                     name ? name : "a claim", of ? of : "no claim is named");
    }
}

void building_note_containers(const struct building *b, const struct pod_source *source)
{
    note_init_containers(b, source);
    note_claims(b, source);
    container_check(b->problems, source);
    const struct tree_node *list = tree_get(pod_source_spec(source), "containers");
    const char *own = tree_text(tree_get(pod_source_container(source), "name"));
    const struct tree_node *policy = tree_get(pod_source_container(source), "restartPolicy");
    if (policy)
        problems_add(b->problems, PROBLEM_NOT_SUPPORTED, source->file, policy,
                     PATH_FIELD(PATH_FIELD(PATH_FIELD(source->path, "spec"), "containers"), "restartPolicy"),
                     "muster local does not emulate it: a container restarts by the pod's policy alone");
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
        const char *name = tree_text(tree_get(list->items[i], "name"));
        if (i != source->container)
            problems_add(b->problems, PROBLEM_NOTE, source->file, NULL, NULL,
                         "the container %.63s is not run next to %.63s", name ? name : "without a name",
                         own ? own : "it");
    }
}

int building_name(struct building *b, const char **name, char **owned)
{
    const struct tree_node *metadata = tree_get(b->object->node, "metadata");
    const char *stem = tree_text(tree_get(metadata, "generateName"));
    *name = tree_text(tree_get(metadata, "name"));
    *owned = !*name && stem ? mem_printf("%slocal", stem) : mem_strdup(*name ? *name : "");
    if (!*owned)
        return building_no_memory(b);
    *name = *owned;
    return 0;
}

static char *copy(const char *text)
{
    return text && *text ? mem_strdup(text) : NULL;
}

/* Texts that depend on the attempt become the texts of the first; *marked keeps them. -1 without memory. */
static int settle_attempts(char **texts, char ***marked)
{
    scope_text_list copies = {0};
    bool varies = false;
    for (char *const *text = texts; text && *text; text++)
        varies |= local_has_attempt(*text);
    if (!varies)
        return 0;
    for (char *const *text = texts; *text; text++)
        if (text_list_take(&copies, mem_strdup(*text)) < 0)
            return -1;
    for (char **text = texts; *text; text++) {
        char *first = local_attempt_text(*text, 0, 0);
        if (!first)
            return -1;
        mem_free(*text);
        *text = first;
    }
    *marked = copies.items;
    copies = (struct text_list){0};
    return 0;
}

static int fill_container(struct building *b, const struct pod_source *source, const struct path *path,
                          struct local_pod *pod)
{
    const struct container_place place = {.source = source,
                                          .documents = b->documents,
                                          .machine = &b->settings->machine,
                                          .extra = b->settings->env,
                                          .file = source->file,
                                          .container = pod_source_container(source),
                                          .path = path};
    struct env_map env = {0};
    struct text_list variables = {0}, command = {0};
    const struct volumes_place volumes = {&place, &env, &b->job->volumes, &b->bytes, b->problems};
    int result = container_env(&place, &env, b->problems, b->err);
    if (!result && (env_map_list(&env, &variables) < 0 ||
                    pod_command(&b->settings->command, source, path, &env, &command, b->problems) < 0))
        result = building_no_memory(b);
    if (!result)
        result = pod_volumes(&volumes, pod, b->err);
    b->bytes += env.bytes;
    for (size_t i = 0; i < command.count; i++)
        b->bytes += strlen(command.items[i]);
    pod->env = variables.items;
    pod->command = command.items;
    env_map_free(&env);
    for (int i = 0; !result && i < pod->mount_count; i++)
        if (pod->mounts[i].sub_path && local_has_attempt(pod->mounts[i].sub_path)) {
            char *first = local_attempt_text(pod->mounts[i].sub_path, 0, 0);
            mem_free(pod->mounts[i].sub_path);
            pod->mounts[i].sub_path = first;
            result = first ? 0 : building_no_memory(b);
        }
    if (!result && (settle_attempts(pod->env, &pod->env_of_attempt) < 0 ||
                    settle_attempts(pod->command, &pod->command_of_attempt) < 0))
        result = building_no_memory(b);
    return result;
}

/* hostAliases as lines of /etc/hosts. */
static int fill_aliases(const struct building *b, const struct tree_node *spec, struct local_pod *pod)
{
    const struct tree_node *list = tree_get(spec, "hostAliases");
    struct text_list lines = {0};
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
        const char *address = tree_text(tree_get(list->items[i], "ip"));
        const struct tree_node *names = tree_get(list->items[i], "hostnames");
        scope_buffer line = {0};
        buffer_text(&line, address ? address : "");
        for (size_t k = 0; names && names->kind == TREE_LIST && k < names->count; k++)
            buffer_printf(&line, " %s", tree_text(names->items[k]) ? tree_text(names->items[k]) : "");
        bool usable = address && line.data && !strpbrk(line.data, "\n\r");
        if (usable && text_list_take(&lines, buffer_take(&line)) < 0) {
            text_list_free(&lines);
            return building_no_memory(b);
        }
    }
    pod->aliases = lines.items;
    return 0;
}

/* hostnameOverride, and setHostnameAsFQDN, which the kernel takes up to 64 bytes of. */
static char *shown_hostname(const struct building *b, const struct pod_source *source)
{
    const struct tree_node *spec = pod_source_spec(source), *full = tree_get(spec, "setHostnameAsFQDN");
    const char *override = tree_text(tree_get(spec, "hostnameOverride"));
    if (override && *override)
        return mem_strdup(override);
    if (full && full->kind == TREE_BOOL && full->boolean && source->subdomain)
        return mem_printf("%s.%s.%s.svc.cluster.local", source->hostname, source->subdomain,
                          b->object->namespace_);
    return mem_strdup(source->hostname);
}

static int fill_pod(struct building *b, const struct pod_source *source, struct local_pod *pod)
{
    const struct tree_node *spec = pod_source_spec(source);
    const char *directory = tree_text(tree_get(pod_source_container(source), "workingDir"));
    pod->gpus = pod_source_gpus(source);
    pod->claims = tree_get(spec, "resourceClaims") &&
                  tree_get(tree_get(pod_source_container(source), "resources"), "claims");
    pod->grace_s = (double)schema_integer(spec, "terminationGracePeriodSeconds", GRACE_S);
    pod->name = mem_strdup(source->name);
    pod->hostname = mem_strdup(source->hostname);
    pod->own_hostname = shown_hostname(b, source);
    pod->address = mem_strdup(source->address);
    pod->subdomain = copy(source->subdomain);
    pod->working_dir = copy(directory);
    if (!pod->name || !pod->hostname || !pod->own_hostname || fill_aliases(b, spec, pod) < 0 ||
        !pod->address || (directory && *directory && !pod->working_dir) ||
        (source->subdomain && *source->subdomain && !pod->subdomain))
        return building_no_memory(b);
    const struct path *containers = PATH_FIELD(PATH_FIELD(source->path, "spec"), "containers");
    return fill_container(b, source, PATH_INDEX(containers, source->container), pod);
}

int building_add_pod(struct building *b, struct pod_source *source, struct local_pod **pod)
{
    const int number = b->job->pod_count + b->job->spare_count;
    *pod = &b->job->pods[number];
    b->job->pod_count++;
    mem_free(source->address);
    source->address = mem_printf("127.%d.%d.%d", b->settings->network ? b->settings->network : NETWORK_FIRST,
                                 number / ADDRESSES_IN_A_ROW, number % ADDRESSES_IN_A_ROW + 1);
    if (!source->address)
        return building_no_memory(b);
    if (fill_pod(b, source, *pod) < 0)
        return -1;
    if (b->bytes > JOB_BYTES_LIMIT)
        return error_set(b->err, MUSTER_E_LIMIT,
                         "%s: the environments, commands and files of all pods are more than %d bytes",
                         source->file, JOB_BYTES_LIMIT);
    return 0;
}
