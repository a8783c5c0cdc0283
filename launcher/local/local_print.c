/* local_print.c - see local_internal.h. */
#include "launcher/local/local_internal.h"

#include <string.h>

static const char *type_name(enum local_replica_type type)
{
    return type == LOCAL_MASTER ? "Master" : "Worker";
}

/* For a Job: its own name, or the replicated job's. */
static const char *replica_name(const struct local_job *job, const struct local_pod *pod)
{
    if (!job->groups)
        return type_name(pod->type);
    const struct local_group *group = &job->groups[pod->group];
    return *group->replicated ? group->replicated : group->name;
}

/* --- JSON --- */

static void add_pod(const struct local_job *job, const struct local_pod *pod, struct buffer *out)
{
    buffer_text(out, "{\"name\": ");
    buffer_json_string(out, pod->name);
    buffer_text(out, ", \"replica_type\": ");
    buffer_json_string(out, replica_name(job, pod));
    buffer_printf(out, ", \"index\": %d, \"hostname\": ", pod->index);
    buffer_json_string(out, pod->hostname);
    buffer_text(out, ", \"env\": {");
    for (char *const *entry = pod->env; entry && *entry; entry++) {
        size_t name = strcspn(*entry, "=");
        buffer_text(out, entry == pod->env ? "" : ", ");
        struct buffer copy = {0};
        buffer_append(&copy, *entry, name);
        if (copy.failed)
            out->failed = true;
        else
            buffer_json_string(out, copy.data ? copy.data : "");
        buffer_free(&copy);
        buffer_text(out, ": ");
        buffer_json_string(out, *entry + name + 1);
    }
    buffer_text(out, "}, \"command\": [");
    for (char *const *word = pod->command; word && *word; word++) {
        buffer_text(out, word == pod->command ? "" : ", ");
        buffer_json_string(out, *word);
    }
    buffer_text(out, "], \"mounts\": [");
    for (int i = 0; i < pod->mount_count; i++) {
        buffer_text(out, i ? ", {\"volume\": " : "{\"volume\": ");
        buffer_json_string(out, job->volumes.list[pod->mounts[i].volume].name);
        buffer_text(out, ", \"path\": ");
        buffer_json_string(out, pod->mounts[i].path);
        buffer_text(out, "}");
    }
    buffer_text(out, "]}");
}

int local_print_json(const struct local_job *job, struct buffer *out)
{
    buffer_text(out, "[");
    for (int i = 0; i < job->pod_count; i++) {
        buffer_text(out, i ? ",\n " : "");
        add_pod(job, &job->pods[i], out);
    }
    return buffer_text(out, "]\n");
}

/* --- text --- */

static void add_summary(const struct local_job *job, struct buffer *out)
{
    static const char *const cleans[] = {"None", "Running", "All"};
    buffer_printf(out, "job %s/%s:", job->namespace_, job->name);
    for (int type = 0; type < LOCAL_REPLICA_TYPES; type++)
        if (job->replicas[type].count)
            buffer_printf(out, " %d %s (restart %s),", job->replicas[type].count,
                          type_name((enum local_replica_type)type),
                          local_policy_name(job->replicas[type].restart_policy));
    for (int i = 0; i < job->group_count; i++)
        buffer_printf(out, " Job %s with %d pods (restart %s, backoffLimit %lld),", job->groups[i].name,
                      job->groups[i].count, local_policy_name(job->groups[i].restart_policy),
                      (long long)job->groups[i].backoff_limit);
    if (job->max_restarts)
        buffer_printf(out, " %d restarts of all,", job->max_restarts);
    if (job->elastic)
        buffer_printf(out, " elastic %d:%d,", job->min_replicas, job->max_replicas);
    if (job->backoff_limit >= 0)
        buffer_printf(out, " backoffLimit %lld,", (long long)job->backoff_limit);
    if (job->active_deadline_s >= 0)
        buffer_printf(out, " %lld s at most,", (long long)job->active_deadline_s);
    if (job->ttl_s >= 0)
        buffer_printf(out, " deleted %lld s after its end,", (long long)job->ttl_s);
    if (!job->groups)
        buffer_printf(out, " port %d, cleanPodPolicy %s", job->port, cleans[job->clean_policy]);
    buffer_text(out, job->suspended ? ", suspended\n" : "\n");
}

int local_print_text(const struct local_job *job, struct buffer *out)
{
    add_summary(job, out);
    for (int i = 0; i < job->pod_count; i++) {
        const struct local_pod *pod = &job->pods[i];
        buffer_printf(out, "\npod %s: %s %d, address %s, %d GPUs, grace %.15g s", pod->name,
                      replica_name(job, pod), pod->index, pod->address, pod->gpus, pod->grace_s);
        if (strcmp(pod->name, pod->hostname))
            buffer_printf(out, ", host name %s", pod->hostname);
        if (pod->working_dir)
            buffer_printf(out, ", in %s", pod->working_dir);
        buffer_text(out, "\n  command:");
        for (char *const *word = pod->command; word && *word; word++) {
            buffer_text(out, " ");
            buffer_shell_word(out, *word);
        }
        buffer_text(out, pod->command ? "\n" : " (the image's, unknown here)\n");
        for (int k = 0; k < pod->mount_count; k++)
            buffer_printf(out, "  %s is the volume %s%s\n", pod->mounts[k].path,
                          job->volumes.list[pod->mounts[k].volume].name,
                          pod->mounts[k].read_only ? " (read-only)" : "");
        for (char *const *entry = pod->env; entry && *entry; entry++)
            buffer_printf(out, "  %s\n", *entry);
    }
    return out->failed ? -1 : 0;
}
