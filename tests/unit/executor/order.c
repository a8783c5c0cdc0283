/* order.c - see order.h: a device that runs nothing. For each stream it keeps the work that is done before
 * the next piece begins. */
#include "tests/unit/executor/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/executor/executor_internal.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/plan_world.h"

enum { RUNS = 10, MICROS = 8 };

/* ---- sets of pieces of work: an operation in a generation, of which each run has one or two ---- */

static int words; /* their length */

static uint64_t *set_new(int count)
{
    uint64_t *sets = calloc((size_t)(count * words) + 1, sizeof *sets);
    assert_non_null(sets);
    return sets;
}
static void set_add(uint64_t *set, const uint64_t *other)
{
    for (int i = 0; i < words; i++)
        set[i] |= other[i];
}
static void set_put(uint64_t *set, int piece)
{
    set[piece / 64] |= UINT64_C(1) << piece % 64;
}
static bool set_has(const uint64_t *set, int piece)
{
    return set[piece / 64] >> piece % 64 & 1;
}
/* A piece of `of` that `set` lacks; -1: none. */
static int set_lacks(const uint64_t *set, const uint64_t *of)
{
    for (int i = 0; i < words; i++)
        if (of[i] & ~set[i])
            return 64 * i + __builtin_ctzll(of[i] & ~set[i]);
    return -1;
}

/* ---- the device ---- */

struct device_stream {
    enum stream_id id;
    uint64_t *done; /* before the next piece */
};
struct device_event {
    uint64_t *done;
    struct device_event *next;
};

static struct {
    const struct plan *plan;
    struct executor *executor;
    struct device_stream streams[STREAM_COUNT];
    struct device_event *events;
    uint64_t *before; /* [pieces]: the work done before a piece */
    uint64_t *came;   /* the pieces that were enqueued */
    int *last;        /* [op_count]: the operation's latest piece; -1: none */
    int generation;   /* pieces that are enqueued now have it */
    bool gathered;    /* the run before has made the next one's first gathers */
    bool first;       /* the run's first gathers are being enqueued */
    int op;           /* that is being enqueued */
    int micros;       /* this run's; 0: a step */
    const char *losses;
    int taken, emptied; /* losses */
    int guarded;        /* the group that the guard was asked for last; -1: none since the operation began */
} now;

static const char *what; /* the case, for failures */

static int piece_of(int op)
{
    return now.generation * now.plan->op_count + op;
}

static bool left_out(const struct schedule_op *op)
{
    return now.micros > 0 && (op->forward_micro < 0 || op->forward_micro >= now.micros);
}

/* A call for the operation, on this stream: votes and their copy are two calls. */
static void came(int op, struct device_stream *stream)
{
    const struct schedule_op *o = &now.plan->ops[op];
    if (stream->id != o->stream)
        fail_msg("%s: operation %d (%s) is on stream %s; the plan's is %s", what, op, op_kind_name(o->kind),
                 stream_name(stream->id), stream_name(o->stream));
    if (now.first && !o->carried) {
        now.first = false;
        now.generation++;
    }
    const int piece = piece_of(op);
    if (set_has(now.came, piece) && !o->votes)
        fail_msg("%s: operation %d (%s) is enqueued twice", what, op, op_kind_name(o->kind));
    memcpy(now.before + (size_t)piece * (size_t)words, stream->done, (size_t)words * sizeof *stream->done);
    set_put(now.came, piece);
    set_put(stream->done, piece);
    now.last[op] = piece;
}

static struct device_event *event_create(struct device *device, struct muster_error *err)
{
    struct device_event *event = calloc(1, sizeof *event);
    (void)device, (void)err;
    assert_non_null(event);
    event->done = set_new(1);
    event->next = now.events;
    now.events = event;
    return event;
}
static void event_destroy(struct device_event *event)
{
    (void)event; /* freed with the case */
}
static int mark(struct device_stream *stream, int64_t number)
{
    (void)stream;
    now.op = (int)number - 1;
    return 0;
}
static int64_t marked(struct device_stream *stream)
{
    (void)stream;
    return 0;
}
static void guard_wait(void *context, int group)
{
    (void)context;
    now.guarded = group;
}

/* Called in the place of kernels that change state. */
static void changes(void)
{
    const struct schedule_op *op = &now.plan->ops[now.op];
    const bool reads = op->kind == OP_ENCODE && op->feedback < 0; /* it changes what no checkpoint has */
    if (!reads && now.guarded != op->group)
        fail_msg("%s: operation %d (%s) changes group %d and has not asked the guard", what, now.op,
                 op_kind_name(op->kind), op->group);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
static void adamw(void *param, void *m, void *v, const void *grad, const struct optimizer_segment *segments,
                  int segment_count, void *moved, enum dtype dtype_moved, const struct step_scalars *scalars,
                  void *stream)
{
    changes();
}
static void batch_norm_step(void *values, const void *change, int64_t n, void *moved, enum dtype dtype_moved,
                            const struct step_scalars *scalars, void *stream)
{
    changes();
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
static const struct kernels kernels = {
    .adamw = adamw, .batch_norm_step = batch_norm_step, .compress = &kernels_compress};

static int launch(struct device_stream *stream, void (*fn)(void *argument), void *argument)
{
    const enum op_kind kind = now.plan->ops[now.op].kind;
    came(now.op, stream);
    now.guarded = -1;
    if (kind == OP_STEP || kind == OP_ENCODE || kind == OP_DECODE)
        fn(argument);
    return 0;
}
static int copy(struct device_stream *stream, void *to, const void *from, int64_t bytes)
{
    (void)from, (void)bytes;
    const char *loss = to;
    if (now.losses && loss >= now.losses && loss < now.losses + MICROS * sizeof(struct plan_loss)) {
        assert_int_equal(stream->id, STREAM_COMPUTE);
        assert_int_equal(now.taken++, now.emptied); /* the one before was followed by zeroes */
        return 0;
    }
    came(now.op, stream);
    return 0;
}
static int fill(struct device_stream *stream, void *to, int byte, int64_t bytes)
{
    assert_int_equal(byte, 0);
    if (now.taken > now.emptied) {
        assert_ptr_equal(to, executor_address(&now.executor->parts, now.plan->loss, 0));
        assert_int_equal(bytes, sizeof(struct plan_loss));
        now.emptied++;
        return 0;
    }
    came(now.op, stream);
    return 0;
}
static int record(struct device_stream *stream, struct device_event *event)
{
    memcpy(event->done, stream->done, (size_t)words * sizeof *event->done);
    return 0;
}
static int wait_for(struct device_stream *stream, struct device_event *event)
{
    set_add(stream->done, event->done);
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
    (void)comm, (void)op, (void)send, (void)recv, (void)err;
    came(now.op, stream);
    return 0;
}
/* All of a group begin when the first one does. */
static int exchange(struct comm *comm, const struct comm_transfer *transfers, int count,
                    struct device_stream *stream, struct muster_error *err)
{
    uint64_t *begin = set_new(1), *all = set_new(1);
    (void)comm, (void)transfers, (void)err;
    memcpy(begin, stream->done, (size_t)words * sizeof *begin);
    for (int op = now.op; count > 0; op++) {
        if (left_out(&now.plan->ops[op]))
            continue;
        memcpy(stream->done, begin, (size_t)words * sizeof *begin);
        came(op, stream);
        set_put(all, now.last[op]);
        count--;
    }
    set_add(stream->done, all);
    free(begin);
    free(all);
    return 0;
}

static const struct device_ops ops = {.name = "order",
                                      .event_create = event_create,
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
static const struct comm_ops comm = {.name = "order", .issue = issue, .exchange = exchange};

/* ---- the order that the plan asks for ---- */

static bool is_for_other_steps(const struct schedule_op *op)
{
    return op->when != WHEN_ALWAYS && (op->when == WHEN_COMPRESSED) != now.executor->compresses;
}

/* Work that operations of the run come after: the plan's edges, also through operations that this run
 * leaves out. earlier: the latest pieces before the run. */
static void check_run(const int *earlier)
{
    const struct plan *plan = now.plan;
    const int generation = now.generation * plan->op_count;
    uint64_t *need = set_new(plan->op_count);
    int previous[STREAM_COUNT], group = 0;
    memset(previous, -1, sizeof previous);
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        uint64_t *mine = need + (size_t)i * (size_t)words;
        group = op->joins ? group : i;
        const int before = previous[op->stream];
        if (before >= 0 && !op->joins)
            set_add(mine, need + (size_t)before * (size_t)words);
        if (before >= 0 && !op->joins && set_has(now.came, generation + before))
            set_put(mine, generation + before);
        for (int w = 0; w < op->wait_count; w++) {
            const int other = op->wait[w];
            if (other < i)
                set_add(mine, need + (size_t)other * (size_t)words);
            if (other < i && set_has(now.came, generation + other))
                set_put(mine, generation + other);
            if (other >= i && earlier[other] >= 0)
                set_put(mine, earlier[other]);
        }
        if (op->joins) /* the group's first one begins when all may */
            set_add(need + (size_t)group * (size_t)words, mine),
                set_add(mine, need + (size_t)group * (size_t)words);
        previous[op->stream] = i;
    }
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        const bool wanted = !left_out(op) && !is_for_other_steps(op);
        if (wanted != set_has(now.came, generation + i))
            fail_msg("%s: operation %d (%s) is %s", what, i, op_kind_name(op->kind),
                     wanted ? "not enqueued" : "enqueued, and this run leaves it out");
        const int lacks = wanted ? set_lacks(now.before + (size_t)(generation + i) * (size_t)words,
                                             need + (size_t)i * (size_t)words)
                                 : -1;
        if (lacks >= 0)
            fail_msg("%s: operation %d (%s) may begin before operation %d (%s) of generation %d is done",
                     what, i, op_kind_name(op->kind), lacks % plan->op_count,
                     op_kind_name(plan->ops[lacks % plan->op_count].kind), lacks / plan->op_count);
    }
    free(need);
}

/* At the end of a run the compute stream has waited for all but the carried operations, and for those not at
 * all. */
static void check_end(void)
{
    const struct plan *plan = now.plan;
    const uint64_t *done = now.streams[STREAM_COMPUTE].done;
    for (int i = 0; i < plan->op_count; i++) {
        const int piece = piece_of(i);
        if (set_has(now.came, piece) && set_has(done, piece) == plan->ops[i].carried)
            fail_msg("%s: the end of a run %s operation %d (%s)", what,
                     plan->ops[i].carried ? "waits for the carried" : "does not wait for", i,
                     op_kind_name(plan->ops[i].kind));
    }
}

/* The gathers into slots that the run before has not made come first. */
static void check_first(int generation)
{
    for (int i = 0; i < now.plan->op_count; i++) {
        const struct schedule_op *op = &now.plan->ops[i];
        if (op->carried && now.plan->entries[op->to].kind == PLAN_GATHER_SLOT &&
            !set_has(now.came, generation * now.plan->op_count + i))
            fail_msg("%s: operation %d (%s) is not made at the run's begin", what, i, op_kind_name(op->kind));
    }
}

/* micros: of an evaluation; 0: a step. The host waits for the compute stream first. */
static void run(int micros)
{
    static struct plan_loss losses[MICROS];
    struct muster_error err = {0};
    int *earlier = calloc((size_t)now.plan->op_count + 1, sizeof *earlier);
    assert_non_null(earlier);
    for (int s = 0; s < STREAM_COUNT; s++)
        set_add(now.streams[s].done, now.streams[STREAM_COMPUTE].done);
    now.generation++;
    now.first = !now.gathered;
    now.micros = micros;
    now.losses = micros ? (const char *)losses : NULL;
    now.taken = now.emptied = 0;
    const int generation = now.generation;
    const bool first = now.first;
    const int result =
        micros ? executor_evaluate(now.executor, micros, losses, &err) : executor_run(now.executor, &err);
    if (result)
        fail_msg("%s: %s", what, err.text);
    /* The latest pieces before: of the first gathers, or of any run before. */
    for (int i = 0; i < now.plan->op_count; i++) {
        earlier[i] = -1;
        for (int g = first ? generation : generation - 1; g >= 0 && earlier[i] < 0; g--)
            if (g != now.generation && set_has(now.came, g * now.plan->op_count + i))
                earlier[i] = g * now.plan->op_count + i;
    }
    if (first)
        check_first(generation);
    check_run(earlier);
    check_end();
    now.gathered = micros == 0;
    const struct mesh_line stages = mesh_line(now.plan->options.mesh, AXIS_PIPELINE, now.plan->options.rank);
    if (stages.place == stages.size - 1)
        assert_int_equal(now.taken, micros);
    assert_int_equal(now.emptied, now.taken);
    free(earlier);
}

static void play(const struct plan *plan)
{
    enum { GENERATIONS = 2 * RUNS + 1 };
    const int evaluations = plan->forward_micros < MICROS ? plan->forward_micros : MICROS;
    now.micros = 0;
    now.generation = 0;
    run(0);
    run(0);
    run(1);
    run(1);
    run(0);
    run(evaluations);
    run(0);
    executor_forget(now.executor);
    now.gathered = false;
    run(0);
    executor_compress(now.executor, true);
    run(0);
    run(0);
    assert_true(now.generation < GENERATIONS);
}

void order_check_plan(const char *name, const struct model *model, const struct plan *plan)
{
    enum { GENERATIONS = 2 * RUNS + 1 };
    static const struct step_guard guard = {.wait = guard_wait};
    struct muster_error err = {0};
    struct device_arena arenas[MEMORY_CLASS_COUNT];
    struct device_stream *streams[STREAM_COUNT] = {NULL};
    struct comm_table comms = {.ops = &comm};
    what = name;
    memset(&now, 0, sizeof now);
    now.plan = plan;
    words = (GENERATIONS * plan->op_count + 63) / 64;
    now.before = set_new(GENERATIONS * plan->op_count);
    now.came = set_new(1);
    now.last = calloc((size_t)plan->op_count + 1, sizeof *now.last);
    assert_non_null(now.last);
    for (int s = 0; s < STREAM_COUNT; s++)
        now.streams[s] = (struct device_stream){.id = (enum stream_id)s, .done = set_new(1)};
    streams[STREAM_COMPUTE] = &now.streams[STREAM_COMPUTE];
    for (int i = 0; i < plan->op_count; i++)
        streams[plan->ops[i].stream] = &now.streams[plan->ops[i].stream];
    for (int m = 0; m < MEMORY_CLASS_COUNT; m++) /* addresses that nobody reads */
        arenas[m] = (struct device_arena){.base = (void *)((uintptr_t)(m + 1) << 40),
                                          .bytes = plan->arena_bytes[m],
                                          .memory = (enum memory_class)m};
    for (int s = 0; s < STREAM_COUNT; s++)
        for (int a = 0; a < AXIS_COUNT; a++)
            comms.comm[a][s] = (struct comm *)&now;
    for (int t = 0; t < PLAN_TIES; t++)
        comms.tied[t] = (struct comm *)&now;
    const struct executor_parts parts = {.model = model,
                                         .plan = plan,
                                         .ops = &ops,
                                         .device = (struct device *)&now,
                                         .kernels = &kernels,
                                         .arenas = arenas,
                                         .streams = streams,
                                         .comms = &comms,
                                         .guard = &guard};
    now.executor = executor_create(&parts, &err);
    if (!now.executor)
        fail_msg("%s: %s", what, err.text);
    play(plan);
    executor_destroy(now.executor);
    for (struct device_event *event = now.events, *next; event; event = next) {
        next = event->next;
        free(event->done);
        free(event);
    }
    for (int s = 0; s < STREAM_COUNT; s++)
        free(now.streams[s].done);
    free(now.last);
    free(now.came);
    free(now.before);
}

void order_check(const char *name, struct plan_model *m, const struct plan_options *options)
{
    struct muster_error err = {0};
    struct plan_world world;
    if (plan_world_build(&m->model, options, &world, &err) < 0)
        fail_msg("%s: %s", name, err.text);
    for (int rank = 0; rank<world.count; rank += world.count> 1 ? world.count - 1 : 1)
        order_check_plan(name, &m->model, &world.plans[rank]);
    plan_world_free(&world);
}
