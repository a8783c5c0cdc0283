/* missing_files.h - finds files of a pod's image that this machine lacks, before the pod is started: without
 * them it fails at once and, under most restart policies, is restarted again and again. */
#ifndef MUSTER_LAUNCHER_LOCAL_MISSING_FILES_H
#define MUSTER_LAUNCHER_LOCAL_MISSING_FILES_H

#include "launcher/local/job/job.h"
#include "proto/base/log.h"

/* The first of the pod's working directory, program and script that does not exist, in fresh memory
 * (mem_free), and in *kind what it is. NULL: none is missing, or it cannot be determined.
 *
 * The script is the first word of the command that ends in .py or .sh, before any -m. In `sh -c TEXT` the
 * words of TEXT count, with variables of the pod's environment filled in, if TEXT is a single command. path:
 * the caller's PATH, for programs of pods that set none. */
char *missing_file_find(const struct local_pod *pod, const char *path, const char **kind);

/* A warning for each pod with a missing file; pods that lack the same file share one. */
void missing_files_warn(const struct local_job *job, const struct log_sink *log);

#endif
