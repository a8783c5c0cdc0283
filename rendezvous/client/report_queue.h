/* report_queue.h - an agent's reports that no server has acknowledged yet, in order. Pure but for memory.
 *
 * A report is kept until a server has it: a broken connection loses none, nor does the way from a server to
 * none and back to the same server. That server knows the agent's workers by its reports alone. */
#ifndef MUSTER_RENDEZVOUS_CLIENT_REPORT_QUEUE_H
#define MUSTER_RENDEZVOUS_CLIENT_REPORT_QUEUE_H

#include <stdbool.h>

#include "rendezvous/roster/world.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pending_report {
    struct pending_report *next;
    struct world_id id;
    enum membership_report_kind kind;
    uint64_t sequence;
    struct instant made;             /* the failure's age is counted to here */
    struct worker_failure failure[]; /* one, if FAILED */
};

/* Zeroed: empty. */
struct report_queue {
    struct pending_report *first, *last;
};

/* Appends a copy. failure: of FAILED, else NULL. The new report, owned by the queue; NULL: no memory. */
const struct pending_report *report_queue_push(struct report_queue *queue, struct world_id id,
                                               enum membership_report_kind kind,
                                               const struct worker_failure *failure, uint64_t sequence,
                                               struct instant now);
/* The failure of a report of FAILED, whose age counts to now; another report has none: false. */
bool report_queue_failure(const struct pending_report *report, struct instant now,
                          struct worker_failure *out);
/* Those up to this sequence number have arrived. UINT64_MAX: all go. */
void report_queue_forget(struct report_queue *queue, uint64_t arrived);

#ifdef __cplusplus
}
#endif
#endif
