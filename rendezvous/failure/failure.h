/* failure.h - pure: the record of a failure, the choice of the first cause among several, and its exit
 * code.
 *
 * A job usually has many failures for one reason: the first worker dies and its peers fail because of it.
 * Causes are ranked by class, and inside a class the earliest wins. Workers that an agent stopped itself
 * are not failures. */
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
    FAILURE_EXCERPT_LIMIT = 160,
    FAILURE_OTHERS_LIMIT = 15, /* most causes that a verdict names next to the first */
};

/* Ten years: a greater age is implausible; two failures may be twice as far from each other. */
#define FAILURE_AGE_LIMIT_NS (INT64_C(3650) * 24 * 3600 * NS_PER_S)

/* Whether the kernel's count of out-of-memory kills was looked at for a failure. */
enum failure_oom_check {
    FAILURE_OOM_NOT_CHECKED, /* no evidence was collected, or its count began after the worker had ended */
    FAILURE_OOM_UNREADABLE,  /* the kernel shows no such counter here */
    FAILURE_OOM_COUNTED      /* the cgroup's count is in oom_kills */
};

/* All that is known of one failure. Times are durations before the report is made, never another host's
 * clock. Texts may hold anything but NUL. */
struct worker_failure {
    int rank, local_rank, group_rank;
    int pid;
    int exit_code; /* -1 if a signal ended it */
    int signal;    /* 0 if it exited */
    bool core_dumped;
    bool out_of_memory; /* the kernel killed it for lack of memory */
    bool lost_node;  /* set by the roster only: the whole node group_rank was lost, without a single worker to
                        blame; code 138 */
    bool after_stop; /* it ended after its agent had stopped it, and for another reason */
    bool not_started;   /* it could not be started; message has the reason, pid is its agent's */
    bool hung;          /* its heartbeats stopped and it was killed for that; message may give the time */
    bool unkillable;    /* a process of the worker survived SIGKILL: its node is unhealthy; code 138 */
    bool completes;     /* a second report: more is known of a failure that was reported before */
    bool no_restart;    /* it exited after it had reported an error that a restart does not mend */
    bool memory_host;   /* with out_of_memory: the machine was out of memory, not the container */
    int64_t step;       /* hung: the last step that it reported; -1: none */
    int xid;            /* the NVIDIA driver's number of an error during the round, 0: none */
    bool xid_elsewhere; /* it may belong to another GPU of the worker's node */
    char pci[FAILURE_PCI_LIMIT]; /* the GPU named in the xid report; "" if unknown */
    enum failure_oom_check oom_check;
    int64_t oom_kills; /* COUNTED: processes of the container killed for lack of memory in the round */
    int64_t memory_limit, memory_peak; /* limit and peak of the container, bytes; 0: unknown or none */
    int64_t age_ns;                    /* how long before the report it happened */
    int64_t wall_ns;                   /* wall clock of its host, for display */
    char host[FAILURE_NAME_LIMIT];
    char tail[FAILURE_TAIL_LIMIT]; /* the last lines of its stderr, newline-separated; "" if unknown */
    char error_file[FAILURE_NAME_LIMIT];
    char message[FAILURE_MESSAGE_LIMIT]; /* the exception of its error file ("ValueError: no"), why it could
                                            not be started, how a lost node left; "" if unknown */
    char traceback[FAILURE_TAIL_LIMIT];  /* from the error file, newline-separated */
};

/* A failure that is not the first cause, as listed in a verdict. */
struct failure_brief {
    int rank, local_rank, group_rank;
    int pid;
    int exit_code, signal;
    int xid;    /* 0 also if it is another GPU's */
    int class_; /* enum failure_class, as the server saw it */
    bool core_dumped, out_of_memory, hung;
    int64_t step;     /* hung */
    int64_t after_ns; /* after the first cause; negative: before it */
    int64_t wall_ns;
    char host[FAILURE_BRIEF_HOST];
    char excerpt[FAILURE_EXCERPT_LIMIT]; /* failure_excerpt */
};

/* symbol, name; the first class is the strongest cause */
#define FAILURE_CLASSES(X)                                                                                   \
    X(FAILURE_SIGNAL, "signal")       /* killed by a signal, out of memory, by a GPU error, or hung */       \
    X(FAILURE_LOST_NODE, "lost node") /* the whole node was lost, or cannot be cleaned up */                 \
    X(FAILURE_EXIT, "exit code")      /* a worker exited with a code of its own, or could not be started */  \
    X(FAILURE_AFTER_STOP,                                                                                    \
      "crashed while stopping") /* after it was stopped: only if there is no better cause */                 \
    X(FAILURE_CASCADE, "followed another failure") /* its texts show that a peer or the store was lost */

enum failure_class {
#define FAILURE_ENUM(symbol, name) symbol,
    FAILURE_CLASSES(FAILURE_ENUM)
#undef FAILURE_ENUM
        FAILURE_CLASS_COUNT
};

enum failure_class failure_class_of(const struct worker_failure *failure);
const char *failure_class_name(enum failure_class class_);

/* failure_signs.c: whether a text shows the loss of a communication peer, or states that a rank other than
 * own_rank failed, and shows no error of its own. */
bool failure_says_peer_gone(const char *text, int own_rank);
/* Whether the last output of a stopped worker shows that it was already failing: its error file, a traceback,
 * or an error of muster-train that exited by itself; not if a lost peer caused it. */
bool failure_shows_trouble(const struct worker_failure *failure);
/* The most useful line of text: an error of its own, an exception, the sign of a lost peer, the place of a
 * crash, else the last line. Not terminated; *length of it. */
/* Whether the text has the place of a crash (Python's faulthandler). */
bool failure_shows_place(const char *text);
const char *failure_informative_line(const char *text, size_t *length);

/* The order of the failures of a round: the smallest is the best cause. It is a total order, so the choice
 * does not depend on the order of arrival. */
struct failure_key {
    enum failure_class class_;
    struct instant at; /* one clock for all */
    int rank, local_rank, pid;
};
struct failure_key failure_key_of(const struct worker_failure *failure, struct instant at);
/* < 0 if a comes first */
int failure_key_compare(const struct failure_key *a, const struct failure_key *b);

/* Whether the stop ended it while it was already failing: then the signal means nothing. */
bool failure_is_cut_short(const struct worker_failure *failure);
/* The exit code of a failure: its own, 128 + signal, 138 for a lost or unhealthy node, 1 for a worker that
 * was cut short; never 0. */
int failure_exit_code(const struct worker_failure *failure);

/* after_ns is left 0. */
struct failure_brief failure_brief_of(const struct worker_failure *failure);
/* The content of a brief as a record; age_ns is after_ns before cause_age_ns. */
void failure_from_brief(const struct failure_brief *brief, int64_t cause_age_ns, struct worker_failure *out);

/* --- texts (failure_text.c) --- */

/* One sentence without a full stop, e.g. "rank 3 (pid 812 on host-b) was killed by signal 9 (SIGKILL)".
 * Always NUL-terminated, one line. */
void failure_describe(const struct worker_failure *failure, char *out, size_t size);
/* The worker's own last message in one line: its exception, else the most useful line of its stderr. */
void failure_excerpt(const struct worker_failure *failure, char *out, size_t size);
/* The text of an out-of-memory kill, with limit and peak if they are known: "out of memory: the
 * container's limit is 512 MB, its peak was 512 MB". "" if it was none. */
void failure_memory_text(const struct worker_failure *failure, char *out, size_t size);
/* For a worker that SIGKILL ended: whether the kernel's OOM killer is ruled out, possible, or cannot be
 * known, and from which evidence. "" if failure_memory_text names it as the cause, and for other ends. */
void failure_oom_text(const struct worker_failure *failure, char *out, size_t size);
/* "SIGSEGV" for 11; "SIG99" style, in scratch, for a number without a name. */
const char *failure_signal_name(int signal, char *scratch, size_t size);

#ifdef __cplusplus
}
#endif
#endif
