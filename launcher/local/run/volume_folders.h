/* volume_folders.h - the volumes of a job as folders of a run. */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_VOLUME_FOLDERS_H
#define MUSTER_LAUNCHER_LOCAL_RUN_VOLUME_FOLDERS_H

#include "launcher/local/job/job.h"
#include "proto/include/muster_error.h"

struct volume_folders {
    const struct local_job *job;
    const char *folder; /* the run's */
    const char *claims; /* where claims are kept; NULL: in folder, deleted with it */
};

/* Files of ConfigMaps and Secrets, and the claims' folders. */
int volume_folders_make(const struct volume_folders *folders, struct muster_error *err);
/* Empty folders for a pod that is created. */
int volume_folders_renew(const struct volume_folders *folders, int pod, struct muster_error *err);
/* The files of a pod whose contents follow the attempt. */
int volume_folders_rewrite(const struct volume_folders *folders, int pod, int set_attempt, int job_attempt,
                           struct muster_error *err);
/* The path to be mounted, the caller's; NULL without memory. A sub-path that is missing is made a folder. */
char *volume_folders_source(const struct volume_folders *folders, int pod, const struct local_mount *mount,
                            struct muster_error *err);

/* --- removal ---
 *
 * Removes a run's folder with everything in it, by system calls only: for a guardian too. */

/* Removes the folder's contents; links are not followed. Files that cannot be removed stay (another user's
 * file in a folder of his): the folder is in a temporary place. */
void folder_remove_content(const char *path);

#endif
