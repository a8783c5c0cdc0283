/* doctor_command.h - `muster doctor`: is this machine fit for a job, and what is its hardware? */
#ifndef MUSTER_LAUNCHER_COMMANDS_DOCTOR_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_DOCTOR_COMMAND_H

#include "launcher/commands/flag_command.h"
#include "proto/base/buffer.h"

extern const struct command_page doctor_page;
/* argv after "muster doctor". out is for standard output, complaint (whole lines) for standard error.
 * Returns the exit code: 0 fit (or shown), 1 warnings, 3 unfit, 2 bad usage or a file that is not a
 * description. For a program that still has one thread. */
int doctor_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

#endif
