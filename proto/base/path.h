/* path.h - what a user writes for a file or folder, as the path that is opened.
 *
 * A shell is not always there to do it: a path in a file, in --flag=~/x, in the args of a container. */
#ifndef MUSTER_PROTO_BASE_PATH_H
#define MUSTER_PROTO_BASE_PATH_H

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "~" and "~/x" begin with home (NULL or "": an error); another user's "~name" is refused, and so is text
 * that another program would have replaced: "$HOME/x", "${VAR}", "$(VAR)", "{{ x }}", Python's None. Pure.
 * *out: the caller's (mem_free). MUSTER_E_INVALID, MUSTER_E_NOMEM. */
int path_with_home(const char *text, const char *home, char **out, struct muster_error *err);
/* The same with the variable HOME. */
int path_expand(const char *text, char **out, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
