/* accelerate_apply.h - --accelerate-config: the keys of accelerate's configuration file become settings of
 * muster run where neither a flag nor a variable has set them, and variables for the workers. */
#ifndef MUSTER_LAUNCHER_ACCELERATE_ACCELERATE_APPLY_H
#define MUSTER_LAUNCHER_ACCELERATE_ACCELERATE_APPLY_H

#include "launcher/accelerate/accelerate_config.h"
#include "launcher/config/config.h"

/* Between config_parse and config_resolve. get reads an environment variable; one that is set stays as it
 * is. */
int accelerate_apply(struct run_config *config, const struct accelerate_config *file,
                     const char *(*get)(void *context, const char *name), void *context,
                     struct muster_error *err);
/* The same with the file that --accelerate-config names; without one it does nothing. */
int accelerate_load(struct run_config *config, const char *(*get)(void *context, const char *name),
                    void *context, struct muster_error *err);

#endif
