/* trainer_report.h - a job's progress for Kubeflow Trainer: the text, and a thread that sends it, since the
 * server may not respond. */
#ifndef MUSTER_LAUNCHER_TRAINJOB_TRAINER_REPORT_H
#define MUSTER_LAUNCHER_TRAINJOB_TRAINER_REPORT_H

#include "launcher/board/board.h"
#include "launcher/loop/background_job.h"
#include "proto/base/buffer.h"

struct trainer_place {
    const char *url;
    const char *token_file; /* read each time, since it rotates; NULL: no token is sent */
    const char *ca_file;    /* NULL: the system's authorities */
};

/* The message that the thread sends; the job's. */
struct trainer_report;
/* Starts to send the body, whose memory is taken. *report is valid until the job is released. NULL: err. */
struct background_job *trainer_report_start(const struct trainer_place *place, struct buffer *body,
                                            struct trainer_report **report, struct muster_error *err);
/* Once the job is done; code 0: it has arrived. */
const struct muster_error *trainer_report_error(const struct trainer_report *report);

/* --- the status ---
 *
 * A job's progress as Kubeflow Trainer's status URL takes it (KEP-2779). */

/* {"trainerStatus": {"progressPercentage": 42, "estimatedRemainingSeconds": 60, "metrics": [{"name": "loss",
 * "value": "2.31"}, ...], "lastUpdatedTime": "2026-01-01T00:00:00Z"}}, appended. The first two need the
 * figure total_steps (heartbeat.md), or a job that has succeeded. false: there is nothing to report, no rank
 * has reported a step or a figure. now: milliseconds since 1970. */
bool trainer_status_json(const struct board *board, int64_t now, struct buffer *out);

#endif
