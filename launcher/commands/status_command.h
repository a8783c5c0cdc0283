/* status_command.h - `muster status`: status of the agent on this machine. */
#ifndef MUSTER_LAUNCHER_COMMANDS_STATUS_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_STATUS_COMMAND_H

#include "launcher/commands/flag_command.h"
#include "proto/base/buffer.h"

extern const struct command_page status_page;
/* argv after "muster status". out is for standard output, complaint (whole lines) for standard error.
 * Returns the exit code: 0, the status is in out; 1, no such agent, or it does not respond; 2, bad usage,
 * or there are several agents (out has the list) and none was chosen. */
int status_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

#endif
