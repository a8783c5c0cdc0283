/* config.c - see config.h. */
#include "launcher/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

enum { DEFAULT_PORT = 29500, HOST_LIMIT = 253, SETTING_SIZE = 64 };

struct environment {
    const char *(*get)(void *context, const char *name);
    void *context;
};

static const struct knob *row(const char *name)
{
    return knob_find(config_table(), name, strlen(name), false, NULL);
}

static enum knob_source source_of(const struct run_config *config, const char *name)
{
    return config->sources[row(name) - config_table()->knobs];
}

/* The row's flag or variable, whichever set it: what an error about its value names. scratch holds the flag.
 */
static const char *setting(const struct run_config *config, const char *name, char scratch[SETTING_SIZE])
{
    const struct knob *knob = row(name);
    if (knob->env && source_of(config, name) == KNOB_FROM_ENVIRONMENT)
        return knob->env;
    (void)snprintf(scratch, SETTING_SIZE, "--%s", knob->name);
    return scratch;
}

/* the scratch lives as long as the block that the macro stands in */
#define SETTING(config, name) setting(config, name, (char[SETTING_SIZE]){0})

static int set(struct run_config *config, const char *name, const char *text, enum knob_source source,
               struct muster_error *err)
{
    return knob_set(config_table(), config, config->sources, row(name), text, source, name, err);
}

static int note(struct run_config *config, const char *line, struct muster_error *err)
{
    char *notes = config->notes ? mem_printf("%s\n%s", config->notes, line) : mem_strdup(line);
    if (!notes)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    mem_free(config->notes);
    config->notes = notes;
    return 0;
}

/* --- the command line --- */

struct command_line {
    int argc, at; /* at: the next argument */
    char *const *argv;
};

static int unknown_flag(const char *token, size_t name_length, struct muster_error *err)
{
    scope_free char *name = mem_strndup(token, name_length);
    if (!name)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    const char *hint = knob_nearest(config_table(), name + strspn(name, "-"));
    if (hint)
        return error_set(err, MUSTER_E_INVALID, "unknown flag %s; did you mean --%s?", name, hint);
    return error_set(err, MUSTER_E_INVALID, "unknown flag %s; --help lists all flags", name);
}

static int ambiguous_flag(const char *name, size_t length, struct muster_error *err)
{
    const struct knob_table *table = config_table();
    scope_buffer list = {0};
    for (size_t i = 0; i < table->count; i++) {
        struct knob_table one = {&table->knobs[i], 1};
        if (knob_find(&one, name, length, true, NULL))
            buffer_printf(&list, "%s--%s", list.length ? ", " : "", table->knobs[i].name);
    }
    return error_set(err, MUSTER_E_INVALID, "--%.*s could be any of %s", (int)length, name,
                     list.failed ? "" : list.data);
}

/* Something that was meant as a flag and not as a value: begins with a dash and is not a negative number. */
static bool looks_like_flag(const char *text)
{
    return text[0] == '-' && text[1] && !(text[1] >= '0' && text[1] <= '9');
}

/* Sets the row from its attached value (NULL: none) or from the next argument. */
static int take_value(struct command_line *line, struct run_config *config, const struct knob *knob,
                      const char *shown, const char *attached, struct muster_error *err)
{
    const char *value = attached;
    if (knob->type == KNOB_BOOL && !knob->refused) {
        if (attached)
            return error_set(err, MUSTER_E_INVALID, "%s takes no value, but '%s' was given", shown, attached);
        value = "1";
    } else if (!value && !knob->refused) {
        if (line->at >= line->argc || looks_like_flag(line->argv[line->at]))
            return error_set(err, MUSTER_E_INVALID, "%s needs a value", shown);
        value = line->argv[line->at++];
    }
    return knob_set(config_table(), config, config->sources, knob, value ? value : "", KNOB_FROM_FLAG, shown,
                    err);
}

static int take_long(struct command_line *line, struct run_config *config, const char *token,
                     struct muster_error *err)
{
    const char *name = token + 2;
    size_t length = strcspn(name, "=");
    bool ambiguous = false;
    const struct knob *knob = length ? knob_find(config_table(), name, length, true, &ambiguous) : NULL;
    if (ambiguous)
        return ambiguous_flag(name, length, err);
    if (!knob)
        return unknown_flag(token, length + 2, err);
    scope_free char *shown = mem_printf("--%s", knob->name);
    if (!shown)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    return take_value(line, config, knob, shown, name[length] ? name + length + 1 : NULL, err);
}

static int take_short(struct command_line *line, struct run_config *config, const char *token,
                      struct muster_error *err)
{
    const struct knob *knob = knob_find_letter(config_table(), token[1]);
    if (!knob)
        return unknown_flag(token, strcspn(token, "="), err);
    const char shown[] = {'-', token[1], 0};
    const char *attached = token[2] ? token + 2 + (token[2] == '=') : NULL;
    return take_value(line, config, knob, shown, attached, err);
}

/* Flags up to the program; nothing behind it is looked at. */
static int parse_flags(struct command_line *line, struct run_config *config, struct muster_error *err)
{
    while (line->at < line->argc && !config->help) {
        const char *token = line->argv[line->at];
        if (token[0] != '-' || !token[1])
            break;
        line->at++;
        if (!strcmp(token, "--"))
            break;
        if ((token[1] == '-' ? take_long : take_short)(line, config, token, err) < 0)
            return -1;
    }
    return 0;
}

/* --- the environment --- */

static const char *get_text(const struct environment *environment, const char *name)
{
    const char *text = environment->get(environment->context, name);
    return text && *text ? text : NULL; /* operators export empty variables for what was not given */
}

static int read_environment(struct run_config *config, const struct environment *environment,
                            struct muster_error *err)
{
    const struct knob_table *table = config_table();
    scope_buffer line = {0};
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        const char *text = knob->env && !knob->refused ? get_text(environment, knob->env) : NULL;
        if (!text || config->sources[i] == KNOB_FROM_FLAG)
            continue;
        if (knob_set(table, config, config->sources, knob, text, KNOB_FROM_ENVIRONMENT, knob->env, err) < 0)
            return -1;
        buffer_printf(&line, " %s=%s", knob->env, text);
    }
    const char *grace = get_text(environment, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    if (grace && source_of(config, "shutdown-timeout") == KNOB_FROM_DEFAULT &&
        knob_set(table, config, config->sources, row("shutdown-timeout"), grace, KNOB_FROM_RULE,
                 "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", err) < 0)
        return -1;
    const char *prefix = get_text(environment, ENV_LINE_PREFIX);
    config->line_prefix = mem_strdup(prefix ? prefix : "[${role_name}${local_rank}]:");
    if (line.failed || !config->line_prefix)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    if (!line.length)
        return 0;
    scope_free char *text = mem_printf("from the environment:%s", line.data);
    return text ? note(config, text, err) : error_set(err, MUSTER_E_NOMEM, "no memory");
}

/* Whether a refused row's variable asks for what is done anyway: switched off, or its default. */
static bool asks_nothing(const struct knob *knob, const char *text)
{
    bool on;
    return (knob->type == KNOB_BOOL && text_bool(text, &on) && !on) ||
           (knob->initial && !strcmp(knob->initial, text));
}

/* Whether the job would come out differently if the refused setting were honoured. */
static bool changes_the_job(const struct run_config *config, const struct knob *knob)
{
    static const char *const inner[] = {"monitor-interval", "start-method"}; /* how torchrun's agent works */
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        if (!strcmp(knob->name, inner[i]))
            return false;
    return strncmp(knob->name, "rdzv-", 5) || config->max_nodes > 1;
}

/* A refused setting in the environment, where operators and images put it for all jobs, is an error only
 * where it would change what the job does; else it is said that it is left aside. */
static int refuse_environment(struct run_config *config, const struct environment *environment,
                              struct muster_error *err)
{
    const struct knob_table *table = config_table();
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        const char *text = knob->env && knob->refused ? get_text(environment, knob->env) : NULL;
        if (!text || asks_nothing(knob, text))
            continue;
        if (changes_the_job(config, knob))
            return error_set(err, MUSTER_E_UNSUPPORTED, "%s=%s: %s", knob->env, text, knob->refused);
        scope_free char *line = mem_printf("%s=%s is left aside: %s", knob->env, text, knob->refused);
        if (!line)
            return error_set(err, MUSTER_E_NOMEM, "no memory");
        if (note(config, line, err) < 0)
            return -1;
    }
    return 0;
}

/* --- what the values mean together --- */

/* What the environment says of other nodes does not concern a standalone job; a flag that contradicts is an
 * error. */
static int apply_standalone(struct run_config *config, struct muster_error *err)
{
    static const struct {
        const char *name, *value;
    } aside[] = {{"nnodes", "1"},      {"node-rank", "0"},       {"master-addr", "127.0.0.1"},
                 {"master-port", "0"}, {"rdzv-backend", "c10d"}, {"rdzv-endpoint", ""}};
    for (size_t i = 0; i < sizeof aside / sizeof *aside; i++)
        if (source_of(config, aside[i].name) != KNOB_FROM_FLAG &&
            set(config, aside[i].name, aside[i].value, KNOB_FROM_RULE, err) < 0)
            return -1;
    return 0;
}

static bool parse_count(const char *text, size_t length, int *out)
{
    char copy[16];
    int64_t value;
    if (length == 0 || length >= sizeof copy)
        return false;
    memcpy(copy, text, length);
    copy[length] = 0;
    if (!text_int64(copy, &value) || value < 1 || value > CONFIG_NODES_LIMIT)
        return false;
    *out = (int)value;
    return true;
}

static int resolve_nodes(struct run_config *config, struct muster_error *err)
{
    const char *where = SETTING(config, "nnodes"), *text = config->nnodes;
    size_t first = strcspn(text, ":");
    bool range = text[first] == ':';
    if (!parse_count(text, first, &config->min_nodes) ||
        (range && !parse_count(text + first + 1, strlen(text + first + 1), &config->max_nodes)))
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not a number of nodes of 1 to %d", where, text,
                         CONFIG_NODES_LIMIT);
    if (!range)
        config->max_nodes = config->min_nodes;
    if (config->min_nodes > config->max_nodes)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' has a minimum above its maximum", where, text);
    if (config->min_nodes < config->max_nodes)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s: '%s' asks for a world that changes its size, which is not there yet; give one number", where,
            text);
    if (config->standalone && config->max_nodes > 1)
        return error_set(err, MUSTER_E_INVALID, "--standalone is one node, but %s is %s", where, text);
    if (config->node_rank >= config->max_nodes)
        return error_set(err, MUSTER_E_INVALID, "%s: '%lld' is not below the number of nodes, %d (%s)",
                         SETTING(config, "node-rank"), (long long)config->node_rank, config->max_nodes,
                         where);
    return 0;
}

/* --rdzv-endpoint host:port as master_addr and master_port. */
static int take_endpoint(struct run_config *config, struct muster_error *err)
{
    const char *where = SETTING(config, "rdzv-endpoint"), *text = config->rdzv_endpoint;
    const char *colon = strrchr(text, ':');
    int64_t port;
    if (!colon || colon == text || !text_int64(colon + 1, &port) || port < 1 || port > 65535)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not host:port with a port of 1 to 65535", where,
                         text);
    scope_free char *host = mem_strndup(text, (size_t)(colon - text));
    if (!host)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    if (set(config, "master-addr", host, KNOB_FROM_RULE, err) < 0)
        return -1;
    config->master_port = port;
    return 0;
}

static int resolve_backend(struct run_config *config, struct muster_error *err)
{
    const char *where = SETTING(config, "rdzv-backend"), *backend = config->rdzv_backend;
    bool fixed = !strcmp(backend, "static"), endpoint = config->rdzv_endpoint && *config->rdzv_endpoint;
    if (!strncmp(backend, "etcd", 4))
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s: '%s' is not supported, no etcd is needed; use static with --node-rank, --master-addr and "
            "--master-port",
            where, backend);
    if (!fixed && strcmp(backend, "c10d"))
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not one of static, c10d", where, backend);
    if (!fixed && config->max_nodes > 1)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s: c10d with several nodes is not there yet; use static with --node-rank, --master-addr and "
            "--master-port",
            where);
    return fixed && endpoint ? take_endpoint(config, err) : 0;
}

static int resolve_master(struct run_config *config, struct muster_error *err)
{
    char *host = config->master_addr;
    const char *where = SETTING(config, "master-addr");
    size_t length = strlen(host);
    if (length > 1 && host[0] == '[' && host[length - 1] == ']') { /* an IPv6 address as in URLs */
        memmove(host, host + 1, length - 2);
        host[length - 2] = 0;
    }
    if (!*host || strlen(host) > HOST_LIMIT || strcspn(host, " \t\r\n/") != strlen(host))
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not a host name or an address", where, host);
    if (config->max_nodes > 1 && config->master_port == 0)
        config->master_port = DEFAULT_PORT;
    if (config->max_nodes > 1 && source_of(config, "node-rank") == KNOB_FROM_DEFAULT)
        return note(config, "no --node-rank and no PET_NODE_RANK: this is node 0", err);
    return 0;
}

static int check_texts(const struct run_config *config, struct muster_error *err)
{
    if (config_streams(config->redirects, 0) < 0 || config_streams(config->tee, 0) < 0) {
        bool first = config_streams(config->redirects, 0) < 0;
        return error_set(
            err, MUSTER_E_INVALID, "%s: '%s' is not 0, 1, 2, 3 or a map of local ranks such as 0:1,1:3",
            SETTING(config, first ? "redirects" : "tee"), first ? config->redirects : config->tee);
    }
    if (!*config->rdzv_id || strlen(config->rdzv_id) > 200 || strchr(config->rdzv_id, '/'))
        return error_set(err, MUSTER_E_INVALID, "%s: '%.200s' is empty, longer than 200 bytes or has a slash",
                         SETTING(config, "rdzv-id"), config->rdzv_id);
    if (config->module && config->no_python)
        return error_set(err, MUSTER_E_INVALID, "%s and %s exclude each other", SETTING(config, "module"),
                         SETTING(config, "no-python"));
    return 0;
}

static const char *const nproc_words[] = {"cpu", "gpu", "auto"};

/* A number (out is it), a word of nproc_words (out is 0) or an error. */
static int parse_nproc(const struct run_config *config, int *out, struct muster_error *err)
{
    const char *where = SETTING(config, "nproc-per-node"), *text = config->nproc;
    int64_t number;
    *out = 0;
    for (size_t i = 0; i < sizeof nproc_words / sizeof *nproc_words; i++)
        if (!strcmp(text, nproc_words[i]))
            return 0;
    if (!strcmp(text, "xpu"))
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "%s: xpu devices are not counted; give the number of workers", where);
    if (!text_int64(text, &number))
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is not a number of workers, cpu, gpu or auto",
                         where, text);
    if (number < 1 || number > CONFIG_WORKERS_LIMIT)
        return error_set(err, MUSTER_E_INVALID, "%s: '%s' is outside 1 to %d workers", where, text,
                         CONFIG_WORKERS_LIMIT);
    *out = (int)number;
    return 0;
}

int config_parse(int argc, char *const argv[], const char *(*get)(void *context, const char *name),
                 void *context, struct run_config *config, struct muster_error *err)
{
    struct command_line line = {argc, 0, argv};
    struct environment environment = {get, context};
    if (knob_defaults(config_table(), config, err) < 0 || parse_flags(&line, config, err) < 0)
        return -1;
    if (config->help)
        return 0;
    if (read_environment(config, &environment, err) < 0 ||
        (config->standalone && apply_standalone(config, err) < 0) || resolve_nodes(config, err) < 0 ||
        resolve_backend(config, err) < 0 || resolve_master(config, err) < 0 ||
        refuse_environment(config, &environment, err) < 0 || check_texts(config, err) < 0 ||
        parse_nproc(config, &config->nproc_per_node, err) < 0)
        return -1;
    if (line.at >= argc || !*argv[line.at])
        return error_set(err, MUSTER_E_INVALID,
                         "no program was given; put the script, module or executable after the flags");
    config->program = argv[line.at];
    config->arguments = argv + line.at + 1;
    return 0;
}

static int resolve_workers(struct run_config *config, const struct machine *machine, struct muster_error *err)
{
    if (config->nproc_per_node > 0)
        return 0;
    bool gpu = !strcmp(config->nproc, "gpu");
    if (gpu && machine->gpus < 1)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: gpu, but no NVIDIA GPU is visible here; give a number, cpu or auto",
                         SETTING(config, "nproc-per-node"));
    config->nproc_per_node =
        strcmp(config->nproc, "cpu") && machine->gpus > 0 ? machine->gpus : machine->cores;
    return 0;
}

int config_resolve(struct run_config *config, const struct machine *machine, struct muster_error *err)
{
    config->cores = machine->cores;
    if (resolve_workers(config, machine, err) < 0)
        return -1;
    if (config->max_nodes > 1 || source_of(config, "rdzv-id") != KNOB_FROM_DEFAULT)
        return 0;
    /* a UUID of version 4, as torchrun makes one where there is one node */
    uint64_t a = machine->random[0], b = machine->random[1];
    scope_free char *id =
        mem_printf("%08x-%04x-4%03x-%04x-%012llx", (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff),
                   (unsigned)(a & 0xfff), (unsigned)(b >> 48 & 0x3fff) | 0x8000,
                   (unsigned long long)(b & 0xffffffffffff));
    return id ? set(config, "rdzv-id", id, KNOB_FROM_RULE, err) : error_set(err, MUSTER_E_NOMEM, "no memory");
}

void config_free(struct run_config *config)
{
    if (!config)
        return;
    knob_free(config_table(), config);
    mem_free(config->line_prefix);
    mem_free(config->notes);
    config->line_prefix = config->notes = NULL;
}

int config_help(const char *name, int columns, struct buffer *out)
{
    buffer_printf(out,
                  "usage: %s [flags] [--] program [arguments]\n\n"
                  "Starts a program once per worker with torchrun's environment, watches the workers and "
                  "stops or restarts\n"
                  "them together. A .py file runs under python3 -u (PYTHON_EXEC if set), an executable as "
                  "itself. Nothing\n"
                  "behind the program is read. Dashes and underscores in flags are equal, unique prefixes "
                  "are enough, the\n"
                  "variable in brackets gives the default.\n\n",
                  name);
    return knob_help(config_table(), columns, out);
}

/* One "local:value" of a map; returns what follows it, or NULL. */
static const char *map_entry(const char *text, long *local, int *value)
{
    char *end;
    if (*text < '0' || *text > '9')
        return NULL;
    *local = strtol(text, &end, 10); /* overflow gives LONG_MAX, which is no local rank */
    if (*local >= CONFIG_WORKERS_LIMIT || end[0] != ':' || end[1] < '0' || end[1] > '3')
        return NULL;
    *value = end[1] - '0';
    return end + 2;
}

int config_streams(const char *value, int local_rank)
{
    if (value[0] >= '0' && value[0] <= '3' && !value[1])
        return value[0] - '0';
    int found = STREAM_NONE;
    for (const char *at = value;; at++) {
        long local;
        int bits;
        at = map_entry(at, &local, &bits);
        if (!at || (*at && *at != ','))
            return -1;
        if (local == local_rank)
            found = bits;
        if (!*at)
            return found;
    }
}
