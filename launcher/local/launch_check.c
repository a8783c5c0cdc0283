/* launch_check.c - see launch_check.h. */
#include "launcher/local/launch_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "launcher/config/config.h"
#include "launcher/local/launch_words.h"
#include "launcher/local/pod/placeholder.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

struct checking {
    const struct local_job *job;
    const struct documents *documents;
    const struct log_sink *log;
    const struct local_pod *pod;
    struct text_list said; /* lines without the pod's name */
    bool failed;
};

/* A line once, with the first pod that it is of. */
static void warn_once(struct checking *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void warn_once(struct checking *c, const char *format, ...)
{
    char line[900];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (size_t i = 0; i < c->said.count; i++)
        if (!strcmp(c->said.items[i], line))
            return;
    c->failed |= text_list_take(&c->said, mem_strdup(line)) < 0;
    log_warning(c->log, "pod %s: %s", c->pod->name, line);
}

static const char *read_pod_variable(void *context, const char *name)
{
    const struct checking *c = context;
    return text_list_value(c->pod->env, name);
}

/* --- names --- */

/* Whether the name begins with this pod's own, whole labels long. */
static bool begins_with(const char *name, const char *own)
{
    size_t length = strlen(own);
    return !strncmp(name, own, length) && (!name[length] || name[length] == '.');
}

/* Whether text is one of the endings of a cluster's names: "", ".ns", ".ns.svc", ".ns.svc.cluster.local". */
static bool is_ending(const struct checking *c, const char *text)
{
    static const char *const after[] = {"", ".svc", ".svc.cluster.local"};
    const char *ns = c->job->namespace_ ? c->job->namespace_ : "default";
    for (size_t i = 0; *text && i < sizeof after / sizeof *after; i++) {
        scope_free char *ending = mem_printf(".%s%s", ns, after[i]);
        if (ending && !strcmp(text, ending))
            return true;
    }
    return !*text;
}

/* Whether other pods know this one by the name. */
static bool is_called(const struct checking *c, const struct local_pod *pod, const char *name)
{
    scope_free char *full = c->job->groups
                                ? pod->subdomain ? mem_printf("%s.%s", pod->hostname, pod->subdomain) : NULL
                                : mem_strdup(pod->name);
    return full && begins_with(name, full) && is_ending(c, name + strlen(full));
}

static bool resolves(const struct checking *c, const char *name)
{
    if (address_is_numeric(name) || !strcmp(name, "localhost"))
        return true;
    for (int i = 0; i < c->job->pod_count + c->job->spare_count; i++)
        if (is_called(c, &c->job->pods[i], name))
            return true;
    for (size_t i = 0; i < c->documents->object_count; i++) /* a Service in front of a pod */
        if (!strcmp(c->documents->objects[i].kind, "Service") && *c->documents->objects[i].name &&
            begins_with(name, c->documents->objects[i].name))
            return true;
    for (char *const *alias = c->pod->aliases; alias && *alias; alias++)
        if (strstr(*alias, name))
            return true;
    return false;
}

/* The pod that the name is nearest to: by its first label, else the first. */
static const struct local_pod *nearest(const struct checking *c, const char *name)
{
    for (int i = 0; i < c->job->pod_count; i++)
        if (begins_with(name, c->job->pods[i].hostname))
            return &c->job->pods[i];
    return &c->job->pods[0];
}

static void check_master(struct checking *c, const struct run_config *config)
{
    const char *name = config->master_addr;
    if (config->max_nodes < 2 || resolves(c, name))
        return;
    const struct local_pod *pod = nearest(c, name);
    if (c->job->groups && !pod->subdomain)
        warn_once(c,
                  "%s, which is to lead the nodes, names no pod of this job: without a headless Service and "
                  "spec.subdomain its pods have no names for each other, and all wait for --join-timeout",
                  name);
    else
        warn_once(c,
                  "%s, which is to lead the nodes, names no pod of this job: all would wait for it; the pod "
                  "%s is called %s%s%s",
                  name, pod->name, c->job->groups ? pod->hostname : pod->name, c->job->groups ? "." : "",
                  c->job->groups ? pod->subdomain : "");
}

/* --- one pod --- */

static void ask_launcher(struct checking *c, const struct launch_words *launch)
{
    struct muster_error err = {0};
    struct run_config config = {.command = launch->old_launcher ? COMMAND_LAUNCH : COMMAND_RUN};
    scope_free struct machine *machine = mem_calloc(1, sizeof *machine);
    if (!machine) {
        c->failed = true;
        return;
    }
    machine_read(NULL, machine);
    machine->gpus = c->pod->gpus ? c->pod->gpus : c->pod->claims ? 1 : machine->gpus;
    (void)snprintf(machine->host_name, sizeof machine->host_name, "%s", c->pod->hostname);
    machine->full_name[0] = 0;
    if (c->pod->subdomain)
        (void)snprintf(machine->full_name, sizeof machine->full_name, "%s.%s", c->pod->hostname,
                       c->pod->subdomain);
    bool good =
        config_parse((int)launch->words.count, launch->words.items, read_pod_variable, c, &config, &err) == 0;
    if (good && !config.help)
        good = config_resolve(&config, machine, read_pod_variable, c, &err) == 0;
    if (!good)
        warn_once(c, "muster run would refuse its settings and exit with %d: %s",
                  err.code == MUSTER_E_NOMEM ? 1 : 2, err.text);
    else if (!config.help) {
        for (const char *line = config.warnings ? config.warnings : ""; *line;) {
            size_t length = strcspn(line, "\n");
            warn_once(c, "muster run would warn: %.*s", (int)length, line);
            line += length + (line[length] == '\n');
        }
        check_master(c, &config);
    }
    config_free(&config);
}

/* A command is no shell's text: what only a shell expands stays as it is. */
static void check_words(struct checking *c)
{
    bool login;
    if (launch_shell_text(c->pod->command, &login))
        return;
    for (char *const *word = c->pod->command; word && *word; word++) {
        const char *equals = strchr(*word, '='), *value = equals ? equals + 1 : *word;
        if (placeholder_is_variable(value))
            warn_once(c, "the argument %s stays as it is: no shell expands it; write $(NAME), or call sh -c",
                      *word);
    }
}

static void check_pod(struct checking *c)
{
    struct launch_words __attribute__((cleanup(launch_words_free))) launch = {.found = false};
    check_words(c);
    if (launch_words_read(c->pod, &launch) < 0)
        c->failed = true;
    else if (launch.found && launch.login)
        warn_once(
            c, "a login shell (-l) sets PATH anew, and may find no torchrun (exit 127) or another one than "
               "muster's: call the shell without -l, or torchrun by its path (/opt/muster/bin/torchrun)");
    if (!c->failed && launch.found)
        ask_launcher(c, &launch);
}

int launch_check(const struct local_job *job, const struct documents *documents, const struct log_sink *log)
{
    struct checking c = {.job = job, .documents = documents, .log = log};
    for (int i = 0; i < job->pod_count && !c.failed; i++) {
        c.pod = &job->pods[i];
        check_pod(&c);
    }
    text_list_free(&c.said);
    return c.failed ? -1 : 0;
}
