/* fake_nccl_fault.c - faults on demand: see fake_nccl.h. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "tests/gpu/nccl/fake_nccl.h"

/* Whether the variable names this rank and operation; *extra is its third number. */
static bool injected(const char *variable, int rank, uint64_t number, long *extra)
{
    const char *text = getenv(variable), *round = getenv("TORCHELASTIC_RESTART_COUNT");
    if (round && *round && strcmp(round, "0") != 0)
        return false;
    int at;
    unsigned long long operation;
    *extra = 0;
    return text && sscanf(text, "%d:%llu:%ld", &at, &operation, extra) >= 2 && at == rank &&
           operation == number;
}

bool fake_one_at_a_time(void)
{
    const char *text = getenv("FAKE_NCCL_ONE_AT_A_TIME");
    return text && !strcmp(text, "1");
}

static void hang(struct ncclComm *comm)
{
    while (!atomic_load(comm->aborted))
        fake_wait_bell(comm->shared, fake_bell(comm->shared));
}

/* In pieces: an abort ends it. */
static void sleep_ms(const struct ncclComm *comm, long ms)
{
    struct instant until = instant_add(clock_now(NULL), ms * NS_PER_MS);
    while (!atomic_load(comm->aborted) && !instant_reached(clock_now(NULL), until))
        clock_sleep_until(instant_min(until, instant_add(clock_now(NULL), NS_PER_MS)));
}

bool fake_inside(struct ncclComm *comm)
{
    long ignored;
    if (injected("FAKE_NCCL_INSIDE", comm->device->rank, comm->issued + 1, &ignored))
        hang(comm);
    return !atomic_load(comm->aborted);
}

int64_t fake_thread_ns(void)
{
    const char *us = getenv("FAKE_NCCL_THREAD");
    return us ? atoi(us) * NS_PER_US : 0;
}

bool fake_faults(struct ncclComm *comm, const struct fake_op *op)
{
    int rank = comm->device->rank;
    long ms;
    if (injected("FAKE_NCCL_DIE", rank, op->number, &ms))
        (void)kill(getpid(), SIGKILL);
    if (injected("FAKE_NCCL_HANG", rank, op->number, &ms))
        hang(comm);
    if (injected("FAKE_NCCL_SLOW", rank, op->number, &ms))
        sleep_ms(comm, ms);
    if (injected("FAKE_NCCL_ASYNC", rank, op->number, &ms))
        fake_fail(comm, ncclRemoteError, "injected: the connection to a peer is lost in operation %llu",
                  (unsigned long long)op->number);
    return !atomic_load(comm->aborted) && atomic_load(&comm->state) != ncclRemoteError;
}
