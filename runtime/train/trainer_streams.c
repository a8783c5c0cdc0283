/* trainer_streams.c - a trainer's streams between steps: waits, copies, and the end of a run after a failure.
 */
#include "proto/base/error.h"
#include "runtime/train/comm_table.h"
#include "runtime/train/trainer_state.h"

int trainer_sync_stream(const struct trainer *trainer, int stream, struct instant deadline,
                        struct muster_error *err)
{
    return trainer->streams[stream] ? trainer->ops->sync(trainer->streams[stream], deadline, err) : 0;
}

void trainer_drain(const struct trainer *trainer)
{
    static const int64_t end_ns = 30 * NS_PER_S; /* copies of a checkpoint take seconds */
    const struct device_ops *ops = trainer->ops; /* NULL without streams: the creation has failed */
    for (int i = 0; i < STREAM_COUNT; i++) {
        struct muster_error err = {0};
        if (!trainer->streams[i])
            continue;
        /* functions of the host cannot be left */
        const struct instant deadline =
            ops->host_streams ? INSTANT_NEVER : instant_add(clock_now(NULL), end_ns);
        if (!trainer_sync_stream(trainer, i, deadline, &err) || err.code != MUSTER_E_TIMEOUT ||
            ops->poll_error(trainer->device, NULL))
            continue; /* the error is the device's, which keeps it, or was reported */
        (ops->fail)(trainer->device, &err);
        (void)trainer_sync_stream(trainer, i, INSTANT_NEVER, NULL); /* as long as a failed device takes */
    }
}

int trainer_break(struct trainer *trainer, struct muster_error *err, const char *what)
{
    /* If the device failed, its first error is the cause, whatever error the caller saw later; aborting
     * causes further errors, which the device does not keep. */
    bool device_failed = trainer->ops->poll_error(trainer->device, NULL) != 0;
    /* Streams that wait for no peer end by themselves. So this rank reports its error before other ranks end
     * because of it. */
    const struct instant soon = instant_add(clock_now(NULL), 200 * NS_PER_MS);
    for (int i = 0; i < STREAM_COUNT && !trainer->ops->host_streams; i++)
        (void)trainer_sync_stream(trainer, i, soon, NULL); /* its error is read below */
    comm_table_abort(&trainer->comms);
    trainer_drain(trainer);
    if (device_failed)
        (void)trainer->ops->poll_error(trainer->device, err);  /* fails, as it did above: that is the error */
    (void)error_wrap(err, "rank %d, %s", trainer->rank, what); /* returns -1, as we do */
    trainer->broken = *err;
    return -1;
}

/* ---- a run that goes on ---- */

void trainer_let_go(struct trainer *trainer)
{
    if (trainer->world_size == 1)
        atomic_store(&trainer->let_go, true);
    comm_table_abort(&trainer->comms);
}

int64_t trainer_whole(const struct trainer *trainer)
{
    return trainer->whole ? trainer->steps : -1;
}

int trainer_usable(const struct trainer *trainer, struct muster_error *err)
{
    if (atomic_load(&trainer->let_go))
        return error_set(err, MUSTER_E_CANCELLED, "rank %d is to regroup with others", trainer->rank);
    if (!trainer->broken.code)
        return 0;
    if (err)
        *err = trainer->broken;
    return -1;
}

int trainer_writable(const struct trainer *trainer, struct muster_error *err)
{
    if (trainer_usable(trainer, err))
        return -1;
    if (!trainer->averaged)
        return 0;
    return error_set(err, MUSTER_E_STATE,
                     "the averages are in the place of the parameters: exchange them again before parameters "
                     "change");
}

int trainer_sync(struct trainer *trainer, struct muster_error *err)
{
    /* No deadline: a collective has its own time-out, and compute is not bounded. */
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (trainer_sync_stream(trainer, i, INSTANT_NEVER, err))
            return -1;
    }
    return trainer->ops->poll_error(trainer->device, err);
}

int trainer_draw(struct trainer *trainer, struct muster_error *err)
{
    return trainer->draw ? trainer->draw(trainer, err) : 0;
}

int trainer_settle(struct trainer *trainer, struct muster_error *err)
{
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (i != STREAM_COMPUTE && trainer_sync_stream(trainer, i, INSTANT_NEVER, err))
            return -1;
    }
    return trainer->ops->poll_error(trainer->device, err);
}

void trainer_wait_for_readers(const struct trainer *trainer)
{
    for (int g = 0; trainer->guard.wait && g < trainer->plan.group_count; g++)
        trainer->guard.wait(trainer->guard.context, g);
}

int trainer_copy(const struct trainer *trainer, void *to, const void *from, int64_t bytes,
                 struct muster_error *err)
{
    struct device_stream *stream = trainer->streams[STREAM_COMPUTE];
    if (trainer->ops->copy(stream, to, from, bytes))
        return executor_refused(trainer->ops, trainer->device, err);
    return trainer->ops->sync(stream, INSTANT_NEVER, err);
}

int trainer_run(struct trainer *trainer, void (*fn)(void *argument), void *argument, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    if (trainer_usable(trainer, e) || trainer_draw(trainer, e)) /* the function may read values */
        return -1;
    int failed = 0;
    if (trainer->ops->launch(trainer->streams[STREAM_COMPUTE], fn, argument))
        failed = executor_refused(trainer->ops, trainer->device, e);
    if (failed || trainer_sync(trainer, e))
        return trainer_break(trainer, e, "a function on the compute stream");
    return 0;
}
