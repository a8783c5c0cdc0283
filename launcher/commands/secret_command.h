/* secret_command.h - `muster secret`: makes the secret of a job, as a line or as a Kubernetes Secret, and
 * checks whether a file holds one. */
#ifndef MUSTER_LAUNCHER_COMMANDS_SECRET_COMMAND_H
#define MUSTER_LAUNCHER_COMMANDS_SECRET_COMMAND_H

#include "launcher/commands/flag_command.h"
#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "rendezvous/security/secret.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct command_page secret_page;
/* argv after "muster secret". out and complaint are for stdout and stderr; out may hold a secret, to be
 * wiped by the caller. Returns the exit code. */
int secret_command(int argc, char *const argv[], struct buffer *out, struct buffer *complaint);

/* Pure: the manifest of a Secret whose key "secret" is the line; namespace_ NULL: none in it. A name that
 * Kubernetes would reject is MUSTER_E_INVALID. */
int secret_manifest(const struct job_secret *secret, const char *name, const char *namespace_,
                    struct buffer *out, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
