/* agent_nccl.c - what NCCL cannot know, for the workers of each world: decided when the world is there, said
 * where it is news, kept in the log directory as nccl.json. See nccl_env.h and agent_internal.h. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/loop/background_job.h"
#include "launcher/loop/resolver.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text_list.h"

static const int64_t writing_bound_ns = 2 * NS_PER_S;

enum { COLUMNS = 120 };

struct agent_tuning {
    char **environment; /* of the workers; NULL: the agent's own */
    char *told;         /* the last summary; NULL: none */
    struct background_job *writing;
};

int agent_open_tuning(struct agent *agent, struct muster_error *err)
{
    agent->tuning = mem_calloc(1, sizeof *agent->tuning);
    return agent->tuning ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for NCCL's settings");
}

void agent_close_tuning(struct agent *agent)
{
    struct agent_tuning *tuning = agent->tuning;
    if (!tuning)
        return;
    if (tuning->writing && !background_job_wait(tuning->writing, writing_bound_ns))
        log_debug(&agent->log, "nccl.json: its file system does not answer");
    background_job_release(tuning->writing);
    text_list_free_items(tuning->environment);
    mem_free(tuning->told);
    mem_free(tuning);
    agent->tuning = NULL;
}

char *const *agent_environment(const struct agent *agent)
{
    return agent->tuning->environment ? agent->tuning->environment : environ;
}

/* --- the master's address --- */

/* Whether the master's name has its addresses by now. */
static bool is_resolved(struct agent *agent)
{
    char first[RESOLVER_ADDRESS_LIMIT];
    struct pollfd answer = {agent->resolver ? resolver_fd(agent->resolver) : -1, POLLIN, 0};
    if (!agent->resolved && poll(&answer, 1, 0) == 1)
        agent->resolved = resolver_result(agent->resolver, first, sizeof first, NULL) == 0;
    return agent->resolved;
}

/* On the node that serves the job: the address by which others reach it, as far as it can be known here. */
static void find_own_address(struct agent *agent)
{
    const struct run_config *config = agent->config;
    const char *const candidates[] = {config->local_addr, config->master_addr};
    char *out = agent->server_address;
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates && !*out; i++)
        if (candidates[i] && resolver_is_numeric(candidates[i]) && resolver_is_local(candidates[i]))
            (void)snprintf(out, sizeof agent->server_address, "%s", candidates[i]);
    if (!*out && !strcmp(config->master_addr, "localhost"))
        (void)snprintf(out, sizeof agent->server_address, "127.0.0.1");
    if (*out || !is_resolved(agent))
        return;
    const char *address;
    for (int i = 0; !*out && (address = resolver_address(agent->resolver, i)); i++)
        if (resolver_is_local(address) && strncmp(address, "127.", 4) && strcmp(address, "::1"))
            (void)snprintf(out, sizeof agent->server_address, "%s", address);
}

/* --- nccl.json --- */

struct record {
    char *path;
    struct buffer text;
};

static void write_record(void *payload)
{
    struct record *record = payload;
    /* a log that cannot be written is no reason to hold up a job; --nccl-tune=explain shows the same */
    (void)io_write_file_atomic(record->path, record->text.data, record->text.length, 0644, NULL);
}

static void free_record(void *payload)
{
    struct record *record = payload;
    mem_free(record->path);
    buffer_free(&record->text);
    mem_free(record);
}

static void keep(struct agent *agent)
{
    struct agent_tuning *tuning = agent->tuning;
    struct muster_error err = {0};
    if (!agent->run_directory || (tuning->writing && !background_job_is_done(tuning->writing)))
        return;
    struct record *record = mem_calloc(1, sizeof *record);
    if (!record)
        return;
    record->path = mem_printf("%s/nccl.json", agent->run_directory);
    if (!record->path || nccl_env_json(agent->tune, &record->text) < 0) {
        free_record(record);
        return;
    }
    background_job_release(tuning->writing);
    tuning->writing = background_job_start("writing nccl.json", write_record, record, free_record, &err);
    if (!tuning->writing)
        log_debug(&agent->log, "%s", err.text);
}

/* --- what is said --- */

static void tell_lines(const struct agent *agent, char *lines)
{
    for (char *rest = lines, *line; (line = strsep(&rest, "\n"));)
        if (*line)
            log_info(&agent->log, "%s", line);
}

/* One line where something was set or warned of, again only where it is another one. */
static void tell(struct agent *agent)
{
    struct agent_tuning *tuning = agent->tuning;
    const struct decision_list *list = &agent->tune->decisions;
    const bool warned = decision_first(list, DECISION_WARNED),
               explains = agent->tune->mode == NCCL_ENV_EXPLAIN;
    scope_buffer line = {0}, table = {0};
    if (decision_summary(list, &line) < 0 || (tuning->told && !strcmp(tuning->told, line.data)))
        return;
    mem_free(tuning->told);
    tuning->told = mem_strdup(line.data);
    if (warned)
        log_warning(&agent->log, "%s%s", line.data, explains ? "" : "; --nccl-tune=explain says why");
    else if (explains || decision_first(list, DECISION_SET))
        log_info(&agent->log, "%s", line.data);
    if (explains && decision_print(list, COLUMNS, &table) == 0 && table.data)
        tell_lines(agent, table.data);
}

int agent_tune(struct agent *agent, struct muster_error *err)
{
    struct agent_tuning *tuning = agent->tuning;
    scope_free char *attempt = NULL;
    if (!agent->tune->looked)
        return 0;
    if (agent->serves_here && agent->config->max_nodes > 1)
        find_own_address(agent);
    if (agent->run_directory)
        attempt = mem_printf("%s/attempt_%lld", agent->run_directory, (long long)agent->world.restart_count);
    const struct nccl_env_place place = {.nnodes = agent->world.group_world_size,
                                         .master_address =
                                             *agent->server_address ? agent->server_address : NULL,
                                         .here = agent->serves_here,
                                         .log_dir = attempt};
    char **environment = nccl_env_decide(agent->tune, &place, err) < 0
                             ? NULL
                             : nccl_env_environment(agent->tune, environ, err);
    if (!environment)
        return -1;
    text_list_free_items(tuning->environment);
    tuning->environment = environment;
    tell(agent);
    keep(agent);
    return 0;
}
