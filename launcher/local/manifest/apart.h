/* apart.h - finds jobs whose pods form a world each instead of one together: the commonest mistake in
 * manifests of several pods, which nothing in a cluster reports (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_MANIFEST_APART_H
#define MUSTER_LAUNCHER_LOCAL_MANIFEST_APART_H

#include "launcher/local/job/job.h"
#include "launcher/local/pod/problems.h"

/* Where every pod with a launcher starts a world of one node, and there are several: a warning, and
 * job->apart is the reason. -1 without memory. */
int apart_check(struct local_job *job, const char *file, struct problems *problems);

#endif
