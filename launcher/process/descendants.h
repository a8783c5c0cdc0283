/* descendants.h - finds and signals every process that belongs to an agent, wherever it hides.
 *
 * A process is a descendant if it carries the agent's mark (descendants_mark) or, in its environment, the
 * agent's id, lives in a session that the agent started, or is a child of the agent (which is a subreaper,
 * so that orphans become its children). The mark survives the steps of a daemon: a session of its own, an
 * empty environment, a parent that ends. Signals go through a pidfd that was opened before the last look,
 * so that a recycled pid is never hit.
 *
 * Guardians never count as descendants, not even guardians of an agent that runs inside this agent: they kill
 * their own agent's descendants and exit by themselves.
 *
 * Async-signal-safe, no allocation: the guardian runs it after a fork from a process with threads. */
#ifndef MUSTER_LAUNCHER_PROCESS_DESCENDANTS_H
#define MUSTER_LAUNCHER_PROCESS_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    DESCENDANTS_ID_LENGTH = 32,     /* 128 random bits in hexadecimal */
    DESCENDANTS_FAMILY_LENGTH = 12, /* 48 of them, which the parts of one run may share */
};

/* Unlike the agent's, and unlike each other: pkill by one name leaves the others. At most 15 bytes. */
#define DESCENDANTS_GUARDIAN_NAME "rank-guardian"
#define DESCENDANTS_SECOND_NAME   "rank-watchman"

struct descendants_session {
    pid_t id;
    bool leaderless; /* its leader was reaped: a process with this number is not ours */
};

struct descendants {
    const char *id;  /* DESCENDANTS_ID_LENGTH bytes; NULL: not looked for, nor is its mark */
    bool family;     /* marks of all ids with the same first DESCENDANTS_FAMILY_LENGTH bytes count */
    bool blind;      /* no environment is read: that may block */
    pid_t parent;    /* its children are descendants; 0: not looked for */
    pid_t reaper;    /* the same, and it is excluded (launcher/warm/warm_reaper.h); 0: none */
    pid_t except[2]; /* excluded: the agent and its guardian; 0 for none */
    pid_t
        keeper; /* excluded with its children, a template of workers (launcher/warm/warm_keeper.h); 0: none */
    const struct descendants_session *sessions; /* whose members are descendants */
    size_t session_count;
    const pid_t *unread; /* processes whose environment is not read: it hung before */
    size_t unread_count;
    pid_t *reading; /* atomic; process whose environment is being read, which may block for ever; 0: none. May
                       be NULL */
    unsigned *looked; /* atomic; grows with each process that is examined. May be NULL */
    /* Sends the signal in place of descendants_sweep; pidfd is -1 if the kernel has none. NULL: it is sent
     * at once */
    void (*deliver)(void *context, int pidfd, pid_t pid, int signal);
};

struct descendants_process {
    pid_t pid, parent, group, session;
    char state;    /* as in /proc/PID/stat; 'D' cannot be killed now */
    char name[16]; /* the command, NUL-terminated */
};

/* Examines every process once; context is passed to found and deliver. found is called for each descendant
 * that is not a zombie; if it returns true, signal is sent. found NULL: all get it. Returns how many were
 * descendants, -1 if /proc cannot be read. */
int descendants_sweep(const struct descendants *descendants, int signal,
                      bool (*found)(void *context, const struct descendants_process *process), void *context);

/* The soft limit of RLIMIT_RTTIME of every process of an agent: inherited over fork and exec, without
 * effect (it bounds, in microseconds, what real-time processes compute without a pause: 140,000 years),
 * and read without reading the process's memory. 61 bits of the id. */
uint64_t descendants_mark(const char *id);
/* The mark in a /proc/PID/limits text, 0 if it has none. */
uint64_t descendants_parse_mark(const char *limits, size_t length);

/* A fresh id: DESCENDANTS_ID_LENGTH digits and a NUL. -1 with errno. */
int descendants_make_id(char id[DESCENDANTS_ID_LENGTH + 1]);
/* The id of a part of a run, which is of the run's family; parts with different numbers below
 * DESCENDANTS_PARTS_LIMIT have different marks. -1 with errno. */
enum { DESCENDANTS_PARTS_LIMIT = 4096 };
int descendants_make_part_id(const char *run, unsigned number, char id[DESCENDANTS_ID_LENGTH + 1]);

/* The final step of deliver. */
void descendants_send(int pidfd, pid_t pid, int signal);

/* Reads a /proc/PID/stat text. The command may hold any byte, parentheses and newlines included. */
bool descendants_parse_stat(const char *text, size_t length, struct descendants_process *process);

#endif
