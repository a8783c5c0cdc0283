/* config_print.h - what `muster env` prints: every setting, its value and where it comes from (pure). */
#ifndef MUSTER_LAUNCHER_CONFIG_CONFIG_PRINT_H
#define MUSTER_LAUNCHER_CONFIG_CONFIG_PRINT_H

#include "launcher/config/config.h"
#include "runtime/nccl/decide/decide.h"

/* A resolved configuration as a table for people or, with --output=json, as one object: settings (name,
 * variable, value, source, from), node (what was worked out), notes, warnings and nccl: what is decided about
 * NCCL's environment (NULL: nothing was). Appended; out remembers a failure. */
int config_print(const struct run_config *config, const struct machine *machine,
                 const struct decision_list *nccl, struct buffer *out);

#endif
