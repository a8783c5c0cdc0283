/* exit_mode.h - pure: an agent's exit code, by --exit-code. */
#ifndef MUSTER_LAUNCHER_CONFIG_EXIT_MODE_H
#define MUSTER_LAUNCHER_CONFIG_EXIT_MODE_H

#include <stdbool.h>

enum exit_mode {
    EXIT_MODE_FIRST,    /* the first cause's code, and the table in proto/exit_code.h */
    EXIT_MODE_TORCHRUN, /* torchrun's: plain 1 for every failure, and for a signal once workers ran */
};

/* code: as in proto/exit_code.h. ran: workers were started at least once; before that torchrun has codes
 * of its own too (bad usage, a program that cannot be executed, the signal that ended it). */
int exit_mode_code(enum exit_mode mode, int code, bool ran);

#endif
