/* manifest_command.h - `muster manifest`: writes a manifest, or a script for Slurm, that runs a program. */
#ifndef MUSTER_LAUNCHER_MANIFEST_MANIFEST_COMMAND_H
#define MUSTER_LAUNCHER_MANIFEST_MANIFEST_COMMAND_H

#include "launcher/commands/flag_command.h"
#include "proto/base/buffer.h"

extern const struct command_page manifest_page;
/* argv after "muster manifest". out, which may hold a secret, is for standard output, complaint (whole
 * lines) for standard error. Returns the exit code: 0; 1, no memory or no random bytes; 2, bad usage. */
int manifest_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

#endif
