/* settings.h - what `muster env` prints: every setting, its value and where it comes from (pure). */
#ifndef MUSTER_LAUNCHER_SETTINGS_H
#define MUSTER_LAUNCHER_SETTINGS_H

#include "launcher/config.h"
#include "runtime/nccl/decide.h"

/* A resolved configuration as a table for people or, with --output=json, as one object: settings (name,
 * variable, value, source, from), node (what was worked out), notes, warnings and nccl: what is decided about
 * NCCL's environment (NULL: nothing was). Appended; out remembers a failure. */
int settings_print(const struct run_config *config, const struct machine *machine,
                   const struct decision_list *nccl, struct buffer *out);

#endif
