/* cluster_volumes.c - see cluster.h: which of a job's volumes this machine can mount, and a pod's mounts. One
 * volume that cannot be mounted costs that one alone. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "launcher/local/job/job.h"
#include "launcher/local/run/cluster.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

/* --- paths of the host --- */

enum { FOLDER_MODE = 0755, FILE_MODE = 0644 };

/* The needs of each type. */
static const struct {
    mode_t format; /* 0: anything */
    const char *name;
    bool make;
} needs[LOCAL_HOST_TYPES] = {
    [LOCAL_HOST_ANY] = {0, "", false},
    [LOCAL_HOST_DIRECTORY_OR_CREATE] = {S_IFDIR, "a folder", true},
    [LOCAL_HOST_DIRECTORY] = {S_IFDIR, "a folder", false},
    [LOCAL_HOST_FILE_OR_CREATE] = {S_IFREG, "a file", true},
    [LOCAL_HOST_FILE] = {S_IFREG, "a file", false},
    [LOCAL_HOST_SOCKET] = {S_IFSOCK, "a Unix socket", false},
    [LOCAL_HOST_CHAR_DEVICE] = {S_IFCHR, "a character device", false},
    [LOCAL_HOST_BLOCK_DEVICE] = {S_IFBLK, "a block device", false},
};

static int host_path_make(const char *path, enum local_host_type type, struct muster_error *err)
{
    if (needs[type].format == S_IFDIR)
        return io_make_directories(path, FOLDER_MODE, err);
    scope_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    return fd < 0 ? error_errno(err, "cannot make the hostPath %s", path) : 0;
}

/* Makes what *OrCreate asks for. MUSTER_E_INVALID: something else is at the path, or nothing where the type
 * needs it, so that a cluster would not start the pod. MUSTER_E_NOT_FOUND, MUSTER_E_IO: this machine lacks
 * it. */
static int host_path_prepare(const char *path, enum local_host_type type, struct muster_error *err)
{
    struct stat status;
    if (stat(path, &status) == 0) {
        if (!needs[type].format || (status.st_mode & S_IFMT) == needs[type].format)
            return 0;
        return error_set(err, MUSTER_E_INVALID, "the hostPath %s is not %s, which its type %s needs", path,
                         needs[type].name, local_host_type_name(type));
    }
    bool absent = errno == ENOENT || errno == ENOTDIR;
    if (!absent)
        return error_errno(err, "cannot look at the hostPath %s", path);
    if (needs[type].make)
        return host_path_make(path, type, err);
    if (type == LOCAL_HOST_ANY)
        return error_set(err, MUSTER_E_NOT_FOUND, "the hostPath %s does not exist on this machine", path);
    return error_set(err, MUSTER_E_INVALID,
                     "the hostPath %s does not exist on this machine, and its type %s needs %s there", path,
                     local_host_type_name(type), needs[type].name);
}

/* --- volumes --- */

enum { OWN_MOUNTS = 2, ALL = -1 };

static bool hides(const struct local_mount *mounts, int count, const char *path)
{
    const char *rest;
    return local_mount_of(mounts, count, path, &rest) != NULL;
}

static int cluster_no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory for a pod's mounts");
}

/* The pod's own mounts (only: a single one), then needed files of ours that a mount hides. */
static int fill_requests(const struct cluster *cluster, int pod, int only, struct mount_request *requests,
                         int *count, struct text_list *sources, struct muster_error *err)
{
    const struct local_pod *spec = &cluster->job->pods[pod];
    const char *const own[OWN_MOUNTS] = {cluster->folder, cluster->program};
    for (int i = 0; i < spec->mount_count; i++) {
        const struct local_mount *mount = &spec->mounts[i];
        const struct local_volume *volume = &cluster->job->volumes.list[mount->volume];
        if (cluster->states[mount->volume].verdict != VOLUME_USED || (only != ALL && only != i))
            continue;
        struct mount_request *request = &requests[(*count)++];
        *request = (struct mount_request){
            .to = mount->path, .read_only = mount->read_only, .bytes = volume->size_limit};
        if (volume->type == LOCAL_VOLUME_MEMORY)
            continue;
        char *source = volume_folders_source(&cluster->volumes, pod, mount, err);
        if (!source || text_list_take(sources, source) < 0)
            return source ? cluster_no_memory(err) : -1;
        request->from = source;
    }
    for (int i = 0; i < OWN_MOUNTS; i++)
        if (hides(spec->mounts, spec->mount_count, own[i]))
            requests[(*count)++] = (struct mount_request){.from = own[i], .to = own[i]};
    return 0;
}

static int plan_mounts(const struct cluster *cluster, int pod, int only, struct mount_plan *plan,
                       struct muster_error *err)
{
    int count = 0;
    scope_text_list sources = {0};
    scope_free struct mount_request *requests =
        mem_calloc((size_t)cluster->job->pods[pod].mount_count + OWN_MOUNTS, sizeof *requests);
    *plan = (struct mount_plan){0};
    if (!requests)
        return cluster_no_memory(err);
    if (fill_requests(cluster, pod, only, requests, &count, &sources, err) < 0)
        return -1;
    return mount_plan_make(requests, count, cluster->stage, plan, err);
}

int cluster_plan_mounts(const struct cluster *cluster, int pod, struct mount_plan *plan,
                        struct muster_error *err)
{
    return plan_mounts(cluster, pod, ALL, plan, err);
}

int cluster_check_volumes(const struct cluster *cluster, int pod, struct muster_error *err)
{
    const struct local_pod *spec = &cluster->job->pods[pod];
    for (int i = 0; i < spec->mount_count; i++) {
        const struct volume_state *state = &cluster->states[spec->mounts[i].volume];
        if (state->verdict == VOLUME_REFUSED)
            return error_set(err, MUSTER_E_INVALID, "the volume %s: %s",
                             cluster->job->volumes.list[spec->mounts[i].volume].name, state->why);
    }
    return 0;
}

/* --- possible mounts --- */

static int set_state(struct cluster *cluster, int volume, enum volume_verdict verdict, char *why,
                     struct muster_error *err)
{
    struct volume_state *state = &cluster->states[volume];
    mem_free(state->why);
    *state = (struct volume_state){verdict, why};
    return why ? 0 : cluster_no_memory(err);
}

/* Whether a child can make the pod's mounts (only: a single one); why has the obstacle. */
static bool permits(const struct cluster *cluster, int pod, int only, struct muster_error *why)
{
    struct mount_plan __attribute__((cleanup(mount_plan_free))) plan = {0};
    if (plan_mounts(cluster, pod, only, &plan, why) < 0)
        return false;
    if (pod_isolation_permits(&cluster->isolation, &plan))
        return true;
    (void)error_set(why, MUSTER_E_IO, "%s", strerror(errno));
    return false;
}

/* Where a pod's mounts cannot be made together, each is tried alone, and failing ones are left out. */
static int examine_pod(struct cluster *cluster, int pod, struct muster_error *err)
{
    const struct local_pod *spec = &cluster->job->pods[pod];
    struct muster_error why = {0};
    if (volume_folders_renew(&cluster->volumes, pod, err) < 0)
        return -1;
    if (permits(cluster, pod, ALL, &why))
        return 0;
    for (int i = 0; i < spec->mount_count; i++) {
        const struct local_mount *mount = &spec->mounts[i];
        if (cluster->states[mount->volume].verdict != VOLUME_USED || permits(cluster, pod, i, &why))
            continue;
        if (why.code == MUSTER_E_NOMEM)
            return cluster_no_memory(err);
        if (set_state(cluster, mount->volume, VOLUME_LEFT_OUT,
                      mem_printf("it cannot be mounted at %s: %s", mount->path, why.text), err) < 0)
            return -1;
    }
    return 0;
}

/* Whether this pod is the first of its template: the others mount the same. */
static bool is_first(const struct local_job *job, int pod)
{
    const struct local_pod *one = &job->pods[pod], *before = pod ? one - 1 : NULL;
    if (!before)
        return true;
    return job->groups ? job->groups[one->group].number != job->groups[before->group].number
                       : one->type != before->type;
}

/* Some machines permit names and no mounts: a folder of our own is tried. */
static int try_mounting(struct cluster *cluster, struct muster_error *err)
{
    struct mount_plan __attribute__((cleanup(mount_plan_free))) plan = {0};
    const struct mount_request own = {.from = cluster->commands, .to = cluster->stage};
    if (mount_plan_make(&own, 1, cluster->stage, &plan, err) < 0)
        return -1;
    cluster->mounts = pod_isolation_permits(&cluster->isolation, &plan);
    if (!cluster->mounts)
        (void)error_errno(&cluster->why_not, "mount");
    return 0;
}

int cluster_examine_volumes(struct cluster *cluster, struct muster_error *err)
{
    const struct local_job *job = cluster->job;
    if (!job->volumes.count)
        return 0;
    cluster->states = mem_calloc((size_t)job->volumes.count, sizeof *cluster->states);
    if (!cluster->states)
        return cluster_no_memory(err);
    for (int i = 0; i < cluster->job->volumes.count; i++) {
        const struct local_volume *volume = &cluster->job->volumes.list[i];
        struct muster_error why = {0};
        if (volume->type != LOCAL_VOLUME_HOST ||
            host_path_prepare(volume->source, volume->host_type, &why) == 0)
            continue;
        enum volume_verdict verdict = why.code == MUSTER_E_INVALID ? VOLUME_REFUSED : VOLUME_LEFT_OUT;
        if (set_state(cluster, i, verdict, mem_strdup(why.text), err) < 0)
            return -1;
    }
    if (cluster->isolation.kind == POD_ISOLATION_NONE)
        return 0;
    if (try_mounting(cluster, err) < 0)
        return -1;
    if (!cluster->mounts)
        return 0;
    if (volume_folders_make(&cluster->volumes, err) < 0)
        return -1;
    for (int i = 0; i < job->pod_count; i++)
        if (is_first(job, i) && examine_pod(cluster, i, err) < 0)
            return -1;
    return 0;
}
