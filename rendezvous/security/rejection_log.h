/* rejection_log.h - pure: connections refused by the job, the reasons, and how often they are logged.
 *
 * A reason is logged at once when it first occurs, and when it first occurs with an address; from then on
 * it is counted, and a line with the count follows after a minute, then two, up to an hour: an attacker
 * can neither fill the log nor go unnoticed. */
#ifndef MUSTER_RENDEZVOUS_SECURITY_REJECTION_LOG_H
#define MUSTER_RENDEZVOUS_SECURITY_REJECTION_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/clock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* symbol, text after "refused <address>: " */
#define REJECTIONS(X)                                                                                        \
    X(REJECTION_NO_SECRET, "it has no secret, and this job has one: start every node with "                  \
                           "the same --secret-file")                                                         \
    X(REJECTION_SECRET_UNWANTED, "it has a secret, and this server was started without one: give "           \
                                 "--secret-file to all nodes or to none")                                    \
    X(REJECTION_OTHER_SECRET, "it has another secret, or none made by muster")                               \
    X(REJECTION_OTHER_JOB, "it has this secret, but another job id: --rdzv-id must be equal on all nodes")   \
    X(REJECTION_CROWD, "too many connections are open")                                                      \
    X(REJECTION_EVICTED,                                                                                     \
      "connection limit reached: closed the oldest connection that had not authenticated")                   \
    X(REJECTION_ENDLESS, "it sent more than the largest message without an end: closed")                     \
    X(REJECTION_PROTOCOL,                                                                                    \
      "it does not speak muster's protocol: torchrun, a port scan, a health check, another program, or a "   \
      "node that was killed within its greeting")                                                            \
    X(REJECTION_SILENT, "it connected and did not complete the handshake, or sent no message after it")      \
    X(REJECTION_MALFORMED, "its ZAP request was malformed")

enum rejection {
#define REJECTION_ENUM(symbol, words) symbol,
    REJECTIONS(REJECTION_ENUM)
#undef REJECTION_ENUM
        REJECTION_COUNT
};

enum { REJECTION_ADDRESS_SIZE = 64, REJECTION_LINE_SIZE = 320 };

struct rejection_log {
    struct {
        uint64_t total, unlogged;
        struct instant log_at; /* when the unlogged may be logged */
        int64_t interval_ns;
        bool placed;                          /* a line has named an address */
        char address[REJECTION_ADDRESS_SIZE]; /* the last one's, "" if unknown */
    } reasons[REJECTION_COUNT];
};

/* Counts one; address "" if unknown. Whether line is to be logged now. */
bool rejection_log_note(struct rejection_log *rejections, enum rejection reason, const char *address,
                        struct instant now, char line[REJECTION_LINE_SIZE]);
/* A due line; call until it returns false. */
bool rejection_log_next(struct rejection_log *rejections, struct instant now, char line[REJECTION_LINE_SIZE]);
/* When rejection_log_next has one. */
struct instant rejection_log_deadline(const struct rejection_log *rejections);
/* A line with the totals of all reasons, "" if no connection was refused. Whether there is one. */
bool rejection_log_total(const struct rejection_log *rejections, char line[REJECTION_LINE_SIZE]);

#ifdef __cplusplus
}
#endif
#endif
