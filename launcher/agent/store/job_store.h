/* job_store.h - the workers' store of a node that serves the job: ours, or with --worker-store=worker a port
 * reserved for that of rank 0.
 *
 * It has a lock of its own, and nothing of the agent in it except the log: job_store_renew may be called from
 * any thread while the store is open. */
#ifndef MUSTER_LAUNCHER_AGENT_STORE_JOB_STORE_H
#define MUSTER_LAUNCHER_AGENT_STORE_JOB_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/config/config.h"
#include "proto/base/log.h"
#include "proto/include/muster_error.h"

struct job_store;
struct tcpstore_server_stats;

/* Serves at `address`, or reserves a port. key: the job's, for muster's own keys; NULL: no secret. All are
 * valid as long as the store. */
struct job_store *job_store_open(const struct run_config *config, const char *address,
                                 const unsigned char *key, const struct log_sink *log,
                                 struct muster_error *err);
/* No thread may be in job_store_renew any more. Accepts NULL. */
void job_store_close(struct job_store *store);
uint16_t job_store_port(struct job_store *store);
/* False: it is the workers' own, or has ended. */
bool job_store_stats(struct job_store *store, struct tcpstore_server_stats *stats);
/* Of a store that has no thread before its first peer: readable when that comes, and then job_store_serve is
 * due. Else -1. */
int job_store_knock_fd(const struct job_store *store);
int job_store_serve(struct job_store *store, struct muster_error *err);
/* Another world than the first forms: its store is an empty one. Returns its port if that is not the last
 * world's, else 0. Accepts NULL. */
uint16_t job_store_renew(struct job_store *store);

#endif
