/* warm_kept.h - a template that outlives its jobs (--warm-keep): finds the one with the job's key or starts
 * it, and requests the job's own template of it.
 *
 * The kept template is a Python process with a session of its own, adopted by process 1, that has imported
 * the modules and waits at a socket in the folder below. For each job it forks the job's reaper
 * (warm_reaper.h) and template, which from then on know only that job. It ends when no job has used it for a
 * time, or at `muster warm --stop`; jobs do not notice. */
#ifndef MUSTER_LAUNCHER_WARM_WARM_KEPT_H
#define MUSTER_LAUNCHER_WARM_WARM_KEPT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/process/spawn.h"
#include "launcher/warm/warm_key.h"
#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

/* --- where it listens ---
 *
 * The folder with the sockets of this user's kept templates, and which users may use them.
 *
 * $XDG_RUNTIME_DIR/muster, or /tmp/muster-UID: a folder of this user's that no other user may enter (mode
 * 0700). Any other is refused. Both ends of a connection check the other's user, too (SO_PEERCRED). */

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

/* "SECONDS PATH": how long it stays without a job, and its socket. It listens at descriptor 3; 4 ends with
 * the agent that started it, 5 is its key. */
#define WARM_KEPT_ENV "MUSTER_TEMPLATE_KEPT"

/* The wishes of a job. */
struct warm_keep {
    double seconds;                  /* that it stays without a job */
    uint64_t mark;                   /* mark of the job's processes */
    struct warm_key_subject subject; /* environment: all, of which it takes its own */
};

struct warm_kept {
    struct warm_folder folder;
    char name[WARM_NAME_SIZE];
    struct buffer key;
    double seconds;
    uint64_t mark;
    int control; /* the connection to it, for as long as the job runs; -1: none */
    int life;    /* our end of a template that we have started, until it has imported; -1: none */
    bool started;
    char differs[128]; /* started: the field in which another kept template differs; "": there is none */
};

/* options: of the template, as for warm_open; its environment is chosen here. */
int warm_kept_open(struct warm_kept *kept, const struct warm_keep *keep, const struct spawn_options *options,
                   struct muster_error *err);
/* Connects once more, to a template that imports anew. */
int warm_kept_connect(struct warm_kept *kept, struct muster_error *err);
/* Asks whether it listens: it answers "hello" when it is ready to take descriptors, which would keep this
 * process's streams open in its queue for as long as it is not. */
int warm_kept_greet(struct warm_kept *kept, struct muster_error *err);
/* Requests the template of this job: the other ends of the sockets of template and reaper, of which it gets
 * copies, with this process's standard input and error. */
int warm_kept_request(struct warm_kept *kept, int template_end, int reaper_end, struct muster_error *err);
void warm_kept_close(struct warm_kept *kept);

/* For each template that is kept in the folder: its answer to "list", "stop" or "key", and the
 * descriptor that comes with it (-1: none), closed afterwards. Templates that do not answer in time are named
 * in complaint (may be NULL). -1: the folder cannot be read. */
int warm_kept_ask_all(const struct warm_folder *folder, const char *text, int patience_ms,
                      void (*found)(void *context, const char *name, const char *answer, int fd),
                      void *context, struct buffer *complaint, struct muster_error *err);

#endif
