/* heartbeat.h - pure: workers' progress reports, and detection of silent workers (heartbeat.md).
 *
 * A worker writes lines into a pipe, each a decimal step. Its first heartbeat arms hang detection for it;
 * a negative step disarms it until the next heartbeat, for a long phase. The line "fatal MESSAGE" does so
 * too, and reports an error that a restart does not mend. A line of figures of its training (figures.h), of a
 * checkpoint (below) or that its imports are done ("mark/1 imported") is no heartbeat. */
#ifndef MUSTER_LAUNCHER_POLICY_HEARTBEAT_H
#define MUSTER_LAUNCHER_POLICY_HEARTBEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/policy/figures.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"

/* --- saved states ---
 *
 * How a worker's checkpoint has ended, a line in the pipe of its heartbeats (heartbeat.md). */

enum { SAVED_TEXT = 480 };

/* A zeroed one: none has ended yet. */
struct worker_saved {
    bool there, good;
    int64_t step;          /* finished steps that it holds */
    char text[SAVED_TEXT]; /* where it is and how long it took, or why there is none; printable */
};

/* --- heartbeats --- */

enum { HEARTBEAT_MESSAGE = 512 };

struct heartbeat {
    bool armed;                      /* armed: silence is an error */
    bool over;                       /* the worker has ended; set by the caller */
    bool stalled;                    /* set by heartbeats_stalled */
    bool fatal;                      /* it has reported an error that a restart does not mend */
    char message[HEARTBEAT_MESSAGE]; /* fatal: the error, cut where it is longer; "": it has given none */
    int64_t step;                    /* step of the last heartbeat with a step; -1: none */
    struct instant last;             /* time of the last heartbeat, if there was one */
    struct instant first;            /* time of the first heartbeat with a step; 0: none yet */
    int64_t first_step;              /* its step */
    struct instant imported;         /* time of the line "mark/1 imported"; 0: none */
    struct {
        int64_t value;
        int length; /* digits; -1: the line is not a number */
        bool negative;
        int matched; /* bytes of the word "fatal", one more inside its message; -1: another line */
        char text[FIGURES_LINE]; /* its first bytes */
        size_t bytes;            /* its length, bytes that are not kept included */
    } line;                      /* the incomplete line */
    struct worker_figures figures;
    struct worker_saved saved; /* the checkpoint that ended last */
};

void heartbeat_init(struct heartbeat *beat);
/* Bytes that arrived at now. Every line is a heartbeat but for figures, checkpoints and marks, even
 * if it is not a number. */
void heartbeat_take(struct heartbeat *beat, const char *bytes, size_t length, struct instant now);

/* When the first of them will have been silent for timeout_ns; timeout_ns 0: never. */
struct instant heartbeats_deadline(const struct heartbeat *beats, int count, int64_t timeout_ns);
/* If one is silent for timeout_ns: marks it and all that are stalled with it (silent for half as long),
 * and returns the index of the slowest: the lowest step, then the longest silence. Otherwise -1. */
int heartbeats_stalled(struct heartbeat *beats, int count, int64_t timeout_ns, struct instant now);
/* "step 41: rank 3; step 42: ranks 0-2, 4; no step: rank 5", appended; "" if no rank has reported one. */
int heartbeats_format(const struct heartbeat *beats, int count, int rank_base, struct buffer *out);

#endif
