/* children.h - the ends of this process's children, one after the other, and descriptors that a child must
 * not keep.
 *
 * By waitid, which can look without taking; where a sandbox refuses it, by wait4, which cannot: an end that
 * was looked at is held until it is taken. */
#ifndef MUSTER_LAUNCHER_PROCESS_CHILDREN_H
#define MUSTER_LAUNCHER_PROCESS_CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/include/muster_error.h"

struct child_end {
    pid_t pid;  /* 0: none */
    int code;   /* CLD_EXITED, CLD_KILLED or CLD_DUMPED */
    int status; /* the exit code or the signal */
};

/* Zeroed: waitid works. */
struct children {
    bool by_wait4;
    struct child_end held;
};

/* Before the first child. Fails if this process cannot learn of the end of any. */
int children_init(struct children *children, struct muster_error *err);
/* Takes the next end; false if no child has ended. */
bool children_next(struct children *children, struct child_end *end);
/* Whether there is no child, and no end that was not taken. */
bool children_are_none(struct children *children);

/* --- descriptors ---
 *
 * Closes a range of descriptors. Async-signal-safe: for processes that were forked from one with threads. */

/* first to last, both included; UINT_MAX: no end. Nothing if last < first. */
void close_descriptors(unsigned first, unsigned last);

#endif
