/* config_print.h - output of `muster env`: every setting, its value and its source (pure). */
#ifndef MUSTER_LAUNCHER_CONFIG_CONFIG_PRINT_H
#define MUSTER_LAUNCHER_CONFIG_CONFIG_PRINT_H

#include "launcher/config/config.h"
#include "runtime/nccl/decide/decide.h"

/* A resolved configuration as a table or, with --output=json, as one object: settings (name, variable,
 * value, source, from), node (computed values), notes, warnings and nccl: the decisions about NCCL's
 * environment (NULL: none). Appended; out remembers a failure. */
int config_print(const struct run_config *config, const struct machine *machine,
                 const struct decision_list *nccl, struct buffer *out);

#endif
