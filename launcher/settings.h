/* settings.h - what `muster env` prints: every setting, its value and where it comes from (pure). */
#ifndef MUSTER_LAUNCHER_SETTINGS_H
#define MUSTER_LAUNCHER_SETTINGS_H

#include "launcher/config.h"

/* A resolved configuration as a table for people or, with --output=json, as one object: settings (name,
 * variable, value, source, from), node (what was worked out), notes and warnings. Appended; out remembers a
 * failure. */
int settings_print(const struct run_config *config, const struct machine *machine, struct buffer *out);

#endif
