/* report_queue.c - see report_queue.h. */
#include "rendezvous/client/report_queue.h"

#include "proto/base/mem.h"

const struct pending_report *report_queue_push(struct report_queue *queue, struct world_id id,
                                               enum membership_report_kind kind,
                                               const struct worker_failure *failure, uint64_t sequence,
                                               struct instant now)
{
    const bool failed = kind == MEMBERSHIP_REPORT_FAILED;
    struct pending_report *report = mem_calloc(1, sizeof *report + (failed ? sizeof *report->failure : 0));
    if (!report)
        return NULL;
    report->id = id;
    report->kind = kind;
    report->sequence = sequence;
    report->made = now;
    if (failed && failure)
        *report->failure = *failure;
    if (queue->last)
        queue->last->next = report;
    else
        queue->first = report;
    queue->last = report;
    return report;
}

bool report_queue_failure(const struct pending_report *report, struct instant now, struct worker_failure *out)
{
    if (report->kind != MEMBERSHIP_REPORT_FAILED)
        return false;
    *out = *report->failure;
    out->age_ns += instant_diff_ns(now, report->made); /* it may have waited for a connection */
    return true;
}

void report_queue_forget(struct report_queue *queue, uint64_t arrived)
{
    while (queue->first && queue->first->sequence <= arrived) {
        struct pending_report *report = queue->first;
        queue->first = report->next;
        mem_free(report);
    }
    if (!queue->first)
        queue->last = NULL;
}
