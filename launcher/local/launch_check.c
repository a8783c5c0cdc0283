/* launch_check.c - see local_internal.h. */
#include "launcher/local/local_internal.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "launcher/config/config.h"
#include "launcher/local/job/python_shim.h"
#include "launcher/local/pod/placeholder.h"
#include "launcher/local/pod/pod_command.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

static int launch_words_read(const struct local_pod *pod, struct launch_words *out);

static void launch_words_free(struct launch_words *words);

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

/* Whether text is an ending of a cluster's names: "", ".ns", ".ns.svc", ".ns.svc.cluster.local". */
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
    machine->gpus = c->pod->gpus ? c->pod->gpus : machine->gpus;
    (void)snprintf(machine->host_name, sizeof machine->host_name, "%s", c->pod->hostname);
    machine->full_name[0] = 0;
    if (c->pod->subdomain)
        (void)snprintf(machine->full_name, sizeof machine->full_name, "%s.%s", c->pod->hostname,
                       c->pod->subdomain);
    bool good =
        config_parse((int)launch->words.count, launch->words.items, read_pod_variable, c, &config, &err) == 0;
    if (c->pod->claims && !c->pod->gpus) /* the driver alone knows how many a claim stands for */
        machine->gpus = config.nproc_per_node > 1 ? config.nproc_per_node : 1;
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

/* --- words --- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *launch_shell_text(char *const *command, bool *login)
{
    static const char *const shells[] = {"sh", "bash", "dash", "zsh", "ash"};
    bool shell = false;
    *login = false;
    for (size_t i = 0; command && command[0] && i < sizeof shells / sizeof *shells; i++)
        shell |= !strcmp(last_part(command[0]), shells[i]);
    for (char *const *word = command + 1; shell && *word && (*word)[0] == '-'; word++) {
        size_t length = strlen(*word);
        *login |= !strcmp(*word, "--login") || ((*word)[1] != '-' && strchr(*word, 'l'));
        if ((*word)[1] != '-' && (*word)[length - 1] == 'c')
            return word[1];
        if (!strcmp(*word, "-o") && word[1])
            word++; /* -o pipefail */
    }
    return NULL;
}

int launch_expand(const char *text, char *const *env, struct buffer *out)
{
    while (*text) {
        size_t plain = strcspn(text, "$");
        buffer_append(out, text, plain);
        text += plain;
        if (!*text)
            break;
        bool braced = *++text == '{';
        text += braced;
        size_t length = 0;
        while (isalnum((unsigned char)text[length]) || text[length] == '_')
            length++;
        scope_free char *name = mem_printf("%.*s", (int)length, text);
        const char *value = length && name ? text_list_value(env, name) : NULL;
        if (!value || (braced && text[length] != '}'))
            return -1;
        buffer_text(out, value);
        text += length + braced;
    }
    return out->failed ? -1 : 0;
}

/* One simple command of a shell's text, appended without line continuations; returns the rest of the text. */
static const char *take_command(const char *text, struct buffer *out)
{
    char quote = 0;
    for (; *text; text++) {
        if (*text == '\\' && text[1] == '\n') {
            text++;
            buffer_text(out, " ");
            continue;
        }
        bool redirects = out->length && (out->data[out->length - 1] == '>' || text[1] == '>');
        if (!quote && (strchr(";|\n", *text) || (*text == '&' && !redirects)))
            return text + 1;
        if (*text == '\'' || *text == '"')
            quote = !quote ? *text : quote == *text ? 0 : quote;
        if (*text == '\\' && text[1] && quote != '\'')
            buffer_append(out, text++, 1);
        buffer_append(out, text, 1);
    }
    return text;
}

/* The words before the first redirection. */
static size_t count_words(const struct text_list *words)
{
    size_t count = 0;
    while (count < words->count && !strpbrk(words->items[count], "<>"))
        count++;
    return count;
}

/* Index after the words that call a launcher at `at`; 0: they do not. */
static size_t launcher_at(char *const *words, size_t count, size_t at, bool *old_launcher)
{
    const char *name = at < count ? last_part(words[at]) : "";
    int rest;
    *old_launcher = false;
    if (!strcmp(name, "torchrun"))
        return at + 1;
    bool run = at + 1 < count && !strcmp(words[at + 1], "run"),
         launch = at + 1 < count && !strcmp(words[at + 1], "launch");
    if (!strcmp(name, "muster") && (run || launch)) {
        *old_launcher = launch;
        return at + 2;
    }
    if (!python_shim_is_name(name))
        return 0;
    const char *module = python_shim_module((int)(count - at), words + at, &rest);
    const char *ours = module ? python_shim_subcommand(module) : NULL;
    *old_launcher = ours && !strcmp(ours, "launch");
    return ours ? at + (size_t)rest : 0;
}

/* A command's words as a launcher's; out->found where they are. */
static int read_command(char *const *words, size_t count, struct launch_words *out)
{
    size_t at = 0;
    while (at < count &&
           (!strcmp(words[at], "exec") || !strcmp(words[at], "time") || !strcmp(words[at], "nohup")))
        at++;
    size_t begin = launcher_at(words, count, at, &out->old_launcher);
    if (!begin)
        return 0;
    out->found = true;
    out->login &= at < count && !strchr(words[at], '/');
    for (size_t i = begin; i < count; i++)
        if (text_list_take(&out->words, mem_strdup(words[i])) < 0)
            return -1;
    return 0;
}

static int read_shell(const struct local_pod *pod, const char *text, struct launch_words *out)
{
    while (*text && !out->found) {
        scope_buffer command = {0}, expanded = {0};
        scope_text_list words = {0};
        buffer_text(&command, "");
        text = take_command(text, &command);
        if (command.failed)
            return -1;
        if (strpbrk(command.data, "()`*?[#") || launch_expand(command.data, pod->env, &expanded) < 0 ||
            !expanded.length || pod_command_split(expanded.data, &words, NULL) < 0)
            continue; /* not plain */
        if (read_command(words.items, count_words(&words), out) < 0)
            return -1;
    }
    return 0;
}

/* -1 without memory; launch_words_free in every case. */
static int launch_words_read(const struct local_pod *pod, struct launch_words *out)
{
    size_t count = 0;
    *out = (struct launch_words){.found = false};
    while (pod->command && pod->command[count])
        count++;
    if (!count)
        return 0;
    const char *text = launch_shell_text(pod->command, &out->login);
    if (text)
        return read_shell(pod, text, out);
    /* the program itself in torchrun's place (pod_command.h) */
    bool ours = count > 1 && (!strcmp(pod->command[1], "run") || !strcmp(pod->command[1], "launch")) &&
                strchr(pod->command[0], '/');
    if (!ours)
        return read_command(pod->command, count, out);
    out->found = true;
    out->old_launcher = !strcmp(pod->command[1], "launch");
    for (size_t i = 2; i < count; i++)
        if (text_list_take(&out->words, mem_strdup(pod->command[i])) < 0)
            return -1;
    return 0;
}

static void launch_words_free(struct launch_words *words)
{
    text_list_free(&words->words);
    *words = (struct launch_words){.found = false};
}
