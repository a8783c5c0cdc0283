/* shard_work.c - the shell of the core: streams and their waits, errors with the names of groups, and the
 * actions of gathers and reductions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "runtime/shard/shard_internal.h"

/* ---- errors ---- */

/* "tag 4" in a comm's text is group 3 of this layout. */
static void name_tags(const struct shard_layout *layout, struct muster_error *err)
{
    static const char word[] = "tag ";
    char out[MUSTER_ERROR_TEXT];
    size_t used = 0;
    for (const char *at = err->text; *at && used + 1 < sizeof out;) {
        char *end = NULL;
        long tag = strncmp(at, word, sizeof word - 1) ? 0 : strtol(at + sizeof word - 1, &end, 10);
        if (tag < 1 || tag > layout->group_count) {
            out[used++] = *at++;
            continue;
        }
        int length = snprintf(out + used, sizeof out - used, "group %s", layout->groups[tag - 1].name);
        used = (size_t)length < sizeof out - used ? used + (size_t)length : sizeof out - 1;
        at = end;
    }
    out[used] = '\0';
    memcpy(err->text, out, used + 1);
}

int shard_failed(struct muster_shard *shard, struct muster_error *err)
{
    if (!shard->ops->poll_error(shard->device, err))
        return error_set(err, MUSTER_E_STATE, "the device refused work without giving a reason");
    if (err)
        name_tags(&shard->layout, err);
    return -1;
}

int shard_check_ready(const struct muster_shard *shard, struct muster_error *err)
{
    if (!shard->ready)
        return error_set(err, MUSTER_E_STATE, "muster_shard_ready has to be called after the registration");
    return 0;
}

int shard_check_group(const struct muster_shard *shard, int group, struct muster_error *err)
{
    if (shard_check_ready(shard, err))
        return -1;
    if (group >= 0 && group < shard->layout.group_count)
        return 0;
    return error_set(err, MUSTER_E_INVALID, "group %d: groups are 0 to %d", group,
                     shard->layout.group_count - 1);
}

static const char *name_of(const void *context, int group)
{
    return ((const struct shard_layout *)context)->groups[group].name;
}

struct shard_names shard_names_of(const struct muster_shard *shard)
{
    return (struct shard_names){.name = name_of, .context = &shard->layout};
}

/* ---- streams ---- */

int shard_tracker_open(struct muster_shard *shard, struct shard_tracker *tracker, const char *name,
                       struct muster_error *err)
{
    tracker->stream = shard->ops->stream_create(shard->device, name, false, err);
    return tracker->stream ? 0 : -1;
}

static void count_one(void *argument)
{
    struct shard_tracker *tracker = argument;
    atomic_fetch_add(&tracker->finished.value, 1);
    futex_wake(&tracker->finished, FUTEX_PRIVATE);
}

int shard_tracker_mark(struct muster_shard *shard, struct shard_tracker *tracker, uint32_t *number,
                       struct muster_error *err)
{
    if (shard->ops->launch(tracker->stream, count_one, tracker))
        return shard_failed(shard, err);
    tracker->issued++;
    if (number)
        *number = tracker->issued;
    return 0;
}

int shard_tracker_wait(struct muster_shard *shard, struct shard_tracker *tracker, uint32_t number,
                       struct muster_error *err)
{
    /* After a failure the stream drains without running what counts, so the device is checked now and then.
     * A collective that no peer joins fails by its own time-out. */
    const int64_t slice_ns = 50 * NS_PER_MS;
    struct instant start = clock_now(NULL);
    for (;;) {
        uint32_t seen = atomic_load(&tracker->finished.value);
        if (futex_reached(seen, number))
            break;
        if (shard->ops->poll_error(shard->device, NULL))
            return shard_failed(shard, err);
        (void)futex_wait(&tracker->finished, seen, instant_add(clock_now(NULL), slice_ns), FUTEX_PRIVATE);
    }
    shard->waited_ns += instant_diff_ns(clock_now(NULL), start);
    return 0;
}

int shard_compute(struct muster_shard *shard, void (*work)(void *update), struct muster_error *err)
{
    if (shard->ops->launch(shard->compute, work, &shard->update) ||
        shard->ops->sync(shard->compute, INSTANT_NEVER, NULL))
        return shard_failed(shard, err);
    return 0;
}

int shard_collective(struct muster_shard *shard, const struct shard_channel *channel,
                     const struct comm_op *op, const void *send, void *recv, struct muster_error *err)
{
    uint32_t number = 0;
    if (channel->ops->issue(channel->comm, op, send, recv, shard->gathers.stream, err))
        return shard_failed(shard, err);
    return shard_tracker_mark(shard, &shard->gathers, &number, err) ||
                   shard_tracker_wait(shard, &shard->gathers, number, err)
               ? -1
               : 0;
}

/* ---- actions ---- */

static int start(struct muster_shard *shard, int group, struct muster_error *err)
{
    const struct shard_group *g = &shard->layout.groups[group];
    const struct comm_op op = {
        .kind = COMM_ALL_GATHER, .dtype = shard->param_dtype, .count = g->part, .tag = (uint32_t)group + 1};
    shard->gathered++;
    if (shard->layout.size == 1)
        return 0;
    if (shard_ranges_map(&shard->ranges, &shard->layout, group, err))
        return error_wrap(err, "group %s", g->name);
    if (shard->gather.ops->issue(shard->gather.comm, &op, shard_part(shard, group), shard_full(shard, group),
                                 shard->gathers.stream, err))
        return shard_failed(shard, err);
    return shard_tracker_mark(shard, &shard->gathers, &shard->runs[group].gather, err);
}

static int wait_for_gather(struct muster_shard *shard, int group, struct muster_error *err)
{
    return shard->layout.size == 1
               ? 0
               : shard_tracker_wait(shard, &shard->gathers, shard->runs[group].gather, err);
}

static int drop(struct muster_shard *shard, int group, struct muster_error *err)
{
    return shard->layout.size == 1 ? 0 : shard_ranges_unmap(&shard->ranges, group, err);
}

static void widen(void *argument)
{
    const struct shard_widening *w = argument;
    struct muster_shard *shard = w->shard;
    shard->kernels->widen(shard_state(shard, 0, w->group), w->from, shard->reduce_dtype, w->add,
                          shard->layout.groups[w->group].part,
                          shard->ops->stream_handle(shard->reductions.stream));
}

/* With replicas, the scattered gradients stay in their slot and are averaged over the replicas. */
static int reduce(struct muster_shard *shard, int group, bool add, struct muster_error *err)
{
    const struct shard_group *g = &shard->layout.groups[group];
    struct shard_group_run *run = &shard->runs[group];
    const struct shard_channel *over = &shard->reduction, *replica = &shard->replica;
    struct device_stream *stream = shard->reductions.stream;
    bool widens = shard->reduce_dtype != shard->dtype, stays = widens || replica->comm;
    struct comm_op op = {.kind = COMM_REDUCE_SCATTER,
                         .dtype = shard->reduce_dtype,
                         .reduction = REDUCE_AVERAGE,
                         .accumulate = add && !stays,
                         .count = g->part,
                         .tag = (uint32_t)group + 1};
    char *from = shard_gradients_base(shard, group), *state = shard_state(shard, 0, group);
    char *part = from + shard->layout.rank * g->part * shard->layout.gradient_bytes;
    run->widening = (struct shard_widening){.shard = shard, .group = group, .add = add, .from = part};
    int failed = over->ops->issue(over->comm, &op, from, stays ? part : state, stream, err);
    op.kind = COMM_ALL_REDUCE;
    op.accumulate = add && !widens;
    if (!failed && replica->comm)
        failed = replica->ops->issue(replica->comm, &op, part, widens ? part : state, stream, err);
    if (failed || (widens && shard->ops->launch(stream, widen, &run->widening)))
        return shard_failed(shard, err);
    return shard_tracker_mark(shard, &shard->reductions, &run->reduction, err);
}

static int settle(struct muster_shard *shard, int group, struct muster_error *err)
{
    if (shard_tracker_wait(shard, &shard->reductions, shard->runs[group].reduction, err))
        return -1;
    shard_gradients_free(shard, group);
    return 0;
}

static int do_action(struct muster_shard *shard, struct shard_action action, struct muster_error *err)
{
    switch (action.kind) {
    case SHARD_START:
        return start(shard, action.group, err);
    case SHARD_WAIT:
        return wait_for_gather(shard, action.group, err);
    case SHARD_DROP:
        return drop(shard, action.group, err);
    case SHARD_TAKE:
        return shard_gradients_take(shard, action.group, err);
    case SHARD_SEND:
    case SHARD_ADD:
        return reduce(shard, action.group, action.kind == SHARD_ADD, err);
    case SHARD_SETTLE:
        return settle(shard, action.group, err);
    case SHARD_ABANDON:
        shard_gradients_free(shard, action.group);
        return 0;
    }
    return error_set(err, MUSTER_E_STATE, "%d is no action", (int)action.kind);
}

int shard_act(struct muster_shard *shard, struct muster_error *err)
{
    struct muster_error local = {0}, *e = err ? err : &local;
    for (int i = 0; i < shard->core.action_count; i++) {
        if (!do_action(shard, shard->core.actions[i], e))
            continue;
        (shard->ops->fail)(shard->device, e); /* the core's states no longer hold: later calls are refused */
        return -1;
    }
    return 0;
}
