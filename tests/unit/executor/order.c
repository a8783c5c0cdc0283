/* order.c - see order.h: the runs, and the order that the plan asks for. */
#include "tests/unit/executor/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cmocka_all.h"
#include "tests/support/plan_world.h"
#include "tests/unit/executor/order_internal.h"

enum { RUNS = 10 };
/* ---- the order that the plan asks for ---- */

static bool is_for_other_steps(const struct schedule_op *op)
{
    return op->when != WHEN_ALWAYS && (op->when == WHEN_COMPRESSED) != order.executor->compresses;
}

/* Work that operations of the run come after: the plan's edges, also through operations that this run
 * leaves out. earlier: the latest pieces before the run. */
static void check_run(const int *earlier)
{
    const struct plan *plan = order.plan;
    const int generation = order.generation * plan->op_count;
    uint64_t *need = order_set_new(plan->op_count);
    int previous[STREAM_COUNT], group = 0;
    memset(previous, -1, sizeof previous);
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        uint64_t *mine = need + (size_t)i * (size_t)order_words;
        group = op->joins ? group : i;
        const int before = previous[op->stream];
        if (before >= 0 && !op->joins)
            order_set_add(mine, need + (size_t)before * (size_t)order_words);
        if (before >= 0 && !op->joins && order_set_has(order.came, generation + before))
            order_set_put(mine, generation + before);
        for (int w = 0; w < op->wait_count; w++) {
            const int other = op->wait[w];
            if (other < i)
                order_set_add(mine, need + (size_t)other * (size_t)order_words);
            if (other < i && order_set_has(order.came, generation + other))
                order_set_put(mine, generation + other);
            if (other >= i && earlier[other] >= 0)
                order_set_put(mine, earlier[other]);
        }
        if (op->joins) /* the group's first one begins when all may */
            order_set_add(need + (size_t)group * (size_t)order_words, mine),
                order_set_add(mine, need + (size_t)group * (size_t)order_words);
        previous[op->stream] = i;
    }
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        const bool wanted = !order_left_out(op) && !is_for_other_steps(op);
        if (wanted != order_set_has(order.came, generation + i))
            fail_msg("%s: operation %d (%s) is %s", order_what, i, op_kind_name(op->kind),
                     wanted ? "not enqueued" : "enqueued, and this run leaves it out");
        const int lacks = wanted
                              ? order_set_lacks(order.before + (size_t)(generation + i) * (size_t)order_words,
                                                need + (size_t)i * (size_t)order_words)
                              : -1;
        if (lacks >= 0)
            fail_msg("%s: operation %d (%s) may begin before operation %d (%s) of generation %d is done",
                     order_what, i, op_kind_name(op->kind), lacks % plan->op_count,
                     op_kind_name(plan->ops[lacks % plan->op_count].kind), lacks / plan->op_count);
    }
    free(need);
}

/* ---- the marks of a traced run ---- */

static bool is_marked(int op, int timer, int piece)
{
    return order_set_has(order.marks[op].timer[timer]->done, piece);
}

/* An operation's time begins after its waits, and the mark before does not have them yet. A group of
 * transfers has one time. */
static void check_marks(void)
{
    const struct plan *plan = order.plan;
    int before = -1; /* the operation of the compute stream before this one */
    for (int i = 0; order.marks && i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        const int piece = order_piece_of(i), last = op->stream == STREAM_COMPUTE ? before : -1;
        if (op->stream == STREAM_COMPUTE)
            before = i;
        if (!order_set_has(order.came, piece) || op->joins || (op->carried && order.first))
            continue;
        const int lacks = order_set_lacks(order.marks[i].timer[MARK_BEGIN]->done,
                                          order.before + (size_t)piece * (size_t)order_words);
        if ((lacks >= 0 && lacks != piece) || is_marked(i, MARK_BEGIN, piece) ||
            !is_marked(i, MARK_END, piece))
            fail_msg("%s: operation %d (%s) is not between its marks", order_what, i, op_kind_name(op->kind));
        for (int w = 0; last >= 0 && w < op->wait_count; w++) {
            const int other = op->wait[w] < i ? order_piece_of(op->wait[w]) : -1;
            if (other >= 0 && plan->ops[op->wait[w]].stream != STREAM_COMPUTE &&
                !order_set_has(order.before + (size_t)order_piece_of(last) * (size_t)order_words, other) &&
                is_marked(i, MARK_BEFORE, other))
                fail_msg("%s: the mark before operation %d (%s) waits for operation %d", order_what, i,
                         op_kind_name(op->kind), op->wait[w]);
        }
    }
}

static struct executor_mark *marks_new(void)
{
    const struct plan *plan = order.plan;
    struct executor_mark *marks = calloc((size_t)plan->op_count + 1, sizeof *marks);
    assert_non_null(marks);
    for (int i = 0; i <= plan->op_count; i++) {
        const enum stream_id stream = i < plan->op_count ? plan->ops[i].stream : STREAM_COMPUTE;
        marks[i].ops = order.executor->parts.ops;
        marks[i].stream = &order.streams[stream];
        for (int timer = 0; timer < MARK_TIMERS; timer++)
            marks[i].timer[timer] = order_event_create(NULL, NULL);
    }
    return marks;
}

/* At the end of a run the compute stream has waited for all but the carried operations, and for those not at
 * all. */
static void check_end(void)
{
    const struct plan *plan = order.plan;
    const uint64_t *done = order.streams[STREAM_COMPUTE].done;
    for (int i = 0; i < plan->op_count; i++) {
        const int piece = order_piece_of(i);
        if (order_set_has(order.came, piece) && order_set_has(done, piece) == plan->ops[i].carried)
            fail_msg("%s: the end of a run %s operation %d (%s)", order_what,
                     plan->ops[i].carried ? "waits for the carried" : "does not wait for", i,
                     op_kind_name(plan->ops[i].kind));
    }
}

/* The gathers into slots that the run before has not made come first. */
static void check_first(int generation)
{
    for (int i = 0; i < order.plan->op_count; i++) {
        const struct schedule_op *op = &order.plan->ops[i];
        if (op->carried && order.plan->entries[op->to].kind == PLAN_GATHER_SLOT &&
            !order_set_has(order.came, generation * order.plan->op_count + i))
            fail_msg("%s: operation %d (%s) is not made at the run's begin", order_what, i,
                     op_kind_name(op->kind));
    }
}

/* micros: of an evaluation; 0: a step. The host waits for the compute stream first. */
static void run(int micros)
{
    static struct plan_loss losses[ORDER_MICROS];
    struct muster_error err = {0};
    int *earlier = calloc((size_t)order.plan->op_count + 1, sizeof *earlier);
    assert_non_null(earlier);
    for (int s = 0; s < STREAM_COUNT; s++)
        order_set_add(order.streams[s].done, order.streams[STREAM_COMPUTE].done);
    order.generation++;
    order.first = !order.gathered;
    order.micros = micros;
    order.losses = micros ? (const char *)losses : NULL;
    order.taken = order.emptied = 0;
    const int generation = order.generation;
    const bool first = order.first;
    const int result =
        micros ? executor_evaluate(order.executor, micros, losses, &err) : executor_run(order.executor, &err);
    if (result)
        fail_msg("%s: %s", order_what, err.text);
    /* The latest pieces before: of the first gathers, or of any run before. */
    for (int i = 0; i < order.plan->op_count; i++) {
        earlier[i] = -1;
        for (int g = first ? generation : generation - 1; g >= 0 && earlier[i] < 0; g--)
            if (g != order.generation && order_set_has(order.came, g * order.plan->op_count + i))
                earlier[i] = g * order.plan->op_count + i;
    }
    if (first)
        check_first(generation);
    check_run(earlier);
    check_end();
    check_marks();
    order.gathered = micros == 0;
    const struct mesh_line stages =
        mesh_line(order.plan->options.mesh, AXIS_PIPELINE, order.plan->options.rank);
    if (stages.place == stages.size - 1)
        assert_int_equal(order.taken, micros);
    assert_int_equal(order.emptied, order.taken);
    free(earlier);
}

static void play(const struct plan *plan)
{
    enum { GENERATIONS = 2 * RUNS + 1 };
    const int evaluations = plan->forward_micros < ORDER_MICROS ? plan->forward_micros : ORDER_MICROS;
    order.micros = 0;
    order.generation = 0;
    run(0);
    run(0);
    run(1);
    run(1);
    run(0);
    run(evaluations);
    run(0);
    executor_forget(order.executor);
    order.gathered = false;
    run(0);
    executor_compress(order.executor, true);
    run(0);
    order.marks = marks_new();
    executor_trace(order.executor, order.marks);
    run(0);
    executor_trace(order.executor, NULL);
    free(order.marks);
    order.marks = NULL;
    assert_true(order.generation < GENERATIONS);
}

void order_check_plan(const char *name, const struct model *model, const struct plan *plan)
{
    enum { GENERATIONS = 2 * RUNS + 1 };
    static const struct step_guard guard = {.wait = order_guard_wait};
    struct muster_error err = {0};
    struct device_arena arenas[MEMORY_CLASS_COUNT];
    struct device_stream *streams[STREAM_COUNT] = {NULL};
    struct comm_table comms = {.ops = &order_comms};
    order_what = name;
    memset(&order, 0, sizeof order);
    order.plan = plan;
    order_words = (GENERATIONS * plan->op_count + 63) / 64;
    order.before = order_set_new(GENERATIONS * plan->op_count);
    order.came = order_set_new(1);
    order.last = calloc((size_t)plan->op_count + 1, sizeof *order.last);
    assert_non_null(order.last);
    for (int s = 0; s < STREAM_COUNT; s++)
        order.streams[s] = (struct device_stream){.id = (enum stream_id)s, .done = order_set_new(1)};
    streams[STREAM_COMPUTE] = &order.streams[STREAM_COMPUTE];
    for (int i = 0; i < plan->op_count; i++)
        streams[plan->ops[i].stream] = &order.streams[plan->ops[i].stream];
    for (int m = 0; m < MEMORY_CLASS_COUNT; m++) /* addresses that nobody reads */
        arenas[m] = (struct device_arena){.base = (void *)((uintptr_t)(m + 1) << 40),
                                          .bytes = plan->arena_bytes[m],
                                          .memory = (enum memory_class)m};
    for (int s = 0; s < STREAM_COUNT; s++)
        for (int a = 0; a < AXIS_COUNT; a++)
            comms.comm[a][s] = order_comm_of(a * STREAM_COUNT + s);
    for (int t = 0; t < PLAN_TIES; t++)
        comms.tied[t] = order_comm_of(AXIS_COUNT * STREAM_COUNT + t);
    const struct executor_parts parts = {.model = model,
                                         .plan = plan,
                                         .ops = &order_device,
                                         .device = (struct device *)&order,
                                         .kernels = &order_kernels,
                                         .arenas = arenas,
                                         .streams = streams,
                                         .comms = &comms,
                                         .guard = &guard};
    order.executor = executor_create(&parts, &err);
    if (!order.executor)
        fail_msg("%s: %s", order_what, err.text);
    play(plan);
    executor_destroy(order.executor);
    for (struct device_event *event = order.events, *next; event; event = next) {
        next = event->next;
        free(event->done);
        free(event);
    }
    for (int s = 0; s < STREAM_COUNT; s++)
        free(order.streams[s].done);
    free(order.last);
    free(order.came);
    free(order.before);
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
