/* hang_dump.h - the kernel's view of hung processes: where their threads wait, and in which system call. A
 * process that has a handler for SIGUSR1 (its default action would end it) is sent one, to print more on
 * its stderr. Read by a thread: /proc of a hung process may hang too. */
#ifndef MUSTER_LAUNCHER_PROCESS_HANG_DUMP_H
#define MUSTER_LAUNCHER_PROCESS_HANG_DUMP_H

#include <stddef.h>
#include <sys/types.h>

#include "launcher/loop/background_job.h"
#include "proto/base/buffer.h"

struct hang_dump {
    size_t count;       /* of sessions */
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

#endif
