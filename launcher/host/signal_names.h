/* signal_names.h - pure: lists of signal names, as in --signals-to-handle and --forward-signals. */
#ifndef MUSTER_LAUNCHER_HOST_SIGNAL_NAMES_H
#define MUSTER_LAUNCHER_HOST_SIGNAL_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"

enum { SIGNALS_LIMIT = 64 };

/* A set of the signals 1 to SIGNALS_LIMIT, one bit each. */
typedef uint64_t signal_bits;

static inline signal_bits signal_bit(int number)
{
    return UINT64_C(1) << (number - 1);
}

/* Names separated by commas, with or without SIG, in either case; blanks around them do not count. Unknown
 * names, and signals that an agent cannot handle (KILL, STOP, and CHLD, which it needs itself), are
 * appended to unknown, comma separated. */
signal_bits signal_names_parse(const char *text, struct buffer *unknown);

/* Whether process 1, whose command and /proc/1/status these are, is a shell that neither ends by the
 * signal nor forwards it to its children: process 1 gets no signal without a handler, and a shell waits
 * for its child. */
bool signal_is_swallowed(const char *command, const char *status, int number);

/* Whether a process with this /proc/PID/status text has a handler of its own for the signal. */
bool signal_is_caught(const char *status, int number);

#endif
