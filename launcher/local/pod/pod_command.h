/* pod_command.h - the command of a pod's container on this machine (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_POD_COMMAND_H
#define MUSTER_LAUNCHER_LOCAL_POD_POD_COMMAND_H

#include "launcher/local/pod/env_map.h"
#include "launcher/local/pod/pod_source.h"
#include "launcher/local/pod/problems.h"

struct pod_command_settings {
    char *const *entrypoint; /* words of the image's entrypoint, NULL-terminated; NULL: unknown */
    const char *program;     /* this program's path: replaces torchrun */
    bool may_be_unknown;     /* a container without a command is a warning, its list is the known part */
};

/* Appends the source's command (or the entrypoint) and args with $(NAME) filled in; torchrun, python -m
 * torch.distributed.run and muster become settings->program if they come first. -1 without memory; errors
 * are fatal problems. */
int pod_command(const struct pod_command_settings *settings, const struct pod_source *source,
                const struct path *path, const struct env_map *env, struct text_list *out,
                struct problems *problems);

/* Appends words as a shell splits them: blanks, '...', "..." and backslashes; nothing is filled in.
 * MUSTER_E_INVALID if there is no word or a quote is not closed. */
int pod_command_split(const char *text, struct text_list *out, struct muster_error *err);

#endif
