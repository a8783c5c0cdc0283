/* send_batch.c - see send_batch.h. */
#include "rendezvous/net/send_batch.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc has no functions for these; libaio would be a library for three calls. */
static long aio_setup(unsigned events, aio_context_t *context)
{
    return syscall(SYS_io_setup, events, context);
}

static long aio_submit(aio_context_t context, size_t count, struct iocb **list)
{
    return syscall(SYS_io_submit, context, (long)count, list);
}

static long aio_results(aio_context_t context, size_t count, struct io_event *events)
{
    return syscall(SYS_io_getevents, context, (long)count, (long)count, events, NULL);
}

static void send_one(struct send_job *job)
{
    const struct msghdr message = {.msg_iov = (struct iovec *)job->parts, .msg_iovlen = job->count};
    do
        job->result = sendmsg(job->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (job->result < 0 && errno == EINTR);
    if (job->result < 0)
        job->result = -errno;
}

/* Writes to non-blocking sockets are over when io_submit returns, so their results are there at once. Returns
 * the number of jobs done; the caller does the next job. */
static size_t submit(struct send_batch *batch, struct send_job *jobs, size_t count)
{
    struct iocb calls[SEND_BATCH_MAX], *list[SEND_BATCH_MAX];
    struct io_event events[SEND_BATCH_MAX];
    for (size_t i = 0; i < count; i++) {
        calls[i] = (struct iocb){
            .aio_data = i,
            .aio_lio_opcode = jobs[i].count == 1 ? IOCB_CMD_PWRITE : IOCB_CMD_PWRITEV,
            .aio_fildes = (uint32_t)jobs[i].fd,
            .aio_buf = (uint64_t)(uintptr_t)(jobs[i].count == 1 ? jobs[i].parts->iov_base : jobs[i].parts),
            .aio_nbytes = jobs[i].count == 1 ? jobs[i].parts->iov_len : jobs[i].count,
        };
        list[i] = &calls[i];
    }
    long done = aio_submit(batch->context, count, list);
    if (done <= 0)
        return 0;
    long reported = 0;
    while (reported < done) {
        long more = aio_results(batch->context, (size_t)(done - reported), events);
        if (more < 0 && errno != EINTR)
            break;
        for (long i = 0; i < more; i++)
            jobs[events[i].data].result = (ssize_t)events[i].res;
        reported += more > 0 ? more : 0;
    }
    return (size_t)done;
}

void send_batch_run(struct send_batch *batch, struct send_job *jobs, size_t count)
{
    size_t done = 0;
    if (count >= SEND_BATCH_WORTH && !batch->refused && !batch->context)
        batch->refused = aio_setup(SEND_BATCH_MAX, &batch->context) != 0;
    for (size_t i = 0; i < count; i++)
        jobs[i].result = -EIO; /* if the kernel takes a job and never returns its result */
    if (count >= SEND_BATCH_WORTH && batch->context)
        done = submit(batch, jobs, count);
    for (; done < count; done++)
        send_one(&jobs[done]);
}

void send_batch_free(struct send_batch *batch)
{
    if (batch->context)
        (void)syscall(SYS_io_destroy, batch->context); /* fails only for an invalid context */
    *batch = (struct send_batch){0};
}
