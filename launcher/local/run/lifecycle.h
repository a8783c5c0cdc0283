/* lifecycle.h - pure: the life cycle of a PyTorchJob, as defined by the training operator (v1.9) and the
 * kubelet; and of Jobs and JobSets by their controllers (batch.c).
 *
 * One pod (the kubelet's actions on its container), as a table of states and events:
 *
 *   ABSENT --CREATE--> PENDING --DEADLINE--> RUNNING --ENDED--> SUCCEEDED, FAILED, or BACKOFF --DEADLINE-->
 * RUNNING RUNNING --DELETE--> DELETING (TERM) --DEADLINE--> KILLING (KILL) --DEADLINE--> STUCK |  ENDED |
 * ENDED
 *                          +---------> ABSENT <---------+
 *
 * The job (the operator's actions on its pods) is examined after every event: it may succeed, fail, be
 * cleaned up, have a failed pod recreated, or missing pods created. Time is passed in.
 *
 * Differences from a cluster: the active deadline fires when it is reached (there, at the operator's next
 * check); a pod is recreated after RECREATE_S instead of scheduling; pods that a finished job leaves
 * running are ended after linger_ns unless ttlSecondsAfterFinished ends them before. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_LIFECYCLE_H
#define MUSTER_LAUNCHER_LOCAL_RUN_LIFECYCLE_H

#include <stdbool.h>

#include "launcher/local/job/job.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/include/muster_error.h"

/* --- conditions ---
 *
 * The conditions of a PyTorchJob, in the order and with the replacements of the operator's status (pure). */

#define CONDITION_TYPES(X)                                                                                   \
    X(CONDITION_CREATED, "Created")                                                                          \
    X(CONDITION_RUNNING, "Running")                                                                          \
    X(CONDITION_RESTARTING, "Restarting")                                                                    \
    X(CONDITION_SUCCEEDED, "Succeeded")                                                                      \
    X(CONDITION_FAILED, "Failed")                                                                            \
    X(CONDITION_SUSPENDED, "Suspended")

#define CONDITION_ENUM(symbol, name) symbol,
enum condition_type { CONDITION_TYPES(CONDITION_ENUM) CONDITION_TYPE_COUNT };
#undef CONDITION_ENUM

struct condition {
    enum condition_type type;
    bool status;
    const char *reason; /* a constant: "PyTorchJobRunning" */
};

/* Oldest change first; a zeroed struct is a job that the operator has not seen. */
struct conditions {
    struct condition list[CONDITION_TYPE_COUNT];
    int count;
};

/* Appends one condition. Running and Restarting replace each other; Succeeded and Failed turn Running off;
 * after either of them nothing changes any more. Returns whether anything changed. */
bool conditions_set(struct conditions *c, enum condition_type type, bool status, const char *reason);
/* Whether there is such a condition, and it is true. */
bool conditions_hold(const struct conditions *c, enum condition_type type);
/* NULL where there is none of this type. */
const struct condition *conditions_find(const struct conditions *c, enum condition_type type);

const char *condition_name(enum condition_type type);

/* symbol, name, meaning */
#define POD_STATES(X)                                                                                        \
    X(POD_ABSENT, "absent", "not created, or deleted")                                                       \
    X(POD_PENDING, "pending", "created and started at the deadline")                                         \
    X(POD_RUNNING, "running", "its container runs")                                                          \
    X(POD_BACKOFF, "back-off", "its container ended and starts again at the deadline")                       \
    X(POD_SUCCEEDED, "succeeded", "its container ended with 0 for good")                                     \
    X(POD_FAILED, "failed", "its container ended otherwise for good")                                        \
    X(POD_DELETING, "deleting", "sent SIGTERM; killed at the deadline")                                      \
    X(POD_KILLING, "killing", "killed; waiting for the kernel")                                              \
    X(POD_STUCK, "stuck", "cannot be killed")

#define POD_EVENTS(X)                                                                                        \
    X(POD_CREATE, "CREATE", "the operator creates it")                                                       \
    X(POD_ENDED, "ENDED", "its container ended, and nothing of it is left")                                  \
    X(POD_LOST, "LOST", "it failed without an exit code of its container (evicted, or could not be made)")   \
    X(POD_DELETE, "DELETE", "the operator deletes it")                                                       \
    X(POD_DEADLINE, "DEADLINE", "pod->deadline is reached")

#define JOB_STATES(X)                                                                                        \
    X(JOB_ACTIVE, "active", "pods are created as the job requires")                                          \
    X(JOB_SUSPENDED, "suspended", "no pods until it is resumed")                                             \
    X(JOB_SUCCEEDED, "succeeded", "decided; pods are cleaned up")                                            \
    X(JOB_FAILED, "failed", "decided; pods are cleaned up")                                                  \
    X(JOB_DELETED, "deleted", "deleted before it was decided")

#define JOB_EVENTS(X)                                                                                        \
    X(JOB_BEGIN, "BEGIN", "the operator sees the job")                                                       \
    X(JOB_POD_ENDED, "POD_ENDED", "number = exit code of the container; nothing of it is left")              \
    X(JOB_POD_LOST, "POD_LOST", "the pod failed without an exit code")                                       \
    X(JOB_TIME, "TIME", "lifecycle_deadline is reached")                                                     \
    X(JOB_SUSPEND, "SUSPEND", "runPolicy.suspend became true")                                               \
    X(JOB_RESUME, "RESUME", "runPolicy.suspend became false")                                                \
    X(JOB_SCALE, "SCALE", "number = Worker replicas from now on")                                            \
    X(JOB_DELETE, "DELETE", "number = the signal that requested it")

/* The shell's actions for a pod, in the order of their numbers. */
#define POD_ACTIONS(X)                                                                                       \
    X(POD_TERMINATE, "TERMINATE")   /* TERM to its first process */                                          \
    X(POD_KILL, "KILL")             /* KILL to all of it, until nothing is left */                           \
    X(POD_NAME_STUCK, "NAME_STUCK") /* report the processes that cannot be killed */                         \
    X(POD_START, "START")           /* start its container */

#define LIFECYCLE_ENUM(symbol, ...) symbol,
enum pod_state { POD_STATES(LIFECYCLE_ENUM) POD_STATE_COUNT };
enum pod_event { POD_EVENTS(LIFECYCLE_ENUM) POD_EVENT_COUNT };
enum pod_action { POD_ACTIONS(LIFECYCLE_ENUM) POD_ACTION_COUNT };
enum job_state { JOB_STATES(LIFECYCLE_ENUM) JOB_STATE_COUNT };
enum job_event_kind { JOB_EVENTS(LIFECYCLE_ENUM) JOB_EVENT_COUNT };
#undef LIFECYCLE_ENUM

struct job_event {
    enum job_event_kind kind;
    int pod; /* index into lifecycle->pods */
    int number;
};

struct lifecycle_pod {
    enum pod_state state;
    struct instant deadline;  /* end of PENDING, BACKOFF, DELETING and KILLING; else never */
    unsigned actions;         /* bit 1 << enum pod_action; the shell clears them */
    int restart_count;        /* the kubelet's: containers started again in this pod */
    int failures_in_row;      /* sets the back-off */
    int index_failures;       /* with backoffLimitPerIndex: of this pod's index */
    bool index_failed;        /* the same: it is not tried again */
    int restarts, recreated;  /* summed over all pods of this name: in place, and recreated by the operator */
    bool has_code;            /* a container has ended */
    int exit_code;            /* the last ended container's */
    struct instant container; /* when the container that runs was started */
    struct instant first_start, last_end; /* over all containers; never: not yet */
};

/* One Job of a JobSet, or a Job alone. */
enum group_state { GROUP_WAITING, GROUP_ACTIVE, GROUP_COMPLETE, GROUP_FAILED };
struct lifecycle_group {
    enum group_state state;
    int failures;              /* failed pods, as counted against backoffLimit */
    int failed_indexes;        /* pods that failed for good, with backoffLimitPerIndex */
    struct instant deadline;   /* active: activeDeadlineSeconds of its own; else never */
    int exit_code;             /* failed: of the container that did it, 0 for none */
    enum local_failure reason; /* failed */
    struct instant failed_at;
    char message[200];     /* failed: its controller's */
    bool remaking;         /* its pods are being deleted, so that it begins anew */
    int restarts, counted; /* how often it alone was made anew; of those, the ones against maxRestarts */
};

struct lifecycle_options {
    double backoff_scale; /* times the kubelet's pauses and RECREATE_S */
    double grace_s;       /* negative: each pod's own */
    int64_t linger_ns;    /* how long a finished job's pods are left alone; INT64_MAX: until they end */
    int64_t kill_bound_ns;
};

enum { LIFECYCLE_RECREATE_S = 2 };

struct lifecycle {
    const struct local_job *job;
    struct lifecycle_options options;
    const struct log_sink *log; /* log of events; NULL: none */
    struct lifecycle_pod *pods; /* as in job->pods, spares included */
    int pod_count;
    struct lifecycle_group *groups; /* as in job->groups */
    int remakes, counted; /* JobSet: how often all its Jobs were made anew, in all and against maxRestarts */
    bool remaking;        /* their pods are being deleted for that */
    int wanted[LOCAL_REPLICA_TYPES];
    enum job_state state;
    struct conditions conditions;
    struct instant active_deadline;
    struct instant linger_until; /* decided: the pods that were left running are deleted then */
    struct instant
        linger_told; /* when that is worth a line: most pods end by themselves at once; never: not */
    bool leaving;    /* decided, and we stay for a bounded time only: no container is restarted */
    int exit_code;   /* exit code of `muster local`, once decided */
};

/* Nothing happens before JOB_BEGIN. job stays the caller's and must live as long. */
int lifecycle_init(struct lifecycle *life, const struct local_job *job,
                   const struct lifecycle_options *options, const struct log_sink *log,
                   struct muster_error *err);
void lifecycle_free(struct lifecycle *life);

/* Handles one event, then everything that is due; pods' actions are set. */
void lifecycle_step(struct lifecycle *life, const struct job_event *event, struct instant now);
/* When JOB_TIME is due. */
struct instant lifecycle_deadline(const struct lifecycle *life);
/* Whether the job is decided and no pod of it is left to wait for. */
bool lifecycle_over(const struct lifecycle *life);

/* ExitCode: 128 and above. */
bool lifecycle_is_retryable(int exit_code);
/* How long the kubelet waits before it restarts a container that failed so often in a row (>= 1),
 * unscaled: 0, 10 s, 20 s, ... 300 s. */
int64_t lifecycle_backoff_ns(int failures_in_row);

/* "?" for a number outside the list. */
const char *pod_state_name(enum pod_state state);
const char *pod_event_name(enum pod_event event);
const char *pod_action_name(enum pod_action action);

#endif
