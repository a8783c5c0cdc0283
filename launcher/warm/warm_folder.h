/* warm_folder.h - the folder with the sockets of this user's kept templates, and which users may use them.
 *
 * $XDG_RUNTIME_DIR/muster, or /tmp/muster-UID: a folder of this user's that no other user may enter (mode
 * 0700). Any other is refused. Both ends of a connection check the other's user, too (SO_PEERCRED). */
#ifndef MUSTER_LAUNCHER_WARM_WARM_FOLDER_H
#define MUSTER_LAUNCHER_WARM_WARM_FOLDER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "proto/include/muster_error.h"

enum { WARM_NAME_SIZE = 32 };
#define WARM_SUFFIX ".template" /* end of a socket's name */

struct warm_folder {
    int fd;
    char path[PATH_MAX];
};

/* Pure: where it is; runtime: $XDG_RUNTIME_DIR, NULL or "" without one. */
void warm_folder_path(const char *runtime, unsigned uid, char path[PATH_MAX]);
/* Opens it; make: where it is missing it is made, else that is MUSTER_E_NOT_FOUND. The caller closes fd. */
int warm_folder_open(const char *path, bool make, struct warm_folder *folder, struct muster_error *err);
/* Waits until no other process changes which sockets there are; closing the descriptor ends it. */
int warm_folder_lock(const struct warm_folder *folder, struct muster_error *err);
/* Pure: the name of the socket of a key. */
void warm_folder_name(const void *key, size_t length, char name[WARM_NAME_SIZE]);

/* A connection to the template of that name. MUSTER_E_NOT_FOUND: no process listens. */
int warm_folder_connect(const struct warm_folder *folder, const char *name, struct muster_error *err);
/* A socket that listens under that name, which no other process has: the lock is held. */
int warm_folder_listen(const struct warm_folder *folder, const char *name, struct muster_error *err);

#endif
