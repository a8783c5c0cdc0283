/* failure.h - pure: what was seen of a failure, which of several is the first cause, and what it stands for.
 *
 * A job usually shows many deaths for one reason: the first worker dies and its peers fall over it. Causes
 * are ranked by class, and inside a class the earliest wins. Workers that an agent stopped itself never get
 * here. */
#ifndef MUSTER_RENDEZVOUS_FAILURE_FAILURE_H
#define MUSTER_RENDEZVOUS_FAILURE_FAILURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/xid.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FAILURE_NAME_LIMIT = 256,
    FAILURE_TAIL_LIMIT = 4096,
    FAILURE_MESSAGE_LIMIT = 1024,
    FAILURE_PCI_LIMIT = XID_PCI_LIMIT,
    FAILURE_BRIEF_HOST = 64, /* a longer name is cut */
    FAILURE_SAID_LIMIT = 160,
    FAILURE_OTHERS_LIMIT = 15, /* that a verdict names beside the first cause */
};

/* Ten years: an age that is longer is not believed; two failures may be twice as far from each other. */
#define FAILURE_AGE_LIMIT_NS (INT64_C(3650) * 24 * 3600 * NS_PER_S)

/* Everything that was seen of one failure. Times are durations before the report is made, never another
 * host's clock. Texts may hold anything but NUL. */
struct worker_failure {
    int rank, local_rank, group_rank;
    int pid;
    int exit_code; /* -1 where a signal ended it */
    int signal;    /* 0 where it exited */
    bool core_dumped;
    bool out_of_memory; /* the kernel killed it for want of memory */
    bool lost_node;     /* set by the roster only: node group_rank vanished as a whole, there is no single
                           worker; code 138 */
    bool told;          /* it ended after its agent had told it to stop, and not for that */
    bool not_started;   /* it could not be started; message says why, pid is its agent's */
    bool hung;          /* it gave no heartbeat any more and was ended for it; message may say how long */
    bool unkillable;    /* a process of it survived KILL: its node is unfit; code 138 */
    bool memory_host;   /* with out_of_memory: the machine was out of memory, not the container */
    int64_t step;       /* hung: the last one that it had told of; -1: none */
    int xid;            /* the NVIDIA driver's number of an error during the round, 0: none was seen */
    bool xid_elsewhere; /* it is not known to be of this worker's GPU, only of its node's */
    char pci[FAILURE_PCI_LIMIT]; /* the GPU that the driver named with xid; "" where unknown */
    int64_t oom_kills;           /* how many processes of the container the kernel killed in the round */
    int64_t memory_limit, memory_peak; /* of the container, bytes; 0: unknown or none */
    int64_t age_ns;                    /* how long before the report it happened */
    int64_t wall_ns;                   /* wall clock of its host, for display */
    char host[FAILURE_NAME_LIMIT];
    char tail[FAILURE_TAIL_LIMIT]; /* the last lines of its stderr, newline-separated; "" where unknown */
    char error_file[FAILURE_NAME_LIMIT];
    char message[FAILURE_MESSAGE_LIMIT]; /* the exception of its error file ("ValueError: no"), why it could
                                            not be started, how a lost node went; "" where unknown */
    char traceback[FAILURE_TAIL_LIMIT];  /* of the error file, newline-separated */
};

/* What a verdict tells of a failure that is not the first cause. */
struct failure_brief {
    int rank, local_rank, group_rank;
    int pid;
    int exit_code, signal;
    int xid;    /* 0 also where it is another GPU's */
    int class_; /* enum failure_class, as the server saw it */
    bool core_dumped, out_of_memory, hung;
    int64_t step;     /* hung */
    int64_t after_ns; /* after the first cause; negative: before it */
    int64_t wall_ns;
    char host[FAILURE_BRIEF_HOST];
    char said[FAILURE_SAID_LIMIT]; /* failure_said */
};

/* symbol, name; the first class is the strongest cause */
#define FAILURE_CLASSES(X)                                                                                   \
    X(FAILURE_SIGNAL, "signal")       /* killed by a signal, out of memory, by a GPU error, or hung */       \
    X(FAILURE_LOST_NODE, "lost node") /* the whole node vanished, or cannot be cleaned */                    \
    X(FAILURE_EXIT, "exit code")      /* a worker left with a code of its own, or could not be started */    \
    X(FAILURE_TOLD, "crashed while stopping")      /* after it was told to: only with nothing better */      \
    X(FAILURE_CASCADE, "followed another failure") /* its texts tell that a peer or the store was gone */

enum failure_class {
#define FAILURE_ENUM(symbol, name) symbol,
    FAILURE_CLASSES(FAILURE_ENUM)
#undef FAILURE_ENUM
        FAILURE_CLASS_COUNT
};

enum failure_class failure_class_of(const struct worker_failure *failure);
const char *failure_class_name(enum failure_class class_);

/* failure_signs.c: whether a text tells that the other end of a communication went away, and of no trouble of
 * its own. */
bool failure_says_peer_gone(const char *text);
/* Whether the last words of a worker that was told to stop show that it was failing already: its error file,
 * or a traceback; not those of one that fell over a peer. */
bool failure_shows_trouble(const struct worker_failure *failure);
/* The line of text that tells most of it: the sign of a peer that is gone, else the last one. Not terminated;
 * *length of it. */
const char *failure_telling_line(const char *text, size_t *length);

/* The place of a failure among those of one round: what comes first is the better cause. A total order, so
 * that the choice does not depend on the order of arrival. */
struct failure_key {
    enum failure_class class_;
    struct instant at; /* one clock for all */
    int rank, local_rank, pid;
};
struct failure_key failure_key_of(const struct worker_failure *failure, struct instant at);
/* < 0 where a comes first */
int failure_key_compare(const struct failure_key *a, const struct failure_key *b);
/* Whether a, which happened at a_at, is a better first cause than b, which happened at b_at. */
bool failure_precedes(const struct worker_failure *a, struct instant a_at, const struct worker_failure *b,
                      struct instant b_at);

/* Whether the stop ended it while it was failing already: the signal says nothing then. */
bool failure_is_cut_short(const struct worker_failure *failure);
/* The exit code that a failure stands for: its own, 128 + signal, 138 for a lost or unfit node, 1 for one
 * that was cut short; never 0. */
int failure_exit_code(const struct worker_failure *failure);

/* after_ns is left 0. */
struct failure_brief failure_brief_of(const struct worker_failure *failure);
/* What a brief tells, as a record; age_ns is after_ns before cause_age_ns. */
void failure_from_brief(const struct failure_brief *brief, int64_t cause_age_ns, struct worker_failure *out);

/* --- words (failure_text.c) --- */

/* One sentence without a full stop, e.g. "rank 3 (pid 812 on host-b) was killed by signal 9 (SIGKILL)".
 * Always NUL-terminated, one line. */
void failure_describe(const struct worker_failure *failure, char *out, size_t size);
/* In one line what the worker itself said last: its exception, else the telling line of its stderr. */
void failure_said(const struct worker_failure *failure, char *out, size_t size);
/* The kernel's killing for want of memory in words, with limit and peak where they are known: "out of memory:
 * the container's limit is 512 MB, its peak was 512 MB". "" where it was not that. */
void failure_memory_text(const struct worker_failure *failure, char *out, size_t size);
/* "SIGSEGV" for 11; "SIG99" style, in scratch, for a number without a name. */
const char *failure_signal_name(int signal, char *scratch, size_t size);

#ifdef __cplusplus
}
#endif
#endif
