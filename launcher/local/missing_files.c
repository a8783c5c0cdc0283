/* missing_files.c - see local_internal.h. A guess must not cry wolf: an unclear file counts as present. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/local/job/python_shim.h"
#include "launcher/local/local_internal.h"
#include "launcher/local/pod/pod_command.h"
#include "launcher/process/find_program.h"
#include "proto/base/guard.h"
#include "proto/base/text_list.h"

/* path as the pod would open it, in fresh memory, if there is no such file. NULL also without memory. */
static char *missing_path(const struct local_pod *pod, const char *path)
{
    const char *rest;
    char *full =
        *path != '/' && pod->working_dir ? mem_printf("%s/%s", pod->working_dir, path) : mem_strdup(path);
    bool mounted = full && local_mount_of(pod->mounts, pod->mount_count, full, &rest);
    if (full && !mounted && access(full, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return full;
    mem_free(full);
    return NULL;
}

static bool is_script(const char *word)
{
    size_t length = strlen(word);
    return *word != '-' && length > 3 &&
           (!strcmp(word + length - 3, ".py") || !strcmp(word + length - 3, ".sh"));
}

/* --- sh -c TEXT --- */

/* The words of one simple command. -1: the text is more than that. */
static int split_shell_text(const struct local_pod *pod, const char *text, struct text_list *out)
{
    scope_buffer expanded = {0};
    if (strpbrk(text, ";|&<>()`*?[#\n\\") || launch_expand(text, pod->env, &expanded) < 0 || !expanded.length)
        return -1;
    return pod_command_split(expanded.data, out, NULL);
}

/* --- the parts of a command --- */

static char *missing_program(const struct local_pod *pod, const char *path)
{
    const char *name = pod->command[0], *own_path = text_list_value(pod->env, "PATH");
    struct muster_error err = {0};
    if (strchr(name, '/'))
        return missing_path(pod, name);
    if (python_shim_is_name(name) || !strcmp(name, "torchrun")) /* links in front of the pod's PATH */
        return NULL;
    scope_free char *found = find_program(name, own_path ? own_path : path, &err);
    return !found && err.code == MUSTER_E_NOT_FOUND ? mem_strdup(name) : NULL;
}

char *missing_file_find(const struct local_pod *pod, const char *path, const char **kind)
{
    scope_text_list words = {0};
    char *missing = pod->working_dir ? missing_path(pod, pod->working_dir) : NULL;
    *kind = "its workingDir";
    if (missing || !pod->command || !pod->command[0])
        return missing;
    *kind = "its program";
    missing = missing_program(pod, path);
    if (missing)
        return missing;
    bool login;
    const char *text = launch_shell_text(pod->command, &login);
    if (text && split_shell_text(pod, text, &words) < 0)
        return NULL;
    *kind = "its script";
    for (char *const *word = text ? words.items : pod->command;
         *word && strcmp(*word, "-m") != 0 && strcmp(*word, "-c") != 0; word++)
        if (is_script(*word))
            return missing_path(pod, *word);
    return NULL;
}

/* --- the warnings --- */

static void describe_restarts(const struct local_job *job, const struct local_pod *pod, char *out,
                              size_t size)
{
    enum local_restart_policy policy = local_job_policy(job, (int)(pod - job->pods));
    bool restarts = policy == LOCAL_RESTART_ON_FAILURE || policy == LOCAL_RESTART_ALWAYS;
    if (restarts && job->backoff_limit < 0 && !job->groups)
        (void)snprintf(out, size, ", and restartPolicy %s restarts it without end (no backoffLimit)",
                       local_policy_name(policy));
    else
        out[0] = 0;
}

void missing_files_warn(const struct local_job *job, const struct log_sink *log)
{
    scope_free char *last = NULL;
    const char *path = getenv("PATH");
    int more = 0;
    for (int i = 0; i <= job->pod_count; i++) {
        const char *kind = NULL;
        scope_free char *missing = i < job->pod_count ? missing_file_find(&job->pods[i], path, &kind) : NULL;
        if (missing && last && !strcmp(missing, last)) {
            more++;
            continue;
        }
        if (more)
            log_warning(log, "%d more pod%s lack%s %s", more, more == 1 ? "" : "s", more == 1 ? "s" : "",
                        last);
        more = 0;
        if (!missing)
            continue;
        char restarts[120];
        describe_restarts(job, &job->pods[i], restarts, sizeof restarts);
        log_warning(
            log,
            "pod %s%s: %s %s does not exist on this machine: it will fail%s; images are not "
            "used "
            "here: put the file there, or change the path in the manifest (--env for a variable in it)",
            job->pods[i].name, job->groups ? "" : ", container pytorch", kind, missing, restarts);
        mem_free(last);
        last = take_pointer(&missing);
    }
}
