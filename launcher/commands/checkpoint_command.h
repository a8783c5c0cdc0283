/* checkpoint_command.h - `muster checkpoint`: asks the job of this machine's agent for a checkpoint, and
 * waits until it is written. */
#ifndef MUSTER_LAUNCHER_COMMANDS_CHECKPOINT_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_CHECKPOINT_COMMAND_H

#include "launcher/commands/flag_command.h"
#include "proto/base/buffer.h"

extern const struct command_page checkpoint_page;
/* argv after "muster checkpoint". out is for standard output, complaint (whole lines) for standard error.
 * Returns the exit code: 0, it is written, or with --no-wait a rank was asked, which is in out; 1, it could
 * not be written, its rank ended before, there is no result in time, no such agent, it does not respond, or
 * no worker of it writes checkpoints on request; 2, bad usage, or there are several agents (out has the list)
 * and none was chosen. */
int checkpoint_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

#endif
