/* pod_command.h - the command of a pod's container on this machine (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_POD_COMMAND_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_POD_COMMAND_H

#include "launcher/local/manifest/env_map.h"
#include "launcher/local/manifest/problems.h"

struct pod_command_settings {
    char *const *entrypoint; /* words that stand for the image's, NULL-terminated; NULL: not known */
    const char *program;     /* this program's path: what torchrun becomes */
    bool may_be_unknown;     /* a container without a command is a warning, its list is what is known */
};

/* Appends command (or the entrypoint) and args with $(NAME) filled in; torchrun, python -m
 * torch.distributed.run and muster become settings->program where they stand first. -1 where there is no
 * memory; what is wrong is a fatal problem. */
int pod_command(const struct pod_command_settings *settings, const char *file,
                const struct tree_node *container, const struct path *path, const struct env_map *env,
                struct text_list *out, struct problems *problems);

/* Appends words as a shell splits them: blanks, '...', "..." and backslashes; nothing is filled in.
 * MUSTER_E_INVALID where there is no word or a quote is left open. */
int pod_command_split(const char *text, struct text_list *out, struct muster_error *err);

#endif
