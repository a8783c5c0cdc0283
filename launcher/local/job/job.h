/* job.h - a job as `muster local` runs it: the pods that a cluster's controllers would make of a PyTorchJob,
 * a TrainJob, a JobSet or a Job, with their whole environment, command and mounts.
 *
 * The manifest side (manifest.h) fills it by pure functions; the runner (runner.h, lifecycle.h)
 * only reads it.
 */
#ifndef MUSTER_LAUNCHER_LOCAL_JOB_JOB_H
#define MUSTER_LAUNCHER_LOCAL_JOB_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- volumes ---
 *
 * The mounts of a job's pods: files of ConfigMaps and Secrets, empty folders, claims, folders of the
 * machine. The manifest side fills it, the runner makes and mounts it. */

enum local_volume_type {
    LOCAL_VOLUME_FILES,  /* from ConfigMaps, Secrets, fields of the pod: read-only */
    LOCAL_VOLUME_EMPTY,  /* a folder of each pod, kept while its container starts again */
    LOCAL_VOLUME_MEMORY, /* the same in memory; empty again after a restart of the container */
    LOCAL_VOLUME_CLAIM,  /* a PersistentVolumeClaim: one folder for all pods */
    LOCAL_VOLUME_HOST,   /* a path of this machine */
};

/* hostPath.type: the kind of file that has to be at the path; *_OR_CREATE is made where nothing is. */
enum local_host_type {
    LOCAL_HOST_ANY, /* not checked by a cluster */
    LOCAL_HOST_DIRECTORY_OR_CREATE,
    LOCAL_HOST_DIRECTORY,
    LOCAL_HOST_FILE_OR_CREATE,
    LOCAL_HOST_FILE,
    LOCAL_HOST_SOCKET,
    LOCAL_HOST_CHAR_DEVICE,
    LOCAL_HOST_BLOCK_DEVICE,
    LOCAL_HOST_TYPES
};

struct local_file {
    char *path; /* relative, without .. */
    char *data;
    size_t length;
    unsigned mode;
    bool varies; /* data has marks of attempts (job.h) */
};

struct local_volume {
    const void *key; /* pods of one template share it; NULL: of one pod alone */
    char *name;
    enum local_volume_type type;
    struct local_file *files;
    size_t file_count;
    int64_t size_limit;             /* MEMORY: bytes, 0 for none */
    char *source;                   /* CLAIM: its name; HOST: the path */
    enum local_host_type host_type; /* HOST */
};

struct local_volumes {
    struct local_volume *list;
    int count;
};

struct local_mount {
    int volume;     /* index */
    char *path;     /* absolute, without . and .., no slash at the end */
    char *sub_path; /* relative inside the volume; NULL: all of it */
    bool read_only;
};

/* The file at a path inside a volume of files; NULL for none. */
const struct local_file *local_volume_file(const struct local_volume *volume, const char *path);
/* The mount that path lies in, by the longest of its paths; NULL for none. *rest is the part below, without
 * a slash at its front. */
const struct local_mount *local_mount_of(const struct local_mount *mounts, int count, const char *path,
                                         const char **rest);
/* "DirectoryOrCreate"; "" for LOCAL_HOST_ANY. */
const char *local_host_type_name(enum local_host_type type);
void local_volumes_free(struct local_volumes *volumes);

/* --- pods and the job --- */

enum local_kind { LOCAL_PYTORCHJOB, LOCAL_JOB, LOCAL_JOBSET, LOCAL_TRAINJOB };
enum local_replica_type { LOCAL_MASTER, LOCAL_WORKER, LOCAL_REPLICA_TYPES };
enum local_restart_policy {
    LOCAL_RESTART_ON_FAILURE,
    LOCAL_RESTART_ALWAYS,
    LOCAL_RESTART_NEVER,
    LOCAL_RESTART_EXIT_CODE
};
enum local_clean_policy { LOCAL_CLEAN_NONE, LOCAL_CLEAN_RUNNING, LOCAL_CLEAN_ALL };

/* One pod. All texts are its own memory. */
struct local_pod {
    char *name;         /* <job>-master-0, <job>-worker-<i>; of a Job <job>-<i>, without its random end */
    char *hostname;     /* the same, unless the template names one */
    char *own_hostname; /* what hostname prints in it: hostname, but for hostnameOverride and
                           setHostnameAsFQDN */
    char *subdomain;    /* Job: <hostname>.<subdomain> is its name for others; NULL: it has none */
    char *address; /* loopback address of the name, also the pod's status.podIP: 127.77.0.1 for the first pod,
                      127.77.0.2 for the second (network_claim) */
    enum local_replica_type type;
    int group;      /* Job: index into groups */
    int index;      /* within its replica type or group */
    char **env;     /* NULL-terminated NAME=value: the effective map of the container named pytorch, user's
                       entries first, then the operator's, the last of a name wins, $(VAR) expanded */
    char **command; /* NULL-terminated: command and args, $(VAR) expanded, torchrun replaced by muster run;
                       NULL if unknown (dry run) */
    char **env_of_attempt, **command_of_attempt; /* the same with marks of attempts (local_attempt_text);
                                                    NULL: they are the same at each attempt */
    char **aliases;                              /* hostAliases: "address name name"; NULL: none */
    char *working_dir;                           /* NULL: the caller's */
    int gpus;       /* limits of a resource whose name is an NVIDIA GPU's; 0 for none */
    bool claims;    /* it has devices by resource claims, whose number is unknown */
    double grace_s; /* terminationGracePeriodSeconds, 30 where not given */
    struct local_mount *mounts;
    int mount_count;
};

struct local_replica {
    int count; /* 0: the job has none of this type */
    enum local_restart_policy restart_policy;
};

/* podFailurePolicy: the action of a Job's controller for a pod with such an exit code, or (others) with
 * another. */
enum local_failure_action {
    LOCAL_FAILURE_COUNT,
    LOCAL_FAILURE_IGNORE,
    LOCAL_FAILURE_FAIL_JOB,
    LOCAL_FAILURE_FAIL_INDEX
};
struct local_failure_rule {
    enum local_failure_action action;
    bool others;
    int *codes;
    int code_count;
};

/* successPolicy of a Job: these pods (NULL: any), so many of them. */
struct local_success_rule {
    bool *indexes; /* as the group's pods */
    int count;     /* 0: all of indexes */
};

enum { LOCAL_DEPENDENCIES_LIMIT = 10 };
struct local_dependency {
    int number; /* the replicated job's */
    bool ready; /* once its pods run, rather than once they are complete */
};

/* One Job of batch/v1: alone, or in a JobSet. Its pods follow each other, by index. */
struct local_group {
    char *name;                               /* the Job's: <jobset>-<replicated job>-<index> in a JobSet */
    char *replicated;                         /* the replicated job's name; "" for a Job alone */
    int number;                               /* the replicated job's in its JobSet */
    int first, count;                         /* pods */
    int parallelism;                          /* at most so many at once */
    enum local_restart_policy restart_policy; /* OnFailure or Never */
    int64_t backoff_limit;
    bool per_index;            /* failures count for each index, not for the whole Job: */
    int64_t index_limit;       /* backoffLimitPerIndex */
    int64_t failed_indexes;    /* maxFailedIndexes; -1: any number */
    int64_t active_deadline_s; /* limit of one Job of a JobSet; 0: none */
    struct local_failure_rule *rules;
    int rule_count;
    struct local_success_rule *success; /* one rule that holds is enough; none: all pods */
    int success_count;
    struct local_dependency after[LOCAL_DEPENDENCIES_LIMIT]; /* starts after all of these; none: at once */
    int after_count;
    bool decides; /* counts for the JobSet's success */
};

/* Why a Job failed, as its controller calls it. symbol, reason */
#define LOCAL_FAILURES(X)                                                                                    \
    X(LOCAL_FAILED_BACKOFF, "BackoffLimitExceeded")                                                          \
    X(LOCAL_FAILED_DEADLINE, "DeadlineExceeded")                                                             \
    X(LOCAL_FAILED_INDEXES, "FailedIndexes")                                                                 \
    X(LOCAL_FAILED_MAX_INDEXES, "MaxFailedIndexesExceeded")                                                  \
    X(LOCAL_FAILED_POLICY, "PodFailurePolicy")
enum local_failure {
#define LOCAL_FAILURE_ENUM(symbol, reason) symbol,
    LOCAL_FAILURES(LOCAL_FAILURE_ENUM)
#undef LOCAL_FAILURE_ENUM
        LOCAL_FAILURE_TYPES
};

/* failurePolicy.rules of a JobSet. The first that fits a failed Job decides; without one all Jobs are made
 * anew, up to max_restarts. symbol, name, meaning */
#define LOCAL_RESTARTS(X)                                                                                    \
    X(LOCAL_RESTART_SET, "RestartJobSet", "all Jobs, up to maxRestarts")                                     \
    X(LOCAL_RESTART_SET_FREELY, "RestartJobSetAndIgnoreMaxRestarts", "all Jobs, as often as it takes")       \
    X(LOCAL_RESTART_JOB, "RestartJob", "the failed Job, up to maxRestarts")                                  \
    X(LOCAL_RESTART_JOB_FREELY, "RestartJobAndIgnoreMaxRestarts", "the failed Job, as often as it takes")    \
    X(LOCAL_FAIL_SET, "FailJobSet", "none, the JobSet fails at once")
enum local_restart_action {
#define LOCAL_RESTART_ENUM(symbol, name, meaning) symbol,
    LOCAL_RESTARTS(LOCAL_RESTART_ENUM)
#undef LOCAL_RESTART_ENUM
        LOCAL_RESTART_ACTIONS
};
struct local_restart_rule {
    enum local_restart_action action;
    char *name;
    bool *targets;    /* by number of the replicated job; NULL: any */
    unsigned reasons; /* bit 1 << enum local_failure; 0: any */
    char **patterns;  /* extended regular expressions; the message matches at least one; NULL: any */
};

struct local_job {
    enum local_kind kind;
    char *name, *namespace_;
    struct local_replica replicas[LOCAL_REPLICA_TYPES];
    bool elastic;
    int min_replicas, max_replicas; /* elastic: after the operator's defaulting */
    enum local_clean_policy clean_policy;
    int64_t backoff_limit;     /* -1: none */
    int64_t active_deadline_s; /* -1: none */
    int64_t ttl_s;             /* ttlSecondsAfterFinished, -1: none */
    bool suspended;            /* spec.runPolicy.suspend */
    struct local_pod *pods;    /* master first, then workers by index */
    int pod_count;
    int spare_count;            /* elastic: workers after these, up to max_replicas, for scaling up */
    struct local_group *groups; /* for all kinds but PyTorchJob */
    int group_count;
    int max_restarts; /* JobSet: how often Jobs are made anew after a failure */
    struct local_restart_rule *restart_rules;
    int restart_rule_count;
    bool success_any; /* JobSet: one Job is enough */
    struct local_volumes volumes;
    char *apart;    /* why the pods form a world each instead of one; NULL: they do not */
    int port;       /* the master's (elastic: worker's) pytorchjob-port, 23456 by default */
    char *warnings; /* newline-separated, NULL for none: unknown fields, deprecated ones, features not
                       emulated */
};

/* "PyTorchJob", "Job", ... */
const char *local_kind_name(enum local_kind kind);
/* The kind's word for success: "Succeeded", "Complete", "Completed". */
const char *local_kind_success(enum local_kind kind);
/* restartPolicy of a pod. */
enum local_restart_policy local_job_policy(const struct local_job *job, int pod);
const char *local_policy_name(enum local_restart_policy policy);

/* "RestartJobSet", "BackoffLimitExceeded" */
const char *local_restart_action_name(enum local_restart_action action);
const char *local_failure_name(enum local_failure failure);

/* Marks in texts of a pod, for its labels restart-attempt and job-restart-attempt, whose values only the
 * runner knows. */
#define LOCAL_ATTEMPT_SET "\002set\003"
#define LOCAL_ATTEMPT_JOB "\002job\003"
bool local_has_attempt(const char *text);
/* The text with numbers in place of the marks, in fresh memory. */
char *local_attempt_text(const char *text, int set_attempt, int job_attempt);

/* Frees the job's memory and zeroes it. */
void local_job_free(struct local_job *job);

/* --- the network ---
 *
 * The 127.x.0.0/16 of a run's pods: concurrent runs on one machine have different ones, so that each can use
 * the same port. */

enum { NETWORK_FIRST = 77, NETWORK_LAST = 126 };

/* Takes the first x without another run, for as long as *fd is open, which closes on exec. NETWORK_FIRST
 * with *fd -1 if none is free or none can be taken. */
int network_claim(int *fd);

#endif
