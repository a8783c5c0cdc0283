/* cluster.c - see cluster.h. */
#include "launcher/local/run/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/host/machine.h"
#include "launcher/local/job/python_shim.h"
#include "launcher/local/run/pod_env.h"
#include "launcher/local/run/volume_folders.h"
#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/visible_devices.h"

enum { HOSTS_LIMIT = 1 << 20 };

/* --- the folder --- */

/* The link's name follows "bin/". */
static const char commands_name[] = "bin", hosts_name[] = "hosts", stage_name[] = "stage";
static const char *const link_paths[] = {"bin/torchrun", "bin/python", "bin/python3"};

static char *join(const char *folder, const char *name, struct muster_error *err)
{
    char *path = mem_printf("%s/%s", folder, name);
    if (!path)
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    return path;
}

static int make_folder(struct cluster *cluster, struct muster_error *err)
{
    char base[PATH_MAX]; /* pods may run anywhere */
    temporary_folder_find(&cluster->temporary);
    if (!realpath(cluster->temporary.path, base))
        return error_errno(err, "cannot use the folder %s (TMPDIR sets it)", cluster->temporary.path);
    scope_free char *path = join(base, "muster_local_XXXXXX", err);
    if (!path)
        return -1;
    if (!mkdtemp(path))
        return error_errno(err, "cannot make a folder like %s (TMPDIR sets where)", path);
    cluster->folder = take_pointer(&path);
    cluster->commands = join(cluster->folder, commands_name, err);
    cluster->hosts = join(cluster->folder, hosts_name, err);
    cluster->stage = join(cluster->folder, stage_name, err);
    if (!cluster->commands || !cluster->hosts || !cluster->stage)
        return -1;
    /* pods may run as any user that the command changes to */
    if (chmod(cluster->folder, 0755) < 0 || mkdir(cluster->commands, 0755) < 0 ||
        mkdir(cluster->stage, 0755) < 0)
        return error_errno(err, "cannot make %s", cluster->commands);
    return 0;
}

/* torchrun is ours even if there is none; an interpreter is only preceded, never invented. */
static int make_links(struct cluster *cluster, struct muster_error *err)
{
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length < 0)
        return error_errno(err, "cannot read /proc/self/exe");
    own[length] = '\0';
    cluster->program = mem_strdup(own);
    if (!cluster->program)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    for (size_t i = 0; i < sizeof link_paths / sizeof *link_paths; i++) {
        const char *name = link_paths[i] + sizeof commands_name;
        scope_free char *interpreter = python_shim_find(name, getenv("PATH"));
        if (python_shim_is_name(name) && !interpreter)
            continue;
        scope_free char *path = join(cluster->folder, link_paths[i], err);
        if (!path)
            return -1;
        if (symlink(own, path) < 0)
            return error_errno(err, "cannot make the link %s", path);
    }
    return 0;
}

static int write_hosts(struct cluster *cluster, struct muster_error *err)
{
    scope_buffer machine = {0}, text = {0};
    if (io_read_file("/etc/hosts", HOSTS_LIMIT, &machine, NULL) < 0)
        buffer_clear(&machine); /* then there is nothing in it to keep */
    cluster->machine_hosts = mem_strdup(machine.data ? machine.data : "");
    if (!cluster->machine_hosts || pod_env_hosts(cluster->job, -1, cluster->machine_hosts, &text) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the hosts file");
    return io_write_file_atomic(cluster->hosts, text.data, text.length, 0644, err);
}

char *cluster_hosts(const struct cluster *cluster, int pod, struct muster_error *err)
{
    scope_buffer text = {0};
    bool own = cluster->job->groups || cluster->job->pods[pod].aliases;
    scope_free char *path = own ? mem_printf("%s-%d", cluster->hosts, pod) : mem_strdup(cluster->hosts);
    if (!path || (own && pod_env_hosts(cluster->job, pod, cluster->machine_hosts, &text) < 0)) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the hosts file");
        return NULL;
    }
    if (own && io_write_file_atomic(path, text.data, text.length, 0644, err) < 0)
        return NULL;
    return take_pointer(&path);
}

/* --- GPUs --- */

/* --- life --- */

int cluster_set_up(struct cluster *cluster, const struct local_job *job, const struct local_options *options,
                   struct muster_error *err)
{
    *cluster = (struct cluster){.job = job};
    if (descendants_make_id(cluster->id) < 0)
        return error_errno(err, "getrandom");
    const char *visible = options->gpus ? options->gpus : getenv("CUDA_VISIBLE_DEVICES");
    struct machine machine = {0};
    if (gpu_wanted(cluster->job) || (options->gpus && gpu_claimed(cluster->job)))
        machine_read(visible, &machine); /* querying the driver takes its time */
    if (gpu_divide(cluster->job, visible, machine.gpus, options->gpu_shortage_allowed, &cluster->gpus, err) <
            0 ||
        make_folder(cluster, err) < 0 || make_links(cluster, err) < 0 || write_hosts(cluster, err) < 0) {
        cluster_tear_down(cluster);
        return -1;
    }
    cluster->isolation = pod_isolation_probe(cluster->hosts);
    cluster->volumes = (struct volume_folders){job, cluster->folder, options->volumes};
    if (cluster_examine_volumes(cluster, err) < 0) {
        cluster_tear_down(cluster);
        return -1;
    }
    return 0;
}

/* A missing file, or another user's, is not a failure: the folder is in a temporary place. */
void cluster_remove_folder(const void *context)
{
    const struct cluster *cluster = context;
    if (!cluster->folder)
        return;
    folder_remove_content(cluster->folder);
    (void)rmdir(cluster->folder);
}

void cluster_tear_down(struct cluster *cluster)
{
    cluster_remove_folder(cluster);
    mem_free(cluster->folder);
    mem_free(cluster->commands);
    mem_free(cluster->hosts);
    mem_free(cluster->stage);
    mem_free(cluster->program);
    mem_free(cluster->machine_hosts);
    text_list_free(&cluster->gpus);
    for (int i = 0; cluster->states && i < cluster->job->volumes.count; i++)
        mem_free(cluster->states[i].why);
    mem_free(cluster->states);
    *cluster = (struct cluster){0};
}

/* --- GPUs --- */

int gpu_wanted(const struct local_job *job)
{
    int wanted = 0;
    for (int i = 0; i < job->pod_count; i++)
        wanted += job->pods[i].gpus;
    return wanted;
}

bool gpu_claimed(const struct local_job *job)
{
    for (int i = 0; i < job->pod_count; i++)
        if (job->pods[i].claims)
            return true;
    return false;
}

/* GPUs of a pod with resource claims and no limits: an even share of the remaining devices. */
static int share_of_claims(const struct local_job *job, int available)
{
    int pods = 0, left = available - gpu_wanted(job);
    for (int i = 0; i < job->pod_count; i++)
        pods += job->pods[i].claims && !job->pods[i].gpus;
    return pods && left > 0 ? left / pods : 0;
}

int gpu_divide(const struct local_job *job, const char *visible, int available, bool shortage_allowed,
               struct text_list *out, struct muster_error *err)
{
    int wanted = gpu_wanted(job), share = visible ? share_of_claims(job, available) : 0, taken = 0;
    if (wanted > available && !shortage_allowed)
        return error_set(err, MUSTER_E_LIMIT,
                         "the pods of %s request %d GPUs and this machine has %d (%s); lower "
                         "limits.nvidia.com/gpu, or let the last pods run without by --allow-gpu-shortage",
                         job->name, wanted, available,
                         visible ? "as limited by CUDA_VISIBLE_DEVICES or --gpus" : "all of them");
    for (int i = 0; i < job->pod_count + job->spare_count; i++) {
        scope_buffer list = {0};
        int own = job->pods[i].claims && !job->pods[i].gpus ? share : job->pods[i].gpus;
        for (int k = 0; k < own && taken < available; k++) {
            if (k)
                buffer_text(&list, ",");
            /* A device's name, appended; visible NULL: its number. */
            int number = taken++;
            size_t length = 0;
            const char *entry = visible ? visible_devices_entry(visible, number, &length) : NULL;
            if (entry)
                buffer_append(&list, entry, length);
            else
                buffer_printf(&list, "%d", number);
        }
        if (text_list_take(out, buffer_take(&list)) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory for the lists of GPUs");
    }
    return 0;
}
