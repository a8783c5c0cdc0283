/* saved.h - pure: how a worker's checkpoint has ended, a line in the pipe of its heartbeats (heartbeat.md).
 */
#ifndef MUSTER_LAUNCHER_POLICY_SAVED_H
#define MUSTER_LAUNCHER_POLICY_SAVED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAVED_TEXT = 480 };

/* A zeroed one: none has ended yet. */
struct worker_saved {
    bool there, good;
    int64_t step;          /* finished steps that it holds */
    char text[SAVED_TEXT]; /* where it is and how long it took, or why there is none; printable */
};

/* Whether a line is one of checkpoints, good or bad: then it is no heartbeat. */
bool saved_is_line(const char *line, size_t length);
/* "checkpoint/1 saved STEP TEXT" or "checkpoint/1 failed STEP TEXT". A line of another version or that is not
 * of this form changes nothing. line is not terminated. */
void saved_take(struct worker_saved *saved, const char *line, size_t length);

#endif
