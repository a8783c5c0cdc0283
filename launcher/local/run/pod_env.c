/* pod_env.c - see pod_env.h. */
#include "launcher/local/run/pod_env.h"

#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/env_names.h"

static const char visible_devices[] = "CUDA_VISIBLE_DEVICES", usual_path[] = "/usr/local/bin:/usr/bin:/bin";

/* --- names --- */

int pod_env_hosts(const struct local_job *job, int of, const char *machine_hosts, struct buffer *out)
{
    const char *ns = job->namespace_ ? job->namespace_ : "default";
    for (char *const *alias = of >= 0 ? job->pods[of].aliases : NULL; alias && *alias; alias++)
        buffer_printf(out, "%s\n", *alias);
    for (int i = 0; i < job->pod_count + job->spare_count; i++) {
        const struct local_pod *pod = &job->pods[i];
        if (job->groups) {
            /* A Job's pod is known to others by the name in its headless service alone; the name by itself is
             * its own. */
            bool own = i == of;
            const char *sub = pod->subdomain;
            if (sub)
                buffer_printf(out, "%s %s.%s %s.%s.%s %s.%s.%s.svc %s.%s.%s.svc.cluster.local%s%s\n",
                              pod->address, pod->hostname, sub, pod->hostname, sub, ns, pod->hostname, sub,
                              ns, pod->hostname, sub, ns, own ? " " : "", own ? pod->hostname : "");
            else if (own)
                buffer_printf(out, "%s %s\n", pod->address, pod->hostname);
            continue;
        }
        buffer_printf(out, "%s %s %s.%s %s.%s.svc %s.%s.svc.cluster.local", pod->address, pod->name,
                      pod->name, ns, pod->name, ns, pod->name, ns);
        if (strcmp(pod->hostname, pod->name) != 0)
            buffer_printf(out, " %s", pod->hostname);
        buffer_text(out, "\n");
    }
    return buffer_text(out, machine_hosts);
}

/* Whether the first length bytes of text are the pod's name, alone or as the first label of a longer one. */
static bool names_pod(const struct local_pod *pod, const char *text, size_t length)
{
    size_t own = strlen(pod->name);
    return length >= own && !strncmp(text, pod->name, own) && (length == own || text[own] == '.');
}

static const struct local_pod *find_pod(const struct local_job *job, const char *text, size_t length)
{
    for (int i = 0; i < job->pod_count + job->spare_count; i++)
        if (names_pod(&job->pods[i], text, length))
            return &job->pods[i];
    return NULL;
}

int pod_env_numeric(const struct local_job *job, const char *address, char **numeric)
{
    scope_buffer out = {0};
    bool found = false;
    *numeric = NULL;
    for (const char *at = address; *at;) {
        const size_t length = strcspn(at, ":,"), whole = strcspn(at, ","), end = whole + (at[whole] == ',');
        const struct local_pod *pod = find_pod(job, at, length);
        found = found || pod;
        if (pod)
            buffer_printf(&out, "%s%.*s", pod->address, (int)(end - length), at + length);
        else
            buffer_printf(&out, "%.*s", (int)end, at);
        at += end;
    }
    if (!found)
        return 0;
    return !out.failed && (*numeric = mem_strdup(out.data)) ? 0 : -1;
}

/* --- the environment --- */

/* Variables that would put the pods into the world, or the log directory, of this process's own job. A
 * cluster's containers inherit none of them. */
static bool is_placement(const char *entry)
{
    static const char *const begins[] = {"PET_",
                                         "TORCHELASTIC_",
                                         "SLURM_",
                                         "MUSTER_ROUND=",
                                         "MUSTER_HEARTBEAT_",
                                         "MUSTER_NOTICE_FD=",
                                         "MUSTER_STORE_KEY_FD=",
                                         "MASTER_",
                                         "GROUP_",
                                         "ROLE_",
                                         "LOCAL_RANK=",
                                         "LOCAL_WORLD_SIZE=",
                                         "RANK=",
                                         "WORLD_SIZE=",
                                         "JOB_COMPLETION_INDEX="};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (!strncmp(entry, begins[i], strlen(begins[i])))
            return true;
    return false;
}

static int set_entry(struct text_list *out, const char *entry)
{
    size_t length = strcspn(entry, "=");
    if (!entry[length])
        return 0; /* no variable */
    scope_free char *name = mem_strndup(entry, length);
    return name ? text_list_set(out, name, entry + length + 1) : -1;
}

/* The pod's own texts at this attempt, in fresh memory; marked NULL: they are the same at each. -1 without
 * memory. */
static int at_attempt(const struct pod_env_place *place, char *const *texts, char *const *marked,
                      struct text_list *out)
{
    for (char *const *text = marked ? marked : texts; text && *text; text++)
        if (text_list_take(out, marked ? local_attempt_text(*text, place->set_attempt, place->job_attempt)
                                       : mem_strdup(*text)) < 0)
            return -1;
    return 0;
}

static int inherit(const struct pod_env_place *place, struct text_list *out)
{
    const struct local_pod *pod = &place->job->pods[place->pod];
    scope_text_list own = {0};
    if (at_attempt(place, pod->env, pod->env_of_attempt, &own) < 0)
        return -1;
    for (char *const *entry = place->inherited; entry && *entry; entry++)
        if (!is_placement(*entry) && set_entry(out, *entry) < 0)
            return -1;
    for (char *const *entry = own.items; entry && *entry; entry++)
        if (set_entry(out, *entry) < 0)
            return -1;
    return 0;
}

static int set_path(const struct pod_env_place *place, struct text_list *out)
{
    const char *path = text_list_value(out->items, "PATH");
    if (!place->front)
        return 0;
    scope_free char *longer = mem_printf("%s:%s", place->front, path ? path : usual_path);
    return longer ? text_list_set(out, "PATH", longer) : -1;
}

/* The pod's share, unless its manifest requests none. */
static int set_gpus(const struct pod_env_place *place, struct text_list *out)
{
    const char *own = text_list_value(place->job->pods[place->pod].env, visible_devices);
    bool none = own && (!*own || *own == '-');
    return none ? 0 : text_list_set(out, visible_devices, place->gpus);
}

/* Workers without a master get neither an address nor a rank: an agent derives both from its host name,
 * which is useless if the first one's does not resolve. */
static int set_place(const struct pod_env_place *place, struct text_list *out)
{
    const struct local_job *job = place->job;
    if (job->groups || job->replicas[LOCAL_MASTER].count || job->elastic ||
        text_list_value(out->items, "PET_MASTER_ADDR") || text_list_value(out->items, "PET_RDZV_ENDPOINT"))
        return 0;
    scope_free char *rank = mem_printf("%d", job->pods[place->pod].index);
    scope_free char *port = mem_printf("%d", job->port);
    return rank && port && text_list_set(out, "PET_MASTER_ADDR", job->pods[0].address) == 0 &&
                   text_list_set(out, "PET_MASTER_PORT", port) == 0 &&
                   text_list_set(out, "PET_NODE_RANK", rank) == 0
               ? 0
               : -1;
}

/* If names do not resolve: the variables that contain pods' names. */
static int set_addresses(const struct pod_env_place *place, struct text_list *out)
{
    static const char *const names[] = {"MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = text_list_value(out->items, names[i]);
        scope_free char *address = NULL;
        if ((value && pod_env_numeric(place->job, value, &address) < 0) ||
            (address && text_list_set(out, names[i], address) < 0))
            return -1;
    }
    if (set_place(place, out) < 0)
        return -1;
    return text_list_set(out, "MUSTER_HOSTNAME", place->job->pods[place->pod].hostname);
}

/* All loopback addresses are every pod's own, so that interfaces do not show which pod serves an endpoint:
 * each agent gets its own address. And it listens there alone, as in a network of its own: one port serves
 * every pod, and every run. */
static int set_own_address(const struct pod_env_place *place, struct text_list *out)
{
    static const char *const names[] = {"PET_LOCAL_ADDR", "MUSTER_BIND_ADDR", "MUSTER_METRICS_ADDR"};
    const struct local_pod *pod = &place->job->pods[place->pod];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!text_list_value(pod->env, names[i]) && text_list_set(out, names[i], pod->address) < 0)
            return -1;
    return 0;
}

static const char *own_hostname(const struct local_pod *pod)
{
    return pod->own_hostname ? pod->own_hostname : pod->hostname;
}

int pod_env_build(const struct pod_env_place *place, struct text_list *out)
{
    const struct local_pod *pod = &place->job->pods[place->pod];
    bool done = inherit(place, out) == 0 && set_path(place, out) == 0 && set_gpus(place, out) == 0 &&
                set_own_address(place, out) == 0 && text_list_set(out, "HOSTNAME", own_hostname(pod)) == 0 &&
                text_list_set(out, ENV_AGENT_ID, place->agent_ids) == 0 &&
                (place->named || set_addresses(place, out) == 0);
    return done ? 0 : -1;
}

/* --- the command --- */

/* Whether the flag, of length bytes, is about a host: --master-addr, --rdzv_endpoint, --host. */
static bool is_address_flag(const char *flag, size_t length)
{
    static const char *const ends[] = {"addr", "endpoint", "host"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i]);
        if (flag[0] == '-' && length > end && !strncmp(flag + length - end, ends[i], end))
            return true;
    }
    return false;
}

/* The argument with an address if it is one: the value of such a flag, after '=' or by itself. NULL
 * without memory. */
static char *numeric_argument(const struct pod_env_place *place, const char *before, const char *argument)
{
    size_t flag = strcspn(argument, "=");
    scope_free char *value = NULL;
    if (place->named)
        return mem_strdup(argument);
    if (before && is_address_flag(before, strlen(before))) {
        if (pod_env_numeric(place->job, argument, &value) < 0)
            return NULL;
        return value ? take_pointer(&value) : mem_strdup(argument);
    }
    if (!argument[flag] || !is_address_flag(argument, flag))
        return mem_strdup(argument);
    if (pod_env_numeric(place->job, argument + flag + 1, &value) < 0)
        return NULL;
    return value ? mem_printf("%.*s=%s", (int)flag, argument, value) : mem_strdup(argument);
}

int pod_env_command(const struct pod_env_place *place, struct text_list *out)
{
    const struct local_pod *pod = &place->job->pods[place->pod];
    const char *before = NULL;
    scope_text_list own = {0};
    if (at_attempt(place, pod->command, pod->command_of_attempt, &own) < 0)
        return -1;
    for (char *const *argument = own.items; argument && *argument; argument++) {
        if (text_list_take(out, numeric_argument(place, before, *argument)) < 0)
            return -1;
        before = *argument;
    }
    return 0;
}
