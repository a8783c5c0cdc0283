/* warm_command.h - `muster warm`: the templates that muster run --warm-keep has left, and their end. */
#ifndef MUSTER_LAUNCHER_COMMANDS_WARM_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_WARM_COMMAND_H

#include "launcher/commands/flag_command.h"
#include "proto/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct command_page warm_page;
/* argv after "muster warm". out and complaint are for stdout and stderr. Returns the exit code. */
int warm_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

#ifdef __cplusplus
}
#endif
#endif
