/* hang_dump.h - processes seen from outside: the kernel's view of hung ones, their activity, the signals that
 * they handle. The view has the waits of their threads, with the system call. A process that has a handler
 * for SIGUSR1 (its default action would end it) is sent one, to print more on its stderr. Read by a thread:
 * /proc of a hung process may hang too. */
#ifndef MUSTER_LAUNCHER_PROCESS_HANG_DUMP_H
#define MUSTER_LAUNCHER_PROCESS_HANG_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "launcher/loop/background_job.h"
#include "launcher/policy/hang.h"
#include "proto/base/buffer.h"

struct hang_dump {
    size_t count;       /* number of sessions */
    struct buffer text; /* lines; owned by the background job until it is done */
    int asked;          /* processes that got SIGUSR1 */
    pid_t stopped;    /* the first of the sessions whose leader a signal or a debugger has stopped; 0: none */
    pid_t sessions[]; /* sessions whose processes are examined */
};

/* Frees nothing of the caller's; *dump is read once the background job is done and lives as long as it. */
struct background_job *hang_dump_start(const pid_t *sessions, size_t count, struct hang_dump **dump,
                                       struct muster_error *err);

/* Pure: threads of one process, equal ones counted together. */
enum { HANG_DUMP_KINDS_LIMIT = 12, HANG_DUMP_NAME_LIMIT = 48 };
struct hang_dump_threads {
    struct {
        char place[HANG_DUMP_NAME_LIMIT], call[HANG_DUMP_NAME_LIMIT];
        int count;
    } kinds[HANG_DUMP_KINDS_LIMIT];
    int kind_count, total;
};
/* wchan: text of /proc/PID/task/TID/wchan ("0" if it runs or is not readable); call: of .../syscall
 * ("running", or the number first). Kinds beyond the limit are counted in total only. */
void hang_dump_count(struct hang_dump_threads *threads, const char *wchan, const char *call);
/* "3 threads: 2 in futex (futex_wait_queue), 1 running" */
int hang_dump_format(const struct hang_dump_threads *threads, struct buffer *out);
/* The functions of a /proc/PID/stack text, innermost first: "futex_wait < do_futex < __x64_sys_futex". */
int hang_dump_format_stack(const char *stack, struct buffer *out);

/* --- signals ---
 *
 * Which signals a process handles. */

/* Whether it has a handler of its own for the signal now, by /proc/PID/status; false where that cannot be
 * read. */
bool process_handles(pid_t pid, int number);

/* --- activity ---
 *
 * Looks at workers from outside: processor time of their sessions, output in regular files, and what their
 * main threads wait in. On a background thread: /proc and log files may not respond. */

/* The job's payload, to be read when the job is done. */
struct activity_probe {
    size_t count;
    struct {
        pid_t session;                 /* a worker's, and its pid; 0: none */
        struct activity_sample sample; /* output: sizes of the regular files that are its stdout and stderr */
    } workers[];
};

/* Starts one look at the sessions; *probe belongs to the job. NULL with an error. */
struct background_job *activity_probe_start(const pid_t *sessions, size_t count,
                                            struct activity_probe **probe, struct muster_error *err);

/* utime + stime + cutime + cstime of a /proc/PID/stat text in clock ticks; -1 if it has none (pure). */
long long activity_probe_ticks(const char *stat_text);
/* The second number of a /proc/PID/schedstat text: for how long the main thread was ready and had no
 * processor; 0 if it has none (pure). */
int64_t activity_probe_starved_ns(const char *schedstat_text);

#endif
