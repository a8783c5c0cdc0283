/* agent_trainer.c - see agent_internal.h. */
#include "launcher/agent/agent_internal.h"

#include <string.h>

#include "launcher/agent/board/agent_board.h"
#include "launcher/loop/background_job.h"
#include "launcher/trainjob/https_post.h"
#include "launcher/trainjob/trainer_report.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

/* end_patience_ns: how long the end of the agent waits for the last report, in all. */
static const int64_t every_ns = 10 * NS_PER_S, look_ns = NS_PER_S, end_patience_ns = 5 * NS_PER_S;

struct agent_trainer {
    struct instant due;
    struct background_watch sending;
    struct trainer_report *report;     /* result of sending */
    bool reached;                      /* one has arrived */
    char complaint[MUSTER_ERROR_TEXT]; /* the last logged error */
};

static void sent(void *context)
{
    struct agent *agent = context;
    struct agent_trainer *own = agent->trainer;
    const struct muster_error *err = trainer_report_error(own->report);
    if (err->code && strcmp(own->complaint, err->text) != 0) {
        (void)snprintf(own->complaint, sizeof own->complaint, "%s", err->text);
        log_warning(&agent->log, "the job's progress is not reported to Kubeflow Trainer: %s", err->text);
    } else if (!err->code && (!own->reached || *own->complaint)) {
        own->reached = true;
        own->complaint[0] = '\0';
        log_info(&agent->log, "the job's progress is reported to Kubeflow Trainer every %d s",
                 (int)(every_ns / NS_PER_S));
    }
    background_watch_end(&own->sending);
}

/* false: there is nothing to report yet, or another agent does. */
static bool send_progress(struct agent *agent)
{
    struct agent_trainer *own = agent->trainer;
    const struct run_config *config = agent->config;
    const struct trainer_place place = {.url = config->progress_url,
                                        .token_file = config->progress_token_file,
                                        .ca_file = config->progress_ca_file};
    struct muster_error err = {0};
    scope_buffer body = {0};
    const struct board *board = agent_board(agent);
    if (own->sending.job || !board || !board->serves ||
        !trainer_status_json(board, agent_board_now(agent), &body))
        return false;
    struct background_job *job = trainer_report_start(&place, &body, &own->report, &err);
    if (background_watch_begin(&own->sending, &agent->loop, job, sent, agent, &err) < 0)
        log_warning(&agent->log, "the job's progress is not reported: %s", err.text);
    return true;
}

/* The last state, unless the server responds too slowly. */
static void send_end(struct agent *agent)
{
    struct agent_trainer *own = agent->trainer;
    const struct instant deadline = instant_add(clock_now(NULL), end_patience_ns);
    for (int i = 0; i < 2; i++) {
        const int64_t left = instant_diff_ns(deadline, clock_now(NULL));
        if (own->sending.job && !background_job_wait(own->sending.job, left > 0 ? left : 0))
            return;
        if (own->sending.job)
            sent(agent);
        if (i == 0 && !send_progress(agent))
            return;
    }
}

static int trainer_create(struct agent *agent, struct muster_error *err)
{
    struct https_address address;
    const char *url = agent->config->progress_url;
    agent->trainer = mem_calloc(1, sizeof *agent->trainer);
    if (!agent->trainer)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the progress of the job");
    if (url && *url && https_address_parse(url, &address, err) < 0) /* no reason to fail a job */
        log_warning(&agent->log, "the job's progress is not reported: %s", err->text);
    else if (url && *url)
        return 0;
    agent->trainer->due = INSTANT_NEVER;
    return 0;
}

static struct instant trainer_deadline(const struct agent *agent)
{
    return agent->trainer->due;
}

static void trainer_tick(struct agent *agent, struct instant now)
{
    struct agent_trainer *own = agent->trainer;
    if (instant_reached(now, own->due))
        own->due = instant_add(now, send_progress(agent) ? every_ns : look_ns);
}

static void trainer_event(struct agent *agent, const struct agent_event *event)
{
    if (event->kind == AGENT_ENDED && agent->trainer->due.ns != INSTANT_NEVER.ns)
        send_end(agent);
}

static void trainer_destroy(struct agent *agent)
{
    if (agent->trainer)
        background_watch_end(&agent->trainer->sending);
    mem_free(agent->trainer);
    agent->trainer = NULL;
}

const struct agent_part agent_trainer_part = {"trainer",    trainer_create, trainer_deadline,
                                              trainer_tick, trainer_event,  trainer_destroy};
