/* send_batch.h - sends to many sockets with one system call, if the kernel has one (io_submit), else one
 * after the other.
 *
 * Why: every reply wakes a client, and on a busy machine the woken client takes the processor from a
 * server that comes back from the kernel after each send. In one call all replies of a turn leave before
 * any client runs, and the clients' next requests arrive together again: under 64 of PyTorch's clients on
 * two cores up to a third less processor time for each request.
 *
 * io_submit writes without MSG_NOSIGNAL, so SIGPIPE must be blocked or ignored where send_batch_run is
 * called; it then stays pending without effect. */
#ifndef MUSTER_RENDEZVOUS_NET_SEND_BATCH_H
#define MUSTER_RENDEZVOUS_NET_SEND_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Sends of one call, at most; and the fewest that are worth it: io_submit costs more for each job than send
 * does, and its results cost a call of their own. */
enum { SEND_BATCH_MAX = 64, SEND_BATCH_WORTH = 4 };

struct send_job {
    int fd;                    /* a non-blocking stream socket */
    const struct iovec *parts; /* sent one after the other; at least one byte */
    size_t count;              /* 1 to IOV_MAX parts */
    ssize_t result;            /* bytes sent, or a negative error number */
    void *owner;               /* owned by the caller */
};

/* A zeroed one is ready: the kernel's context is created with the first run of so many jobs. */
struct send_batch {
    bool refused;          /* the kernel, or a sandbox, has no such call: send is used */
    unsigned long context; /* aio_context_t; 0: none yet */
};

/* Does all jobs, count at most SEND_BATCH_MAX, and fills their results. Never blocks. */
void send_batch_run(struct send_batch *batch, struct send_job *jobs, size_t count);
/* Ready for use again afterwards. */
void send_batch_free(struct send_batch *batch);

#endif
