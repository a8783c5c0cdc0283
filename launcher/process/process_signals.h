/* process_signals.h - what a process does with a signal. */
#ifndef MUSTER_LAUNCHER_PROCESS_PROCESS_SIGNALS_H
#define MUSTER_LAUNCHER_PROCESS_PROCESS_SIGNALS_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether it has a handler of its own for the signal now, by /proc/PID/status; false where that cannot be
 * read. */
bool process_handles(pid_t pid, int number);

#endif
