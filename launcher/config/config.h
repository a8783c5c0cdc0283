/* config.h - the configuration of `muster run`: flags, PET_* defaults and rules, resolved into one struct.
 *
 * Two pure steps: config_parse reads the command line and, through a callback, the environment;
 * config_resolve then computes the values that depend on the machine. The table of rows is the only list
 * of settings.
 *  */
#ifndef MUSTER_LAUNCHER_CONFIG_CONFIG_H
#define MUSTER_LAUNCHER_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/host/machine.h"
#include "launcher/host/numa.h"
#include "launcher/host/signal_names.h"
#include "proto/base/buffer.h"
#include "proto/base/knob.h"
#include "proto/base/text_list.h"
#include "proto/include/muster_error.h"

/* --- --rdzv-conf ---
 *
 * The text of --rdzv-conf, torchrun's "key=value,key=value", read into typed values (pure).
 *
 * As torchrun does, an unknown key is accepted, quotes that a shell or a manifest left around the whole list
 * are removed, and the last value of a key wins. Unlike it, a known key's value is checked here. */

enum { RDZV_CONF_UNSET = -1 };

/* RDZV_CONF_UNSET if the key was not given. Durations are in seconds and above 0. */
struct rdzv_conf {
    double join_timeout, last_call_timeout, timeout;
    int64_t rank;
    int is_host; /* 0 or 1 */
};

/* where: the setting's name in errors ("--rdzv-conf", "PET_RDZV_CONF"). aside gets the names of the given
 * keys without effect, separated by ", ", each once: unknown ones, and those for mechanisms that muster
 * does not use (close_timeout, keep_alive_interval, use_libuv and others). text may be NULL. */
int rdzv_conf_parse(const char *text, const char *where, struct rdzv_conf *conf, struct buffer *aside,
                    struct muster_error *err);

enum stream_bits { STREAM_NONE = 0, STREAM_STDOUT = 1, STREAM_STDERR = 2, STREAM_BOTH = 3 };

enum program_kind { PROGRAM_PYTHON, PROGRAM_MODULE, PROGRAM_EXECUTABLE };

enum { CONFIG_WORKERS_LIMIT = 4096, CONFIG_NODES_LIMIT = 16384, CONFIG_ROWS_LIMIT = 96 };

/* muster run; muster launch, which is python -m torch.distributed.launch; muster env, which needs no program.
 */
enum config_command { COMMAND_RUN, COMMAND_LAUNCH, COMMAND_ENV };

/* --signal-scope */
enum signal_scope {
    SIGNAL_SCOPE_WORKER, /* the worker's process; its descendants when all workers have ended */
    SIGNAL_SCOPE_GROUP,  /* its whole session, and descendants that have left it */
};

/* Which process serves the workers' store. */
enum worker_store { WORKER_STORE_AGENT, WORKER_STORE_WORKER };

/* --warm without a value: what torch loads itself only when DDP or FSDP is built counts too. */
#define CONFIG_WARM_MODULES "torch,torch._dynamo"
#define CONFIG_WARM_KEEP    "900" /* --warm-keep without a value; seconds */

enum config_output { OUTPUT_TEXT, OUTPUT_JSON, OUTPUT_MARKDOWN };

/* --nccl-tune */
enum tune_mode {
    NCCL_ENV_ON,
    NCCL_ENV_OFF,     /* only a policy file's settings */
    NCCL_ENV_EXPLAIN, /* as on, with every decision and its reason printed */
};

/* --exit-code */
enum exit_mode {
    EXIT_MODE_FIRST,    /* the first cause's code, and the table in proto/exit_code.h */
    EXIT_MODE_TORCHRUN, /* torchrun's: plain 1 for every failure, and for a signal once workers ran */
};

/* A variable that a configuration file gives the workers. */
struct config_variable {
    const char *name; /* static */
    char *value;
    const char *place; /* "fsdp.yaml:12" */
    bool kept;         /* the environment's own value is another, and stays */
};

/* In the order of --hang-watch's words. */
enum mpi_choice { MPI_CHOICE_AUTO, MPI_CHOICE_ON, MPI_CHOICE_OFF };
enum hang_watch { HANG_WATCH_HEARTBEATS, HANG_WATCH_OUTSIDE };

enum { CONFIG_ENDPOINTS = 8, CONFIG_ENDPOINT_HOST = 254 };

/* A place where the job may be found. */
struct config_endpoint {
    char host[CONFIG_ENDPOINT_HOST];
    uint16_t port;
};

struct run_config {
    /* world */
    bool standalone;
    char *nnodes; /* as typed, "2" or "1:4" */
    int min_nodes, max_nodes;
    bool elastic; /* nodes meet at master_addr:master_port, the endpoint, which ranks them */
    int64_t node_rank;
    int wanted_rank;    /* node_rank; -1 in an elastic job if it was not given */
    char *nproc;        /* as typed: a number, cpu, gpu or auto */
    int nproc_per_node; /* >= 1 after config_resolve */
    char *master_addr;
    int64_t master_port; /* 0: choose */
    char *rdzv_id;
    char *rdzv_backend;  /* static or c10d */
    char *rdzv_endpoint; /* host:port; with static it is another spelling of master_addr and master_port; or
                            a list of them, of which the first is that */
    struct config_endpoint endpoints[CONFIG_ENDPOINTS]; /* the list, with its first entry */
    int endpoint_count;                                 /* 0: no list, but at most one endpoint */
    bool endpoints_derived; /* the list is of the names of the job's other pods; not given, and no setting */
    int own_endpoint;       /* of a derived list: this node's entry; -1: none */
    char *rdzv_conf_text;   /* as typed */
    struct rdzv_conf rdzv_conf;
    char *role;
    int64_t max_restarts;
    double restart_backoff_s, exit_barrier_s;
    char *state_dir; /* NULL: none */
    double join_timeout_s, last_call_timeout_s, regroup_interval_s;
    char *local_addr;          /* NULL: not given */
    char *bind_addr;           /* numeric; NULL: not given */
    char *full_name;           /* this machine's, "" if unknown; elastic jobs only */
    char *port_range;          /* as typed; NULL: any */
    int first_port, last_port; /* ends of port_range; 0: any */
    int worker_store;          /* enum worker_store */
    char *secret_file;         /* NULL: none */
    bool require_auth;
    char *hosts, *hostfile, *ssh; /* launcher/hosts/; NULL: none */
    char *accelerate_config;      /* a file, read by launcher/accelerate/; NULL: none */
    int64_t all_workers; /* number on all nodes together, from a file; nproc_per_node follows from it. 0: not
                            given */
    const char *all_workers_place;
    struct config_variable *variables; /* variable_count of them */
    size_t variable_count;
    struct text_list places; /* places of the values that come from a file */
    /* workers */
    bool module, no_python;
    bool virtual_local_rank;
    bool use_env;     /* only with COMMAND_LAUNCH */
    int numa_binding; /* enum numa_binding */
    struct numa_mask
        *cpus; /* one set for each worker, nproc_per_node; NULL: unbound (config_binding_resolve) */
    double shutdown_timeout_s;                   /* grace between TERM and KILL */
    double notice_timeout_s;                     /* the same before new nodes join; 0: shutdown_timeout_s */
    char *signals_to_handle, *forward_signals;   /* as typed: names separated by commas */
    signal_bits stop_signals, forwarded_signals; /* the same, without unknown signals */
    int signal_scope;                            /* enum signal_scope */
    char *warm;             /* modules of the template, separated by commas; NULL or "": workers start cold */
    double warm_keep_s;     /* 0: the template ends with the job */
    int mpi_choice;         /* enum mpi_choice */
    double hang_timeout_s;  /* 0: off */
    int hang_watch;         /* enum hang_watch */
    double restart_grace_s; /* the same before a restart */
    int cores; /* available to the workers: affinity and cgroup quota, >= 1 after config_resolve */
    enum program_kind kind; /* after find_program_check (launcher/process/find_program.h), and so: */
    bool mpi;               /* workers get PMI-1 (launcher/pmi/pmi.h) */
    char *interpreter;      /* for Python programs without PYTHON_EXEC; NULL: python3 of PATH */
    /* logs */
    char *log_dir;
    char *event_log_handler; /* null, console, or a path with a slash */
    char *redirects, *tee;   /* as typed: a number or local:value,... */
    char *line_prefix; /* template of launcher/output/line.h; NULL until config_check_logs, "" for none */
    char *local_ranks_filter;                                  /* as typed; NULL: all are shown */
    char *duplicate_stdout_filters, *duplicate_stderr_filters; /* as typed */
    int log_format;                 /* enum log_format of launcher/output/log_record.h */
    int64_t log_max_size, log_keep; /* bytes, 0: no bound; older files */
    double log_open_timeout_s;
    int64_t log_spool_size; /* bytes; 0: no spool */
    int64_t store_memory;   /* bytes; 0: by the number of workers */
    /* health */
    int64_t metrics_port;  /* 0: none */
    char *metrics_addr;    /* numeric; NULL: every address */
    char *page_token_file; /* NULL: none, the page is for this machine alone */
    char *progress_url;    /* Kubeflow Trainer's; NULL: the job's progress is not reported */
    char *progress_token_file, *progress_ca_file; /* NULL: none */
    int nccl_tune;                                /* enum tune_mode */
    char *nccl_policy;                            /* a file; NULL: none */
    int pre_flight;                               /* 1: this node is examined before it joins */
    /* the end */
    int exit_mode; /* enum exit_mode */
    char *termination_log;
    bool termination_log_asked; /* by name */
    /* the command */
    enum config_command command; /* the caller's, before config_parse */
    bool dry_run, help;
    int output;                /* enum config_output */
    double monitor_interval_s; /* these two flags of torchrun are accepted without effect */
    int start_method;
    const char *program;                    /* the script, module or program: points into argv */
    char *const *arguments;                 /* the arguments after it, NULL-terminated: points into argv */
    uint8_t sources[CONFIG_ROWS_LIMIT];     /* enum knob_source of each row */
    const char *reasons[CONFIG_ROWS_LIMIT]; /* the source of the row, if that was a rule or a file */
    char *place_source;                     /* the reason of the rule of node_identity.h */
    char *notes, *warnings;                 /* lines to announce, newline-separated; NULL for none */
};

const struct knob_table *config_table(void);
/* Whether nodes meet over the network: several, or one for whose place others wait. */
static inline bool config_meets(const struct run_config *config)
{
    return config->max_nodes > 1 || config->elastic;
}

/* Whether this agent shows the job: a page, a board that is kept, progress for Kubeflow Trainer. */
static inline bool config_shows_job(const struct run_config *config)
{
    return config->metrics_port || config->state_dir || config->progress_url;
}

/* argv without the leading "muster run", NULL-terminated. get reads an environment variable. Fills config,
 * which must be zeroed but for its command; config_free on success and on failure. With help set nothing else
 * was checked. Errors are MUSTER_E_INVALID or MUSTER_E_UNSUPPORTED (usage, exit 2) with one line, or
 * MUSTER_E_NOMEM. */
int config_parse(int argc, char *const argv[], const char *(*get)(void *context, const char *name),
                 void *context, struct run_config *config, struct muster_error *err);
/* Whether the GPUs must be known exactly, which requires NVML: to count workers or bind them, or because
 * the count by /dev needs a warning. After config_parse. */
bool config_wants_gpus(const struct run_config *config, const struct machine *machine);
/* After config_parse: the combined meaning of the values on this machine. The place in the world
 * (config_world.c), the resources for the workers, and a random job id for a single node without one. */
int config_resolve(struct run_config *config, const struct machine *machine,
                   const char *(*get)(void *context, const char *name), void *context,
                   struct muster_error *err);
/* The setting's variable that a variable of the environment probably means: its name begins with PET_ or
 * MUSTER_ and is a letter or a few away. NULL: it is known, or near none. */
const char *config_meant_variable(const char *name);
/* Warns of each of those ("NAME=value" entries, NULL-terminated). */
int config_warn_of_variables(struct run_config *config, char *const *environment, struct muster_error *err);
/* --- values of a configuration file, between config_parse and config_resolve; place is "file:line" --- */

/* Whether neither a flag nor a variable (nor a rule) has set the row: a file may. */
bool config_is_free(const struct run_config *config, const char *name);
/* Sets the row if it is free. */
int config_set_from_file(struct run_config *config, const char *name, const char *text, const char *place,
                         struct muster_error *err);
/* The number of workers of all nodes together. */
int config_set_all_workers(struct run_config *config, int64_t workers, const char *place,
                           struct muster_error *err);
/* Lists a variable that the caller sets for the workers (kept: does not). name is static. */
int config_add_variable(struct run_config *config, const char *name, const char *value, const char *place,
                        bool kept, struct muster_error *err);
/* Adds a line to the announcement at the start, as information or as a warning, which the job's page has,
 * too. */
int config_note(struct run_config *config, struct muster_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int config_warn(struct run_config *config, struct muster_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* After a failed config_parse the environment may not have been read: sets the values needed to report the
 * failure (termination_log). Changes nothing after a config_parse that succeeded. */
void config_salvage(struct run_config *config, const char *(*get)(void *context, const char *name),
                    void *context);
/* The source of a row: its flag or variable, a rule's reason, "default". scratch is for the flag. */
enum { CONFIG_SETTING_SIZE = 64 };
const char *config_origin(const struct run_config *config, const struct knob *knob,
                          char scratch[CONFIG_SETTING_SIZE]);
void config_free(struct run_config *config);

/* "usage: <name> [flags] program ..." and the help of every row, appended. */
extern const char config_description[]; /* what --help prints before the flags */
int config_help(const char *name, int columns, struct buffer *out);
/* launcher/docs/FLAGS.md, appended. */
int config_markdown(struct buffer *out);
/* The stream bits of one local rank in a --redirects / --tee value ("3" or "0:1,1:2"); checked by
 * config_parse. A rank missing in a map has none. -1 if the value is malformed. */
int config_streams(const char *value, int local_rank);
/* Whether log files are needed at all: a log directory, a redirect or a tee is configured, and the
 * directory is not /dev/null. */
bool config_wants_log_directory(const struct run_config *config);

struct decision_list; /* runtime/nccl/decide/decide.h */
/* A resolved configuration as a table or, with --output=json, as one object: settings (name, variable,
 * value, source, from), node (computed values), notes, warnings and nccl: the decisions about NCCL's
 * environment (NULL: none). Appended; out remembers a failure. */
int config_print(const struct run_config *config, const struct machine *machine,
                 const struct decision_list *nccl, struct buffer *out);

/* --numa-binding on this machine: reads its topology and computes the CPUs of every worker.
 * After config_resolve and machine_read_gpus. Fills config->cpus; does nothing without --numa-binding.
 * Local rank n is bound near visible GPU n; without GPUs the workers use the NUMA nodes in turn. sys:
 * "/sys". A failure is an error: a worker on the wrong CPUs would be a silent loss. */
int config_binding_resolve(struct run_config *config, const struct machine *machine, const char *sys,
                           struct muster_error *err);

#endif
