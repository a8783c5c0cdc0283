/* agent_job_state.c - the job's state on a volume: threads read and write it, since the volume may not
 * respond. See agent_job_state.h. */
#include "launcher/agent/agent_job_state.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/agent_signals.h"
#include "launcher/loop/background_job.h"
#include "launcher/policy/job_state.h"
#include "launcher/process/agent_mark.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/exit_code.h"

static const int64_t read_patience_ns = 20 * NS_PER_S, write_patience_ns = 5 * NS_PER_S;

struct state_file {
    char *path, *directory;
    struct buffer text;
    bool found; /* by a read */
    struct muster_error err;
    /* of a read: this agent's mark, and processes of agents that were killed */
    char *job, id[DESCENDANTS_ID_LENGTH + 1];
    struct agent_mark mark;
    struct muster_error mark_err;
    int swept;
};

/* At all times: state_file is that of saving, if one is in progress. */
struct agent_job_state {
    struct job_state state;
    bool resumes; /* there was one before */
    bool serves;  /* this agent keeps it */
    bool served;  /* it did: the last state in its folder may be its own */
    struct background_watch saving;
    struct state_file *state_file;
    bool save_again; /* it changed while it was saved */
    struct agent_mark mark;
};

static void state_file_free(void *payload)
{
    struct state_file *file = payload;
    if (!file)
        return;
    agent_mark_remove(&file->mark); /* nobody took it */
    mem_free(file->path);
    mem_free(file->directory);
    mem_free(file->job);
    buffer_free(&file->text);
    mem_free(file);
}

static void read_file(void *payload)
{
    struct state_file *file = payload;
    if (io_make_directories(file->directory, 0777, &file->err) < 0)
        return;
    file->found = access(file->path, F_OK) == 0 || errno != ENOENT;
    file->swept = agent_mark_sweep(file->directory, file->job);
    (void)agent_mark_keep(file->directory, file->job, file->id, &file->mark, &file->mark_err); /* err tells */
    if (file->found)
        (void)io_read_file(file->path, JOB_STATE_SIZE_LIMIT, &file->text, &file->err); /* err tells */
}

static void write_file(void *payload)
{
    struct state_file *file = payload;
    (void)io_write_file_atomic(file->path, file->text.data, file->text.length, 0666,
                               &file->err); /* err tells */
}

static struct state_file *make_file(const struct agent *agent, struct muster_error *err)
{
    struct state_file *file = mem_calloc(1, sizeof *file);
    if (file) {
        file->path = job_state_path(agent->config->state_dir, agent->config->rdzv_id);
        file->directory = mem_strdup(agent->config->state_dir);
        file->job = mem_strdup(agent->config->rdzv_id);
        memcpy(file->id, agent->id, sizeof file->id);
        file->mark.fd = -1;
    }
    if (file && file->path && file->directory && file->job)
        return file;
    state_file_free(file);
    error_set(err, MUSTER_E_NOMEM, "no memory for the job's state");
    return NULL;
}

/* --- before there is a world --- */

static int parse_found(struct agent *agent, const struct state_file *file, struct muster_error *err)
{
    struct muster_error why = {0};
    if (file->err.code)
        return error_set(err, (enum muster_error_code)file->err.code, "--state-dir: %s", file->err.text);
    if (!file->found)
        return 0;
    if (job_state_parse(file->text.data ? file->text.data : "", file->text.length, agent->config->rdzv_id,
                        &agent->job_state->state, &why) < 0)
        return error_set(err, MUSTER_E_INVALID,
                         "the job's state file %s is damaged: %s; remove it to begin the job anew",
                         file->path, why.text);
    return 1;
}

/* The volume may be read-only, or a file system without locks: the job runs all the same. */
static void take_mark(struct agent *agent, struct state_file *file)
{
    agent->job_state->mark = file->mark;
    file->mark = (struct agent_mark){.fd = -1};
    if (file->mark_err.code)
        log_warning(
            &agent->log,
            "--state-dir: %s: if this agent and its guardians are killed, the next agent will not find "
            "processes that they leave",
            file->mark_err.text);
    if (file->swept)
        log_warning(&agent->log,
                    "killed %d process%s of an agent of this job that was killed together with its guardians",
                    file->swept, file->swept == 1 ? "" : "es");
}

/* 1: there was one; 0: none; -1. */
static int read_state(struct agent *agent, struct muster_error *err)
{
    struct state_file *file = make_file(agent, err);
    struct background_job *background =
        file ? background_job_start("reading the job's state", read_file, file, state_file_free, err) : NULL;
    if (!background)
        return -1;
    int result = agent_signals_await_job(agent, background, read_patience_ns, agent->config->state_dir, err);
    if (result == 0)
        take_mark(agent, file);
    result = result < 0 ? error_wrap(err, "--state-dir") : parse_found(agent, file, err);
    background_job_release(background);
    return result;
}

static int job_state_create(struct agent *agent, struct muster_error *err)
{
    agent->job_state = mem_calloc(1, sizeof *agent->job_state);
    if (!agent->job_state)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the job's state");
    agent->job_state->mark.fd = -1;
    struct job_state *state = &agent->job_state->state;
    *state = (struct job_state){.phase = JOB_LEFT};
    int found = agent->config->state_dir ? read_state(agent, err) : 0;
    agent->job_state->resumes = found > 0;
    if (found <= 0)
        return found;
    agent->finished = state->phase == JOB_DONE;
    if (agent->finished)
        log_info(&agent->log, "job %s is over, its exit code was %d (--state-dir)", agent->config->rdzv_id,
                 state->exit_code);
    return 0;
}

int agent_job_state_exit_code(const struct agent *agent)
{
    return agent->job_state->state.exit_code;
}

int64_t agent_job_state_restarts(const struct agent *agent)
{
    return agent->job_state->state.restart_count;
}

int agent_job_state_resume(struct agent *agent, struct muster_error *err)
{
    const char *job = agent->config->rdzv_id;
    const long long limit = (long long)agent->config->max_restarts;
    struct job_state *state = &agent->job_state->state;
    const bool again = agent->job_state->served;
    agent->job_state->serves = agent->job_state->served = true;
    if (again)
        return 0;
    if (!agent->job_state->resumes) {
        job_state_keeper(state, agent->host);
        return 0;
    }
    const bool ran = state->phase == JOB_RUNS;
    const int64_t before = state->restart_count;
    if (job_state_resume(state, agent->host, agent->config->max_restarts) == JOB_IS_SPENT) {
        agent_job_state_keep_end(agent, NULL);
        return error_set(
            err, MUSTER_E_STATE,
            "job %s: the previous agent died unexpectedly, and %lld of %lld restarts were used before", job,
            (long long)state->restart_count - 1, limit);
    }
    log_info(&agent->log, "resuming job %s%s: %lld of %lld restarts used", job,
             !ran ? ""
             : state->restart_count == before
                 ? ": another agent served it last"
                 : ": the previous agent died unexpectedly, which counts as a restart",
             (long long)state->restart_count, limit);
    return 0;
}

/* --- keeping it --- */

static void save_state(struct agent *agent);

static void take_saved(struct agent *agent)
{
    const struct state_file *file = agent->job_state->state_file;
    if (file->err.code)
        log_warning(&agent->log, "the job's state is not saved: %s", file->err.text);
    background_watch_end(&agent->job_state->saving);
}

static void state_saved(void *context)
{
    struct agent *agent = context;
    take_saved(agent);
    if (agent->job_state->save_again)
        save_state(agent);
}

/* One write at a time: an older one must not come last. */
static void save_state(struct agent *agent)
{
    struct muster_error err = {0};
    agent->job_state->save_again = agent->job_state->saving.job != NULL;
    if (agent->job_state->save_again)
        return;
    struct state_file *file = make_file(agent, &err);
    if (file && job_state_format(&agent->job_state->state, agent->config->rdzv_id, &file->text) < 0) {
        state_file_free(file);
        file = NULL;
    }
    agent->job_state->state_file = file;
    struct background_job *background =
        file ? background_job_start("saving the job's state", write_file, file, state_file_free, &err) : NULL;
    if (background_watch_begin(&agent->job_state->saving, &agent->loop, background, state_saved, agent,
                               &err) < 0)
        log_warning(&agent->log, "the job's state is not saved: %s", *err.text ? err.text : "no memory");
}

/* Whether the job must not be run again: it succeeded, or a worker's or node's failure was the last that
 * it could have. */
static bool is_final(const struct membership_event *verdict)
{
    return verdict && (verdict->failed || verdict->exit_code == EXIT_CODE_OK);
}

static void wait_saved(struct agent *agent)
{
    if (!agent->job_state->saving.job)
        return;
    if (background_job_wait(agent->job_state->saving.job, write_patience_ns)) {
        take_saved(agent);
        return;
    }
    log_warning(&agent->log, "the job's state is not saved: %s did not respond within %.4g s",
                agent->config->state_dir, (double)write_patience_ns / NS_PER_S);
    background_watch_end(&agent->job_state->saving);
    agent->job_state->state.phase = JOB_PHASE_COUNT; /* no second try: it would wait as long */
}

void agent_job_state_keep_end(struct agent *agent, const struct membership_event *verdict)
{
    bool spent = agent->job_state->state.phase == JOB_DONE;
    const bool keeps = agent->job_state->serves || (agent->job_state->served && is_final(verdict));
    if (!agent->config->state_dir || !keeps || agent->job_state->state.phase == JOB_LEFT)
        return;
    wait_saved(agent);
    if (agent->job_state->state.phase == JOB_PHASE_COUNT)
        return;
    if (!agent->job_state->serves)
        agent->job_state->state.restart_count = agent->round.world.restart_count;
    if (!spent) {
        agent->job_state->state.phase = is_final(verdict) ? JOB_DONE : JOB_LEFT;
        agent->job_state->state.exit_code = is_final(verdict) ? verdict->exit_code : 0;
    }
    save_state(agent);
    wait_saved(agent);
}

void agent_job_state_serve(struct agent *agent, bool serves)
{
    struct agent_job_state *own = agent->job_state;
    own->serves = serves;
    if (!serves || !agent->round.world.id.epoch)
        return; /* a job that begins is kept from its first world on */
    own->served = true;
    own->state.phase = JOB_RUNS;
    own->state.restart_count = agent->round.world.restart_count;
    job_state_keeper(&own->state, agent->host);
    if (agent->config->state_dir)
        save_state(agent);
}

/* --- the part --- */

static void job_state_event(struct agent *agent, const struct agent_event *event)
{
    if (event->kind == AGENT_WORLD && agent->config->state_dir && agent->job_state->serves) {
        agent->job_state->state.phase = JOB_RUNS;
        agent->job_state->state.restart_count = agent->round.world.restart_count;
        save_state(agent);
    }
}

static void job_state_destroy(struct agent *agent)
{
    if (!agent->job_state)
        return;
    background_watch_end(&agent->job_state->saving);
    agent_mark_remove(&agent->job_state->mark);
    mem_free(agent->job_state);
    agent->job_state = NULL;
}

const struct agent_part agent_job_state_part = {"job state", job_state_create, NULL,
                                                NULL,        job_state_event,  job_state_destroy};
