/* trainer_place.c - a rank's place in its schedule: printed by any thread while the rank works or hangs, and
 * watched by the thread that waits for the device. */
#include <stdatomic.h>
#include <stdio.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "runtime/comm/comm_text.h"
#include "runtime/train/trainer_state.h"

void trainer_op_name(const struct trainer *trainer, int index, char name[TRAINER_OP_NAME])
{
    const struct plan *plan = &trainer->plan;
    const struct schedule_op *op = &plan->ops[index];
    const bool layer = op->kind == OP_FORWARD || op->kind == OP_BACKWARD;
    const char *kind = op->kind == OP_COMM ? comm_kind_name(op->comm.kind) : op_kind_name(op->kind);
    const bool sends = op->kind == OP_COMM && op->comm.kind == COMM_SEND,
               crosses = sends || (op->kind == OP_COMM && op->comm.kind == COMM_RECV);
    const char *what = layer || crosses ? trainer->model->layers[op->layer].name
                       : op->group >= 0 ? plan->groups[op->group].name
                                        : "";
    if (crosses) { /* between stages */
        (void)snprintf(name, TRAINER_OP_NAME, "%s %.32s m%d %s stage %d", kind, what, op->micro,
                       sends ? "to" : "from", op->comm.root);
        return;
    }
    const char *again = op->kind == OP_FORWARD && op->mode == LAYER_RECOMPUTE ? " (again)" : "";
    (void)snprintf(name, TRAINER_OP_NAME, *what ? "%s %s%s" : "%s%s%s", kind, what,
                   again); /* cut if too long */
}

static void put_step(const struct trainer *trainer, struct buffer *out)
{
    const int64_t step = atomic_load(&trainer->stepping);
    const int place = executor_place(trainer->executor);
    char name[TRAINER_OP_NAME];
    if (step)
        buffer_printf(out, "in step %lld", (long long)step);
    else
        buffer_text(out, "between steps");
    if (place >= 0) {
        const struct schedule_op *op = &trainer->plan.ops[place];
        trainer_op_name(trainer, place, name);
        buffer_printf(out, ": compute has begun operation %d of %d last, %s", place + 1,
                      trainer->plan.op_count, name);
        if (op->micro >= 0)
            buffer_printf(out, " of micro-batch %d", op->micro);
    }
    buffer_text(out, "\n");
}

static const char *seen_text(char out[COMM_TEXT], const struct comm_seen *seen)
{
    const struct comm_op op = {.kind = seen->kind, .dtype = seen->dtype, .count = seen->count};
    return comm_op_text(out, &op);
}

/* stages: stages that share the comm of AXIS_TIED; another axis: 0. */
static int world_rank(const struct plan *plan, enum mesh_axis axis, uint64_t stages, int member)
{
    for (int stage = 0; axis == AXIS_TIED && stage < PLAN_STAGES; stage++)
        if (stages >> stage & 1 && member-- == 0) {
            member = stage;
            break;
        }
    return mesh_line_rank(plan->options.mesh, axis, plan->options.rank, member);
}

static void put_comm(const struct trainer *trainer, struct comm *comm, enum mesh_axis axis, uint64_t stages,
                     const char *stream, struct buffer *out)
{
    struct comm_status status;
    char issued[COMM_TEXT], finished[COMM_TEXT];
    trainer->comms.ops->status(comm, &status);
    buffer_printf(out, "comm of axis %s, %s: ", axis_name(axis), stream);
    if (!status.issued)
        buffer_text(out, "no operation was issued");
    else
        buffer_printf(out, "issued #%llu (%s) last", (unsigned long long)status.issued,
                      seen_text(issued, &status.last_issued));
    if (status.finished)
        buffer_printf(out, ", finished #%llu (%s) last", (unsigned long long)status.finished,
                      seen_text(finished, &status.last_finished));
    for (int i = 0; i < status.missing_count; i++)
        buffer_printf(out, i ? ", %d" : "; waits for rank %d",
                      world_rank(&trainer->plan, axis, stages, status.missing[i]));
    buffer_text(out, "\n");
}

/* The device may be far from the place of the host, which only enqueues. */
static void put_device(const struct trainer *trainer, struct buffer *out)
{
    char name[TRAINER_OP_NAME], text[DEVICE_UNDER_WAY];
    if (!trainer->ops->under_way)
        return;
    for (int i = 0; i < STREAM_COUNT; i++) {
        const int place = i == STREAM_COMPUTE ? -1 : executor_marked(trainer->executor, (enum stream_id)i);
        if (place < 0)
            continue;
        trainer_op_name(trainer, place, name);
        buffer_printf(out, "stream %s has begun operation %d of %d last, %s\n",
                      stream_name((enum stream_id)i), place + 1, trainer->plan.op_count, name);
    }
    trainer->ops->under_way(trainer->device, text);
    if (*text)
        buffer_printf(out, "under way on the device: %s\n", text);
}

/* Each comm once, with all streams that use it. */
static void put_pairs(const struct trainer *trainer, struct buffer *out)
{
    enum { PAIRS = AXIS_COUNT * STREAM_COUNT };
    struct comm *const *comms = &trainer->comms.comm[0][0];
    for (int pair = 0; pair < PAIRS; pair++) {
        scope_buffer streams = {0};
        bool earlier = !comms[pair], uses[STREAM_COUNT] = {false};
        for (int other = 0; other < PAIRS; other++) {
            if (comms[other] != comms[pair])
                continue;
            earlier |= other < pair;
            uses[other % STREAM_COUNT] = true;
        }
        for (int stream = 0; stream < STREAM_COUNT; stream++)
            if (uses[stream])
                buffer_printf(&streams, streams.length ? ", %s" : "%s", stream_name((enum stream_id)stream));
        if (comms[pair] == trainer->comms.control)
            buffer_text(&streams, ", between steps");
        if (!earlier && !streams.failed)
            put_comm(trainer, comms[pair], (enum mesh_axis)(pair / STREAM_COUNT), 0, streams.data, out);
    }
}

static bool is_control_put(const struct trainer *trainer)
{
    for (int pair = 0; pair < AXIS_COUNT * STREAM_COUNT; pair++)
        if ((&trainer->comms.comm[0][0])[pair] == trainer->comms.control)
            return true;
    return false;
}

int trainer_place(const struct trainer *trainer, struct buffer *out)
{
    put_pairs(trainer, out);
    for (int tie = 0; tie < trainer->plan.tie_count; tie++)
        if (trainer->comms.tied[tie])
            put_comm(trainer, trainer->comms.tied[tie], AXIS_TIED, trainer->plan.ties[tie],
                     stream_name(STREAM_REDUCE), out);
    if (trainer->comms.control && !is_control_put(trainer))
        put_comm(trainer, trainer->comms.control, AXIS_WORLD, 0, "between steps", out);
    if (trainer->comms.control && trainer->comms.ops->report)
        (void)trainer->comms.ops->report(trainer->comms.control, out); /* out has the reason */
    put_device(trainer, out);
    put_step(trainer, out); /* last: a launcher shows a worker's last line */
    return out->failed ? -1 : 0;
}

/* ---- waiting ---- */

/* Changes whenever a stream passes a mark. */
static int64_t progress_of(const struct trainer *trainer)
{
    int64_t sum = 0;
    for (int i = 0; i < STREAM_COUNT; i++)
        if (trainer->streams[i])
            sum = (int64_t)((uint64_t)sum * 31 + (uint64_t)trainer->ops->marked(trainer->streams[i]));
    return sum;
}

int trainer_await(const struct trainer *trainer, enum stream_id stream, struct muster_error *err)
{
    const struct device_ops *ops = trainer->ops;
    const int64_t patience = trainer->timeout_ns + trainer->timeout_ns / 2;
    if (!ops->marked || trainer->timeout_ns <= 0)
        return ops->sync(trainer->streams[stream], INSTANT_NEVER, err);
    for (;;) {
        const int64_t before = progress_of(trainer);
        const int failed = ops->sync(trainer->streams[stream], instant_add(clock_now(NULL), patience), err);
        if (!failed || err->code != MUSTER_E_TIMEOUT || ops->poll_error(trainer->device, err))
            return failed;
        if (progress_of(trainer) != before)
            continue;
        (void)error_wrap(err, "the device of rank %d has come no further for %.1f s", trainer->rank,
                         (double)patience / (double)NS_PER_S);
        (ops->fail)(trainer->device, err);
        return -1;
    }
}
