/* job_state.c - see job_state.h. */
#include "launcher/policy/job_state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "proto/exit_code.h"

static const char heading[] = "muster job state 1\n";

static const char *const phase_names[] = {
#define JOB_PHASE_NAME(symbol, name, ...) [symbol] = (name),
    JOB_PHASES(JOB_PHASE_NAME)
#undef JOB_PHASE_NAME
};

char *job_state_path(const char *directory, const char *job_id)
{
    return mem_printf("%s/%s.muster-job", directory, job_id);
}

int job_state_format(const struct job_state *state, const char *job_id, struct buffer *out)
{
    assert(!out->length);
    buffer_printf(out, "%sjob %s\nrestarts %" PRId64 "\n", heading, job_id, state->restart_count);
    if (*state->server)
        buffer_printf(out, "server %s\n", state->server);
    buffer_printf(out, "phase %s\nexit code %d\n", phase_names[state->phase], state->exit_code);
    if (out->failed)
        return -1;
    uint64_t sum = text_hash(TEXT_HASH_START, out->data, out->length);
    return buffer_printf(out, "checksum %016" PRIx64 "\n", sum);
}

/* The rest of the line after name, in place; NULL if the next line is another one. */
static char *take_line(char **at, const char *name)
{
    size_t length = strlen(name);
    char *end = strchr(*at, '\n');
    if (!end || strncmp(*at, name, length) != 0)
        return NULL;
    char *value = *at + length;
    *end = '\0';
    *at = end + 1;
    return value;
}

static bool take_number(char **at, const char *name, int64_t limit, int64_t *out)
{
    char *value = take_line(at, name);
    return value && text_int64(value, out) && *out >= 0 && *out <= limit;
}

static bool take_phase(char **at, enum job_phase *phase)
{
    char *value = take_line(at, "phase ");
    for (int i = 0; value && i < JOB_PHASE_COUNT; i++)
        if (!strcmp(value, phase_names[i])) {
            *phase = (enum job_phase)i;
            return true;
        }
    return false;
}

int job_state_parse(const char *text, size_t length, const char *job_id, struct job_state *state,
                    struct muster_error *err)
{
    scope_free char *copy = mem_calloc(length + 1, 1);
    int64_t exit_code;
    if (!copy)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a job's state");
    memcpy(copy, text, length);
    if (strncmp(copy, heading, sizeof heading - 1) != 0)
        return error_set(err, MUSTER_E_INVALID, "it does not begin with \"muster job state 1\"");
    const char *last = memmem(copy, length, "\nchecksum ", 10);
    uint64_t sum = last ? text_hash(TEXT_HASH_START, copy, (size_t)(last + 1 - copy)) : 0;
    char line[32];
    (void)snprintf(line, sizeof line, "\nchecksum %016" PRIx64 "\n", sum);
    if (!last || strcmp(last, line) != 0)
        return error_set(err, MUSTER_E_INVALID, "its checksum is missing or wrong");
    char *at = copy + sizeof heading - 1;
    const char *id = take_line(&at, "job ");
    if (!id || strcmp(id, job_id) != 0)
        return error_set(err, MUSTER_E_INVALID, "it is the state of job \"%.200s\"", id ? id : "");
    if (!take_number(&at, "restarts ", INT64_MAX - 1, &state->restart_count))
        return error_set(err, MUSTER_E_INVALID, "its line of restarts is missing or wrong");
    const char *server = take_line(&at, "server ");
    (void)snprintf(state->server, sizeof state->server, "%s", server ? server : "");
    if (!take_phase(&at, &state->phase) || !take_number(&at, "exit code ", 255, &exit_code))
        return error_set(err, MUSTER_E_INVALID, "a line is missing or wrong");
    state->exit_code = (int)exit_code;
    return 0;
}

void job_state_keeper(struct job_state *state, const char *agent)
{
    (void)snprintf(state->server, sizeof state->server, "%s", strchr(agent, '\n') ? "" : agent);
}

enum job_resume job_state_resume(struct job_state *state, const char *agent, int64_t max_restarts)
{
    const bool elsewhere = *state->server && strcmp(state->server, agent) != 0;
    if (state->phase == JOB_DONE)
        return JOB_IS_OVER;
    if (state->phase == JOB_RUNS && !elsewhere)
        state->restart_count++;
    job_state_keeper(state, agent);
    state->phase = JOB_RUNS;
    if (elsewhere || state->restart_count <= max_restarts)
        return JOB_RESUME;
    state->phase = JOB_DONE;
    state->exit_code = EXIT_CODE_FAILURE; /* not retryable: the limit of restarts is what counts */
    return JOB_IS_SPENT;
}
