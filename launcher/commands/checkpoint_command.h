/* checkpoint_command.h - `muster checkpoint`: asks the job of this machine's agent for a checkpoint. */
#ifndef MUSTER_LAUNCHER_COMMANDS_CHECKPOINT_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_CHECKPOINT_COMMAND_H

#include "proto/base/buffer.h"

/* argv after "muster checkpoint". out is for standard output, complaint (whole lines) for standard error.
 * Returns the exit code: 0, a rank was asked, which is in out; 1, no such agent, it does not respond, or no
 * worker of it writes checkpoints on request; 2, bad usage, or there are several agents (out has the list)
 * and none was chosen. */
int checkpoint_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

#endif
