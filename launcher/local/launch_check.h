/* launch_check.h - what `muster run` in each pod would say of its command and environment, before any pod
 * starts: the same parser and rules, on the pod's own variables. */
#ifndef MUSTER_LAUNCHER_LOCAL_LAUNCH_CHECK_H
#define MUSTER_LAUNCHER_LOCAL_LAUNCH_CHECK_H

#include "launcher/local/job/job.h"
#include "launcher/local/pod/documents.h"
#include "proto/base/log.h"

/* A warning for each line, once for all pods that it concerns. documents: Services that names may resolve by.
 * -1 without memory. */
int launch_check(const struct local_job *job, const struct documents *documents, const struct log_sink *log);

#endif
