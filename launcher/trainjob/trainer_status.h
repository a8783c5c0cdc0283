/* trainer_status.h - pure: a job's progress as Kubeflow Trainer's status URL takes it (KEP-2779). */
#ifndef MUSTER_LAUNCHER_TRAINJOB_TRAINER_STATUS_H
#define MUSTER_LAUNCHER_TRAINJOB_TRAINER_STATUS_H

#include "launcher/board/board.h"

/* {"trainerStatus": {"progressPercentage": 42, "estimatedRemainingSeconds": 60, "metrics": [{"name": "loss",
 * "value": "2.31"}, ...], "lastUpdatedTime": "2026-01-01T00:00:00Z"}}, appended. The first two need the
 * figure total_steps (heartbeat.md), or a job that has succeeded. false: there is nothing to report, no rank
 * has reported a step or a figure. now: milliseconds since 1970. */
bool trainer_status_json(const struct board *board, int64_t now, struct buffer *out);

#endif
