/* backoff.h - pure: the wait before a job restarts. */
#ifndef MUSTER_RENDEZVOUS_ROSTER_BACKOFF_H
#define MUSTER_RENDEZVOUS_ROSTER_BACKOFF_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Before the streak-th restart in a row (from 1): base_ns, doubled with each further one, at most cap_ns,
 * and then a quarter more or less as jitter says, so that jobs that failed together do not restart
 * together. Equal arguments give equal waits. base_ns 0: no wait. */
int64_t backoff_wait_ns(int64_t base_ns, int64_t cap_ns, int64_t streak, uint64_t jitter);

#ifdef __cplusplus
}
#endif
#endif
