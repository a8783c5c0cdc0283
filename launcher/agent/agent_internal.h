/* agent_internal.h - the agent, and what its parts (agent_*.c) share. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_INTERNAL_H
#define MUSTER_LAUNCHER_AGENT_AGENT_INTERNAL_H

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "launcher/agent/agent.h"
#include "launcher/loop/background_watch.h"
#include "launcher/loop/loop.h"
#include "launcher/output/event_line.h"
#include "launcher/output/pump.h"
#include "launcher/policy/hang.h"
#include "launcher/policy/heartbeat.h"
#include "launcher/policy/job_state.h"
#include "launcher/policy/server_choice.h"
#include "launcher/policy/stop_notice.h"
#include "launcher/policy/worker_group.h"
#include "launcher/process/descendant_killer.h"
#include "launcher/process/descendants.h"
#include "launcher/process/guardian.h"
#include "launcher/verdict/postmortem.h"
#include "launcher/verdict/report.h"
#include "rendezvous/membership.h"

struct agent;

struct worker {
    int local_rank, rank;
    pid_t pid;                      /* of the session too; 0: not started */
    bool alive;                     /* not reaped */
    bool news;                      /* reaped, not yet turned into an event */
    int end_code, end_status;       /* si_code and si_status of its end */
    struct pump_stream *streams[3]; /* by descriptor number; NULL where it does not pass through us */
    struct agent *agent;            /* where beats is open */
    struct loop_source beats;       /* its heartbeats; fd -1: closed */
    struct loop_source notices;     /* our end of its notice socket; fd -1: closed */
    struct stop_notice_listener listener;
    struct instant begun, ended; /* ended: where it was reaped */
    bool named;                  /* as one that left early */
    char *stderr_file;           /* where stderr is redirected only */
    char *error_file;
};

struct observed_failure {
    struct worker_failure failure;
    struct instant at;
};

enum {
    AGENT_FAILURES_KEPT = 16, /* of one round, for the report; the first cause is the server's to name */
    AGENT_STOPPED_KEPT = 64,
};

enum { AGENT_DEAD_KEPT = 4096 + 1024 };

struct agent {
    const struct run_config *config;
    struct log_sink log; /* through the pump, so that it never blocks */
    char host[MACHINE_NAME_SIZE];
    char id[DESCENDANTS_ID_LENGTH + 1];
    char *id_chain;            /* MUSTER_AGENT_ID of the workers: the outer agents' ids, then ours */
    struct rlimit descriptors; /* what this process inherited; its own soft limit may be higher */
    struct rlimit core_dumps;  /* the same */
    struct job_keys keys;      /* of the job's secret */
    bool has_keys;
    sigset_t ignored; /* what this process inherited as ignored */

    struct loop loop;
    struct loop_source signals, seat, guard, name;
    struct guardian guardian;
    int guardians; /* started so far */
    struct pump *pump;
    struct agent_logs *logs; /* agent_output.c */
    struct membership *membership;
    struct resolver *resolver;
    bool resolved; /* its addresses can be asked for */
    struct tcpstore_server *store;
    struct loop_source store_knock; /* the first peer of store, which has no thread before; fd -1: it has */
    int held_port_fd;               /* holds held_port for the worker that serves the store; -1: none does */
    uint16_t held_port;
    bool following;                      /* resolver is for that */
    bool serves_here;                    /* the roster, or is trying to */
    struct instant look_up_at;           /* the server's name may be looked up again */
    struct background_watch port_asking; /* while who holds the port to serve on is looked for */
    struct port_question *port_question; /* of port_asking */
    struct instant started, join_deadline, waiting_since, progress_at;
    struct nccl_env *tune;                 /* the caller's */
    struct agent_tuning *tuning;           /* agent_nccl.c */
    struct agent_facts *facts;             /* agent_facts.c */
    char server_address[DESCRIPTION_NAME]; /* numeric, as this node or the others dial it; "" unknown */
    struct agent_audience *audience;       /* who can ask for the status; agent_status.c */

    struct worker_group group;
    struct membership_world world;
    char restart_reason[MUSTER_ERROR_TEXT]; /* why the round before world was stopped, where it failed; "" */
    int64_t restarts_told;                  /* restart count of the last world that a restart was told of */
    char *run_directory;                    /* NULL: no log files */
    char *error_directory;  /* of error files where there are no log files; NULL: none either */
    bool prompt_errors;     /* it is made and discarded without a thread */
    char *program;          /* what is executed */
    struct worker *workers; /* nproc_per_node */
    int alive;
    struct heartbeat *beats; /* nproc_per_node */
    struct hang hang;
    int behind; /* local rank of the worker that the hang is told of */
    /* Why this round is stopped, as the server said; no STOP where it did not. */
    struct membership_event stop;
    struct background_watch asking; /* while what the kernel says of it is read */
    struct hang_dump *inquiry;      /* of asking */
    struct postmortem *postmortem;  /* of this round; NULL: not yet, or no memory */
    struct loop_source inquest;     /* its thread, while one is under way */
    struct instant inquest_deadline;
    struct instant sweep_at; /* next look for what is to be killed */
    struct descendant_killer sweeper;
    pid_t dead[AGENT_DEAD_KEPT]; /* reaped in this round: workers and what they left */
    int dead_count;
    int64_t round_wall_ns;            /* when this round's workers were started */
    struct background_watch cleaning; /* while what they left is removed */
    struct shm_cleanup *cleanup;      /* of cleaning */

    struct observed_failure failures[AGENT_FAILURES_KEPT]; /* the best, in order */
    int failure_count;
    struct report_stopped stopped[AGENT_STOPPED_KEPT]; /* of this round, by us */
    int stopped_count;                                 /* also those without room */
    int64_t failures_seen;                             /* in all rounds */
    struct membership_event verdict;                   /* kind VERDICT once there is one */
    bool judged;
    char end_reason[MUSTER_ERROR_TEXT]; /* where it ends without a verdict: why; "" where nothing is known */
    bool ran;                           /* a worker was started, in any round */
    int early_signal;                   /* one that stops the job came while it was set up; 0: none */
    bool finished;

    struct event_file *events; /* NULL: none */
    struct job_state state;    /* with --state-dir; kept by the agent that serves the job */
    bool resumes, serves;
    struct background_watch saving;
    struct state_file *state_file; /* of saving */
    bool save_again;               /* it changed meanwhile */
};

#define AGENT_KILL_BOUND_NS (30 * NS_PER_S) /* a killed process that frees much memory needs seconds */

#define AGENT_CLEAN_BOUND_NS (5 * NS_PER_S)

static inline int64_t agent_seconds_ns(double seconds)
{
    return (int64_t)(seconds * (double)NS_PER_S);
}

/* --- agent_actions.c --- */

/* Takes one step of the group and executes what it asks for. failure: for GROUP_FAILURE. */
void agent_event(struct agent *agent, const struct worker_group_event *event,
                 const struct worker_failure *failure);
/* KILL to all that is left, and when to look again. */
void agent_sweep(struct agent *agent);

/* Starts the workers, whose log files are open. */
void agent_begin_round(struct agent *agent);

/* --- agent_output.c --- */

/* Where one stream of one worker goes. */
struct agent_route {
    int fd; /* what the worker gets; ours to close where owned */
    bool owned;
};

int agent_open_pump(struct agent *agent, struct muster_error *err);
void agent_close_pump(struct agent *agent);
/* Makes the run directory, where files are wanted. */
int agent_prepare_logs(struct agent *agent, struct muster_error *err);
/* Has the log files of a round opened, then begins the round; at once where there are none. */
void agent_open_logs(struct agent *agent);
/* Whether a round waits for its files: it runs, and has no worker yet. */
bool agent_awaits_logs(const struct agent *agent);
struct instant agent_logs_deadline(const struct agent *agent);
void agent_logs_tick(struct agent *agent, struct instant now);
/* The round is over, or its files are not awaited any longer. */
void agent_close_logs(struct agent *agent);
/* Only while a round begins. */
int agent_route_stream(struct agent *agent, struct worker *worker, int stream, struct agent_route *route,
                       struct muster_error *err);

/* --- agent_membership.c --- */

int agent_join(struct agent *agent, struct muster_error *err);
/* address: what the server's host binds or its clients connect to; NULL in process. */
int agent_take_seat(struct agent *agent, enum membership_mode mode, const char *address,
                    struct muster_error *err);
/* The seat is gone, or cannot be had: says why, and the workers stop. */
void agent_lose_seat(struct agent *agent, const char *why, int exit_code);
/* There is no world, from now on: the first line about it comes after a while. */
void agent_begin_waiting(struct agent *agent, struct instant now);
/* What is waited for while there is no world, for people; "" where nothing is known. */
void agent_describe_waiting(const struct agent *agent, char *out, size_t size);
/* The same as a line of the log, every now and then. */
struct instant agent_progress_deadline(const struct agent *agent);
void agent_tell_progress(struct agent *agent, struct instant now);
/* Where the server is silent, looks whether its name has another address now. */
void agent_follow_server(struct agent *agent, struct instant now);
/* Handles what the seat has; called after every turn of the loop. */
void agent_ask_seat(struct agent *agent);

/* --- agent_store.c --- */

/* Where this node serves the job: opens the workers' store, or holds a port for rank 0's. */
int agent_open_store(struct agent *agent, struct muster_error *err);
void agent_close_store(struct agent *agent);
/* What workers are told to connect to, if this agent has group rank 0; the port is 0 where it has no store.
 */
const char *agent_store_address(const struct agent *agent);
uint16_t agent_store_port(const struct agent *agent);
/* Another world than the first forms: its store is an empty one. Returns its port where that is not the last
 * world's, else 0. Any thread: nothing of it changes elsewhere while there is a seat. */
uint16_t agent_renew_store(struct agent *agent);

/* --- agent_server.c --- */

/* --bind-addr; NULL: not given. */
static inline const char *agent_bind_address(const struct agent *agent)
{
    const char *given = agent->config->bind_addr;
    return given && *given ? given : NULL;
}

static inline uint16_t agent_master_port(const struct agent *agent)
{
    return (uint16_t)agent->config->master_port; /* never 0 with several nodes */
}
/* Takes the seat that hosts the roster, and opens the workers' store beside it. */
int agent_serve(struct agent *agent, struct muster_error *err);
const char *agent_address_to_serve(const struct agent *agent);
/* Of an elastic job: whether this node serves it (server_choice.h); the second when agent->resolver is done.
 */
enum server_choice agent_choose_server(const struct agent *agent);
bool agent_serves_resolved(const struct agent *agent);

/* --- agent_nccl.c --- */

int agent_open_tuning(struct agent *agent, struct muster_error *err);
/* Waits for what is being written, bounded. */
void agent_close_tuning(struct agent *agent);
/* A world is there, its workers are about to start: decides what they get, and says so where it is news. */
int agent_tune(struct agent *agent, struct muster_error *err);
/* What workers inherit. */
char *const *agent_environment(const struct agent *agent);

/* --- agent_secret.c --- */

/* Where several nodes have a secret: reads it, once, and sees to it that no core dump holds it. */
int agent_read_secret(struct agent *agent, struct muster_error *err);
/* This node serves the job at address: whether everybody who reaches it may join is said loudly. */
void agent_warn_of_strangers(const struct agent *agent, const char *address);

/* --- agent_facts.c --- */

int agent_open_facts(struct agent *agent, struct muster_error *err);
/* Accepts an agent that has not opened them. */
void agent_close_facts(struct agent *agent);
/* The workers of a world were started: tells the other nodes what this one has, in the background. */
void agent_exchange_facts(struct agent *agent);

/* --- agent_signals.c --- */

int agent_watch_signals(struct agent *agent, struct muster_error *err);
/* Before the loop turns: waits so long until fd is readable. -1 with MUSTER_E_TIMEOUT, or MUSTER_E_CANCELLED
 * where a signal that stops the job comes first (early_signal). what: for the error. */
int agent_await(struct agent *agent, int fd, int64_t patience_ns, const char *what, struct muster_error *err);
/* The same for the end of an errand, whose payload may be looked at then. */
int agent_await_errand(struct agent *agent, const struct background_job *errand, int64_t patience_ns,
                       const char *what, struct muster_error *err);
/* Where PID 1 is a shell that keeps signals to itself, says so and what helps. */
void agent_warn_of_init(const struct agent *agent);

/* --- agent_guardian.c --- */

/* Makes orphans of the workers this agent's children. Both go on with a warning where an emulator lacks it.
 */
int agent_adopt_orphans(struct agent *agent, struct muster_error *err);
/* Starts a guardian that knows the sessions there are, and another one where it dies. */
int agent_watch_guardian(struct agent *agent, struct muster_error *err);

/* --- agent_round.c --- */

/* Starts all workers of agent->world back to back. On failure (which failure then describes) those that were
 * started are left to be stopped. */
int agent_start_workers(struct agent *agent, struct worker_failure *failure);
/* Fills in who failed, when and where; not how. */
void agent_describe_start(const struct agent *agent, const struct worker *worker, const char *why,
                          struct worker_failure *failure);
void agent_describe_worker(const struct agent *agent, const struct worker *worker,
                           struct worker_failure *failure);

/* --- agent_clean.c --- */

/* Removes what the dead of this round left behind; GROUP_CLEANED comes when it is done. */
void agent_clean(struct agent *agent);
void agent_stop_cleaning(struct agent *agent);

/* --- agent_heartbeats.c --- */

/* *writer becomes the worker's. */
int agent_open_beats(struct agent *agent, struct worker *worker, int *writer, struct muster_error *err);
void agent_close_beats(struct agent *agent, struct worker *worker);
/* The worker was reaped. */
void agent_end_beats(struct agent *agent, struct worker *worker);
/* Whether the ends that were just collected are not to be handled yet: they belong to a hang, which tells of
 * them as one failure. */
bool agent_holds_ends(struct agent *agent);
/* The workers are being stopped: who hangs does not matter any more. */
void agent_reset_hang(struct agent *agent);
/* When to call agent_beats_tick. */
struct instant agent_beats_deadline(const struct agent *agent);
void agent_beats_tick(struct agent *agent, struct instant now);

/* --- agent_notices.c --- */

/* *theirs becomes the worker's; worker->notices.fd is -1 until then. */
int agent_open_notices(struct agent *agent, struct worker *worker, int *theirs, struct muster_error *err);
void agent_close_notices(struct agent *agent, struct worker *worker);
/* Live workers that listen, as far as they have said so by now. */
int agent_count_listeners(struct agent *agent);
/* What stops the round, as the server said or as this agent was asked. */
enum membership_change agent_coming(const struct agent *agent);
/* SAVING begins, or its end comes nearer: those that listen are told, the others get the signal. */
void agent_announce(struct agent *agent);
/* SAVING is over: says who did not use the time. */
void agent_end_notice(struct agent *agent);

/* --- agent_errors.c --- */

/* -1 where a signal stops the job meanwhile. Where it cannot be made there is none. */
int agent_make_error_directory(struct agent *agent, struct muster_error *err);
/* At the end, bounded. */
void agent_discard_error_directory(struct agent *agent);

/* --- agent_reap.c --- */

/* Reaps whatever has died, ours and adopted, and turns it into events. */
void agent_reap(struct agent *agent);
/* Fills in who failed and how: how it ended, its last words. */
void agent_describe_end(struct agent *agent, struct worker *worker, struct worker_failure *failure);

/* --- agent_failures.c --- */

/* A round starts, its workers have not. */
void agent_begin_failures(struct agent *agent);
/* They were started, the first at that time: what the kernel says of them is watched for. A thread that opens
 * files has no part in the start itself. */
void agent_watch_kernel(struct agent *agent, struct instant started);
/* Lets go of the round's. */
void agent_end_failures(struct agent *agent);
/* A worker of this node failed: what is known of it, age_ns before now. The report follows when its remains
 * were looked at. */
void agent_report_failure(struct agent *agent, const struct worker_failure *failure);
/* The same for one that had been told to stop: it is a failure only if its last words say so. */
void agent_suspect(struct agent *agent, const struct worker_failure *failure);
/* What is left of the workers (the sweeper knows) survives KILL: the node is unfit, which the others are
 * told. */
void agent_report_unkillable(struct agent *agent);
/* The node that serves the world, its rank 0, is lost: a cause like any other lost node, ours to name since
 * nobody else is left who could. */
void agent_note_lost_server(struct agent *agent);
/* It was terminated by us. */
void agent_note_stopped(struct agent *agent, const struct worker_failure *failure);
/* After every turn of the loop: sends the thread for those that wait. */
void agent_look_after_the_dead(struct agent *agent);
void agent_failures_tick(struct agent *agent, struct instant now);
/* The round is not over before everything is told. */
bool agent_has_untold_failures(const struct agent *agent);
/* At the end: waits for the thread, bounded. */
void agent_settle_failures(struct agent *agent);

/* --- agent_processes.c --- */

/* signal to the session of every live worker; what has left it is not reached. */
void agent_signal_workers(const struct agent *agent, int signal);
/* signal, then CONT, to every session and to all kin outside of them. */
void agent_terminate_workers(struct agent *agent, int signal);
/* KILL to every session and all kin. */
void agent_kill_workers(struct agent *agent);
/* Says which processes are left. */
void agent_name_stuck(struct agent *agent);
/* Whether not even an orphan is left. */
bool agent_is_childless(void);
/* The sessions of this round's workers, the caller's to free; NULL without memory. */
struct descendants_session *agent_list_sessions(const struct agent *agent, size_t *count);
/* Closes what belongs to workers of the round that is over. */
void agent_release_workers(struct agent *agent);

/* --- agent_status.c --- */

/* From now on `muster status` finds this agent, and the metrics port answers where one was given. */
int agent_open_status(struct agent *agent, struct muster_error *err);
/* Accepts an agent that has not opened it. */
void agent_close_status(struct agent *agent);

/* --- agent_events.c --- */

int agent_open_events(struct agent *agent, struct muster_error *err);
void agent_close_events(struct agent *agent);
/* An event of the agent itself; for SUCCEEDED and FAILED group.exit_code is decided. */
void agent_tell(struct agent *agent, enum event_state state, int64_t duration_ns);
/* The end of a worker; failure: where it ended by itself, and not well. */
void agent_tell_worker(struct agent *agent, const struct worker *worker,
                       const struct worker_failure *failure);

/* --- agent_job_state.c --- */

/* Reads what --state-dir knows of the job; *over: it has ended, with agent->state.exit_code. Waits as
 * agent_await does. */
int agent_read_job(struct agent *agent, bool *over, struct muster_error *err);
/* This agent will serve the job: what is used up counts. -1 (MUSTER_E_STATE) where that is more than there
 * is. */
int agent_resume_job(struct agent *agent, struct muster_error *err);
/* Keeps the restart count of agent->world. */
void agent_keep_count(struct agent *agent);
/* Keeps how the job ended, or that it may go on. Blocks, with a bound. */
void agent_keep_end(struct agent *agent);

/* --- agent_outcome.c --- */

/* Of a run that failed: the report and the verdict, on the console and in files. exit_code: what the agent
 * leaves with. */
void agent_tell_outcome(struct agent *agent, int exit_code);

#endif
