/* secret_file.h - the file that holds a job's secret: reads it, and checks its permissions. */
#ifndef MUSTER_RENDEZVOUS_SECURITY_SECRET_FILE_H
#define MUSTER_RENDEZVOUS_SECURITY_SECRET_FILE_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/include/muster_error.h"
#include "rendezvous/security/secret.h"

#ifdef __cplusplus
extern "C" {
#endif

enum secret_exposure {
    SECRET_PRIVATE,
    SECRET_OPEN_TO_GROUP, /* ours, and the group may read it */
    SECRET_OPEN_TO_ALL,
};

/* Pure. A file of another user that is read through our group is how Kubernetes mounts a Secret for a pod
 * with fsGroup, and is not an exposure. */
enum secret_exposure secret_file_exposure(mode_t mode, uid_t owner, uid_t user);

/* Reads the secret. Only *out stays in memory; the caller wipes it. *exposure and *mode describe the file.
 * MUSTER_E_INVALID: the error names the file and its fault. */
int secret_file_read(const char *path, struct job_secret *out, enum secret_exposure *exposure, mode_t *mode,
                     struct muster_error *err);
/* The warning about the exposure, for a log line; "" for SECRET_PRIVATE. */
const char *secret_exposure_words(enum secret_exposure exposure);

#ifdef __cplusplus
}
#endif
#endif
