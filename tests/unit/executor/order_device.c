/* order_device.c - see order_internal.h. */
#include "tests/unit/executor/order_internal.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/cmocka_all.h"

/* ---- sets ---- */

int order_words;

uint64_t *order_set_new(int count)
{
    uint64_t *sets = calloc((size_t)(count * order_words) + 1, sizeof *sets);
    assert_non_null(sets);
    return sets;
}
void order_set_add(uint64_t *set, const uint64_t *other)
{
    for (int i = 0; i < order_words; i++)
        set[i] |= other[i];
}
void order_set_put(uint64_t *set, int piece)
{
    set[piece / 64] |= UINT64_C(1) << piece % 64;
}
bool order_set_has(const uint64_t *set, int piece)
{
    return set[piece / 64] >> piece % 64 & 1;
}
int order_set_lacks(const uint64_t *set, const uint64_t *of)
{
    for (int i = 0; i < order_words; i++)
        if (of[i] & ~set[i])
            return 64 * i + __builtin_ctzll(of[i] & ~set[i]);
    return -1;
}
/* ---- the device ---- */

struct order_state order;
const char *order_what;

int order_piece_of(int op)
{
    return order.generation * order.plan->op_count + op;
}

bool order_left_out(const struct schedule_op *op)
{
    return order.micros > 0 && (op->forward_micro < 0 || op->forward_micro >= order.micros);
}

/* A call for the operation, on this stream: votes and their copy are two calls. */
static void came(int op, struct device_stream *stream)
{
    const struct schedule_op *o = &order.plan->ops[op];
    if (stream->id != o->stream)
        fail_msg("%s: operation %d (%s) is on stream %s; the plan's is %s", order_what, op,
                 op_kind_name(o->kind), stream_name(stream->id), stream_name(o->stream));
    if (order.first && !o->carried) {
        order.first = false;
        order.generation++;
    }
    const int piece = order_piece_of(op);
    if (order_set_has(order.came, piece) && !o->votes)
        fail_msg("%s: operation %d (%s) is enqueued twice", order_what, op, op_kind_name(o->kind));
    memcpy(order.before + (size_t)piece * (size_t)order_words, stream->done,
           (size_t)order_words * sizeof *stream->done);
    order_set_put(order.came, piece);
    order_set_put(stream->done, piece);
    order.last[op] = piece;
}

struct device_event *order_event_create(struct device *device, struct muster_error *err)
{
    struct device_event *event = calloc(1, sizeof *event);
    (void)device, (void)err;
    assert_non_null(event);
    event->done = order_set_new(1);
    event->next = order.events;
    order.events = event;
    return event;
}
static void event_destroy(struct device_event *event)
{
    (void)event; /* freed with the case */
}
static int mark(struct device_stream *stream, int64_t number)
{
    (void)stream;
    order.op = (int)number - 1;
    return 0;
}
static int64_t marked(struct device_stream *stream)
{
    (void)stream;
    return 0;
}
void order_guard_wait(void *context, int group)
{
    (void)context;
    order.guarded = group;
}

static void *address(int entry, int64_t offset)
{
    return executor_address(&order.executor->parts, entry, offset);
}
static void same(const char *of, const void *is, const void *wanted)
{
    const struct schedule_op *op = &order.plan->ops[order.op];
    if (is != wanted)
        fail_msg("%s: operation %d (%s): %s is %p, and the plan's %p", order_what, order.op,
                 op_kind_name(op->kind), of, is, wanted);
}
static void same_place(const void *from, const void *to)
{
    const struct schedule_op *op = &order.plan->ops[order.op];
    same("from", from, address(op->from, op->from_offset));
    same("to", to, address(op->to, op->to_offset));
}
/* Called in the place of kernels that change state. */
static void changes(void)
{
    const struct schedule_op *op = &order.plan->ops[order.op];
    /* it changes what no checkpoint has */
    const bool reads = op->kind == OP_CAST || (op->kind == OP_ENCODE && op->feedback < 0);
    if (!reads && order.guarded != op->group)
        fail_msg("%s: operation %d (%s) changes group %d and has not asked the guard", order_what, order.op,
                 op_kind_name(op->kind), op->group);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
/* A step changes the group's masters, where there are some, and writes the values that move. */
static void stepped(const void *param, const void *grad, const void *moved)
{
    const struct schedule_op *op = &order.plan->ops[order.op];
    const int master = order.plan->groups[op->group].master;
    changes();
    same("param", param, master >= 0 ? address(master, 0) : address(op->to, op->to_offset));
    same("moved", moved, master >= 0 ? address(op->to, op->to_offset) : NULL);
    same("grad", grad, address(op->from, op->from_offset));
}
static void adamw(void *param, void *m, void *v, const void *grad, const struct optimizer_segment *segments,
                  int segment_count, void *moved, enum dtype dtype_moved, const struct step_scalars *scalars,
                  void *stream)
{
    const struct param_group *group = &order.plan->groups[order.plan->ops[order.op].group];
    stepped(param, grad, moved);
    same("m", m, address(group->moment1, 0));
    same("v", v, address(group->moment2, 0));
    same("segments", segments, &order.plan->segments[group->first_segment]);
    assert_int_equal(segment_count, group->segment_count);
    assert_int_equal(dtype_moved, order.plan->options.param_dtype);
}
static void norm_squared(double *out, const void *values, int64_t n, int beta, void *stream)
{
    const struct schedule_op *op = &order.plan->ops[order.op];
    same("values", values, address(op->from, op->from_offset));
    assert_int_equal(n * 4, op->bytes);
    assert_int_equal(beta, op->beta);
}
static void cast(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t n,
                 void *stream)
{
    const struct schedule_op *op = &order.plan->ops[order.op];
    same_place(from, to);
    assert_int_equal(dtype_to, order.plan->entries[op->to].dtype);
    assert_int_equal(dtype_from, order.plan->entries[op->from].dtype);
    assert_int_equal(n * dtype_size(dtype_to), op->bytes);
}
static void widen(void *out, const void *in, enum dtype dtype_in, int beta, int64_t n, void *stream)
{
    const struct schedule_op *op = &order.plan->ops[order.op];
    same_place(in, out);
    assert_int_equal(dtype_in, order.plan->entries[op->from].dtype);
    assert_int_equal(beta, op->beta);
    assert_int_equal(n * 4, op->bytes);
}
static void average(void *values, const void *param, double decay, int64_t n,
                    const struct step_scalars *scalars, void *stream)
{
    same_place(param, values);
    assert_int_equal(n * 4, order.plan->ops[order.op].bytes);
}
static void batch_norm_step(void *values, const void *change, int64_t n, void *moved, enum dtype dtype_moved,
                            const struct step_scalars *scalars, void *stream)
{
    stepped(values, change, moved);
    assert_int_equal(n, order.plan->groups[order.plan->ops[order.op].group].shard);
    assert_int_equal(dtype_moved, order.plan->options.param_dtype);
}
#define COMPRESSION(name, parameters, arguments)                                                             \
    static void changes_##name(KERNELS_EACH parameters, void *stream)                                        \
    {                                                                                                        \
        changes();                                                                                           \
    }
#include "kernels/operations.inc"
#pragma GCC diagnostic pop
static const struct kernels_compress kernels_compress = {
#define COMPRESSION(name, parameters, arguments) .name = changes_##name,
#include "kernels/operations.inc"
};
const struct kernels order_kernels = {.value = DTYPE_F32,
                                      .statistic = DTYPE_F32,
                                      .adamw = adamw,
                                      .batch_norm_step = batch_norm_step,
                                      .norm_squared = norm_squared,
                                      .cast = cast,
                                      .widen = widen,
                                      .average = average,
                                      .compress = &kernels_compress};

static int launch(struct device_stream *stream, void (*fn)(void *argument), void *argument)
{
    static const bool runs[OP_KIND_COUNT] = {[OP_STEP] = true, [OP_ENCODE] = true, [OP_DECODE] = true,
                                             [OP_NORM] = true, [OP_CAST] = true,   [OP_AVERAGE] = true};
    came(order.op, stream);
    order.guarded = -1;
    if (runs[order.plan->ops[order.op].kind])
        fn(argument);
    return 0;
}
struct comm *order_comm_of(int number)
{
    return (struct comm *)((uintptr_t)(number + 1) << 32);
}
static struct comm *comm_wanted(const struct schedule_op *op)
{
    return order_comm_of(op->axis == AXIS_TIED ? AXIS_COUNT * STREAM_COUNT +
                                                     plan_tie(order.plan, &order.plan->groups[op->group])
                                               : (int)op->axis * STREAM_COUNT + (int)op->stream);
}
static int copy(struct device_stream *stream, void *to, const void *from, int64_t bytes)
{
    const char *loss = to;
    if (order.losses && loss >= order.losses &&
        loss < order.losses + ORDER_MICROS * sizeof(struct plan_loss)) {
        assert_int_equal(stream->id, STREAM_COMPUTE);
        assert_int_equal(order.taken++, order.emptied); /* the one before was followed by zeroes */
        return 0;
    }
    same_place(from, to);
    assert_int_equal(bytes, order.plan->ops[order.op].bytes);
    came(order.op, stream);
    return 0;
}
static int fill(struct device_stream *stream, void *to, int byte, int64_t bytes)
{
    assert_int_equal(byte, 0);
    if (order.taken > order.emptied) {
        assert_ptr_equal(to, executor_address(&order.executor->parts, order.plan->loss, 0));
        assert_int_equal(bytes, sizeof(struct plan_loss));
        order.emptied++;
        return 0;
    }
    same("to", to, address(order.plan->ops[order.op].to, order.plan->ops[order.op].to_offset));
    assert_int_equal(bytes, order.plan->ops[order.op].bytes);
    came(order.op, stream);
    return 0;
}
static int record(struct device_stream *stream, struct device_event *event)
{
    memcpy(event->done, stream->done, (size_t)order_words * sizeof *event->done);
    return 0;
}
static int wait_for(struct device_stream *stream, struct device_event *event)
{
    order_set_add(stream->done, event->done);
    return 0;
}
static void *stream_handle(struct device_stream *stream)
{
    return stream;
}
static int poll_error(struct device *device, struct muster_error *err)
{
    (void)device, (void)err;
    return 0;
}
static int issue(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
                 struct device_stream *stream, struct muster_error *err)
{
    (void)err;
    same("the comm", comm, comm_wanted(&order.plan->ops[order.op]));
    same("what it does", op, &order.plan->ops[order.op].comm);
    same_place(send, recv);
    came(order.op, stream);
    return 0;
}
static void same_call(const struct comm_op *is, const struct comm_op *wanted)
{
    assert_int_equal(is->kind, wanted->kind);
    assert_int_equal(is->dtype, wanted->dtype);
    assert_int_equal(is->root, wanted->root);
    assert_int_equal(is->count, wanted->count);
    assert_int_equal(is->tag, wanted->tag);
}
/* All of a group begin when the first one does. */
static int exchange(struct comm *comm, const struct comm_transfer *transfers, int count,
                    struct device_stream *stream, struct muster_error *err)
{
    uint64_t *begin = order_set_new(1), *all = order_set_new(1);
    (void)err;
    same("the comm", comm, comm_wanted(&order.plan->ops[order.op]));
    memcpy(begin, stream->done, (size_t)order_words * sizeof *begin);
    for (int op = order.op; count > 0; op++) {
        if (order_left_out(&order.plan->ops[op]))
            continue;
        memcpy(stream->done, begin, (size_t)order_words * sizeof *begin);
        order.op = op;
        same_place(transfers->send, transfers->recv);
        same_call(&transfers->op, &order.plan->ops[op].comm);
        transfers++;
        came(op, stream);
        order_set_put(all, order.last[op]);
        count--;
    }
    order_set_add(stream->done, all);
    free(begin);
    free(all);
    return 0;
}

const struct device_ops order_device = {.name = "order",
                                        .event_create = order_event_create,
                                        .event_destroy = event_destroy,
                                        .stream_handle = stream_handle,
                                        .launch = launch,
                                        .copy = copy,
                                        .fill = fill,
                                        .record = record,
                                        .wait = wait_for,
                                        .mark = mark,
                                        .marked = marked,
                                        .poll_error = poll_error};
const struct comm_ops order_comms = {.name = "order", .issue = issue, .exchange = exchange};
