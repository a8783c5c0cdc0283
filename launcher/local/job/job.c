/* job.c - see job.h. */
#include "launcher/local/job/job.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text_list.h"

static void local_mounts_free(struct local_mount *mounts, int count);

const char *local_kind_name(enum local_kind kind)
{
    static const char *const names[] = {"PyTorchJob", "Job", "JobSet", "TrainJob"};
    return names[kind];
}

const char *local_kind_success(enum local_kind kind)
{
    static const char *const names[] = {"Succeeded", "Complete", "Completed", "Complete"};
    return names[kind];
}

enum local_restart_policy local_job_policy(const struct local_job *job, int pod)
{
    const struct local_pod *one = &job->pods[pod];
    return job->groups ? job->groups[one->group].restart_policy : job->replicas[one->type].restart_policy;
}

const char *local_policy_name(enum local_restart_policy policy)
{
    static const char *const names[] = {"OnFailure", "Always", "Never", "ExitCode"};
    return names[policy];
}

const char *local_restart_action_name(enum local_restart_action action)
{
#define RESTART_NAME(symbol, name, meaning) [symbol] = (name),
    static const char *const names[] = {LOCAL_RESTARTS(RESTART_NAME)};
    return names[action];
}

const char *local_failure_name(enum local_failure failure)
{
#define FAILURE_NAME(symbol, name) [symbol] = (name),
    static const char *const names[] = {LOCAL_FAILURES(FAILURE_NAME)};
    return names[failure];
}

/* --- attempts --- */

static const char set_mark[] = LOCAL_ATTEMPT_SET, job_mark[] = LOCAL_ATTEMPT_JOB;

bool local_has_attempt(const char *text)
{
    return strstr(text, set_mark) || strstr(text, job_mark);
}

char *local_attempt_text(const char *text, int set_attempt, int job_attempt)
{
    scope_buffer out = {0};
    buffer_text(&out, "");
    while (*text) {
        bool set = !strncmp(text, set_mark, sizeof set_mark - 1);
        if (set || !strncmp(text, job_mark, sizeof job_mark - 1)) {
            buffer_printf(&out, "%d", set ? set_attempt : job_attempt);
            text += set ? sizeof set_mark - 1 : sizeof job_mark - 1;
        } else {
            buffer_append(&out, text++, 1);
        }
    }
    return buffer_take(&out);
}

/* --- memory --- */

static void free_groups(struct local_job *job)
{
    for (int i = 0; i < job->group_count; i++) {
        struct local_group *group = &job->groups[i];
        for (int k = 0; k < group->rule_count; k++)
            mem_free(group->rules[k].codes);
        mem_free(group->rules);
        for (int k = 0; k < group->success_count; k++)
            mem_free(group->success[k].indexes);
        mem_free(group->success);
        mem_free(group->name);
        mem_free(group->replicated);
    }
    mem_free(job->groups);
    for (int i = 0; i < job->restart_rule_count; i++) {
        mem_free(job->restart_rules[i].name);
        mem_free(job->restart_rules[i].targets);
        text_list_free_items(job->restart_rules[i].patterns);
    }
    mem_free(job->restart_rules);
}

void local_job_free(struct local_job *job)
{
    if (!job)
        return;
    for (int i = 0; i < job->pod_count + job->spare_count; i++) {
        struct local_pod *pod = &job->pods[i];
        mem_free(pod->name);
        mem_free(pod->hostname);
        mem_free(pod->own_hostname);
        mem_free(pod->subdomain);
        local_mounts_free(pod->mounts, pod->mount_count);
        mem_free(pod->address);
        mem_free(pod->working_dir);
        text_list_free_items(pod->aliases);
        text_list_free_items(pod->env);
        text_list_free_items(pod->command);
        text_list_free_items(pod->env_of_attempt);
        text_list_free_items(pod->command_of_attempt);
    }
    mem_free(job->pods);
    mem_free(job->name);
    mem_free(job->namespace_);
    mem_free(job->warnings);
    mem_free(job->apart);
    free_groups(job);
    local_volumes_free(&job->volumes);
    *job = (struct local_job){0};
}

/* --- volumes --- */

const struct local_file *local_volume_file(const struct local_volume *volume, const char *path)
{
    for (size_t i = 0; i < volume->file_count; i++)
        if (!strcmp(volume->files[i].path, path))
            return &volume->files[i];
    return NULL;
}

const struct local_mount *local_mount_of(const struct local_mount *mounts, int count, const char *path,
                                         const char **rest)
{
    const struct local_mount *found = NULL;
    size_t longest = 0;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(mounts[i].path);
        bool inside = !strncmp(path, mounts[i].path, length) && (!path[length] || path[length] == '/');
        if (!inside || length < longest)
            continue;
        longest = length;
        found = &mounts[i];
        *rest = path + length + strspn(path + length, "/");
    }
    return found;
}

const char *local_host_type_name(enum local_host_type type)
{
    static const char *const names[LOCAL_HOST_TYPES] = {
        "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"};
    return names[type];
}

void local_volumes_free(struct local_volumes *volumes)
{
    for (int i = 0; i < volumes->count; i++) {
        struct local_volume *volume = &volumes->list[i];
        for (size_t k = 0; k < volume->file_count; k++) {
            mem_free(volume->files[k].path);
            mem_free(volume->files[k].data);
        }
        mem_free(volume->files);
        mem_free(volume->name);
        mem_free(volume->source);
    }
    mem_free(volumes->list);
    *volumes = (struct local_volumes){0};
}

static void local_mounts_free(struct local_mount *mounts, int count)
{
    for (int i = 0; i < count; i++) {
        mem_free(mounts[i].path);
        mem_free(mounts[i].sub_path);
    }
    mem_free(mounts);
}

/* --- the network --- */

int network_claim(int *fd)
{
    scope_close int claim = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *fd = -1;
    for (int x = NETWORK_FIRST; claim >= 0 && x <= NETWORK_LAST; x++) {
        struct sockaddr_un name = {.sun_family = AF_UNIX};
        int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "muster-local-127.%d", x);
        if (bind(claim, (struct sockaddr *)&name,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0) {
            *fd = take_fd(&claim);
            return x;
        }
    }
    return NETWORK_FIRST;
}
