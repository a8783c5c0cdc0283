/* dry_run.h - pure: what --dry-run shows. */
#ifndef MUSTER_LAUNCHER_DRY_RUN_H
#define MUSTER_LAUNCHER_DRY_RUN_H

#include "launcher/config.h"

/* The command and the environment of every worker that this node would start, appended. config is resolved;
 * inherited is the agent's environ. */
int dry_run_print(const struct run_config *config, char *const *inherited, struct buffer *out,
                  struct muster_error *err);

#endif
