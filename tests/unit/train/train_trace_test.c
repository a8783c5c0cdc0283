/* train_trace_test.c - a trace of chosen steps, and a rank's place that another thread reads while it trains.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/train/train_harness.h"

enum { FIRST = 2, TRACED = 2, STEPS = 6 };

/* What one rank's trace must be. */
struct reading {
    const struct trainer *trainer;
    struct trainer_stats stats[TRACED];
    int steps, ops, wrong, gathers;
    int64_t waited_ns, begin_ns;
    int last_op;
};

static void check_waits(struct reading *r)
{
    if (!r->steps)
        return;
    const struct trainer_stats *stats = &r->stats[r->steps - 1];
    const int64_t exposed = r->waited_ns < stats->comm_ns ? r->waited_ns : stats->comm_ns;
    r->wrong += exposed != stats->exposed_ns;
    r->waited_ns = 0;
}

/* All that the comm moves: a shard's gather and its reduction have the whole group. */
static void check_bytes(struct reading *r, const struct trainer_trace_event *event)
{
    const struct plan *plan = trainer_plan(r->trainer);
    const struct schedule_op *op = &plan->ops[event->op];
    if (op->kind != OP_COMM)
        return;
    const bool of_shards = op->comm.kind == COMM_ALL_GATHER || op->comm.kind == COMM_REDUCE_SCATTER;
    const int64_t elements = of_shards ? plan->groups[op->group].padded : op->comm.count;
    r->wrong += event->bytes != elements * dtype_size(op->comm.dtype);
    r->gathers += of_shards;
}

static int read_event(void *context, const struct trainer_trace_event *event, struct muster_error *err)
{
    struct reading *r = context;
    (void)err;
    r->wrong += event->end_ns < event->begin_ns;
    if (event->kind == TRAINER_TRACE_STEP) {
        check_waits(r);
        r->stats[r->steps].comm_ns = event->comm_ns;
        r->stats[r->steps].exposed_ns = event->exposed_ns;
        r->wrong += event->step != FIRST + ++r->steps;
        r->begin_ns = event->begin_ns;
        r->last_op = -1;
        return 0;
    }
    r->wrong += event->begin_ns < r->begin_ns;
    if (event->kind == TRAINER_TRACE_WAIT) {
        r->waited_ns += event->end_ns - event->begin_ns;
        return 0;
    }
    r->wrong += event->op <= r->last_op;
    r->last_op = event->op;
    r->ops++;
    check_bytes(r, event);
    return 0;
}

static int trace(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct muster_error err = {0};
    struct reading r = {.trainer = trainer};
    if (step == FIRST)
        return trainer_trace(trainer, TRACED, &err);
    if (step != FIRST + TRACED + 1) /* one step more than was asked for */
        return 0;
    if (trainer_traced(trainer, read_event, &r, &err) < 0)
        return -1;
    check_waits(&r);
    if (r.wrong || (run->strategy == STRATEGY_FULL_SHARD && !r.gathers) || r.steps != TRACED ||
        r.ops != TRACED * trainer_plan(trainer)->op_count) {
        fprintf(stderr, "rank %d: %d wrong, %d steps, %d operations\n", rank, r.wrong, r.steps, r.ops);
        return -1;
    }
    struct reading none = {0};
    return trainer_trace(trainer, 0, &err) || trainer_traced(trainer, read_event, &none, &err) || none.steps;
}

static void chosen_steps_are_traced(void **state)
{
    (void)state;
    static const enum strategy strategies[] = {STRATEGY_FULL_SHARD, STRATEGY_NO_SHARD};
    for (int i = 0; i < 2; i++) {
        struct training run = training_small();
        run.strategy = strategies[i];
        run.mesh.side[SIDE_SHARD] = 2;
        run.steps = STEPS;
        run.clip_norm = 1;
        run.visit = trace;
        assert_int_equal(training_run(&run), 0);
    }
}

/* ---- places ---- */

struct places {
    atomic_bool ends;
    const struct trainer *trainer;
    pthread_t thread;
    int read;
    bool wrong;
};

static void *read_places(void *context)
{
    struct places *places = context;
    while (!atomic_load(&places->ends)) {
        scope_buffer text = {0};
        places->wrong |=
            trainer_place(places->trainer, &text) < 0 || !strstr(text.data, "comm of axis shard, gather: ");
        places->wrong |= !strstr(text.data, "in step ") && !strstr(text.data, "between steps");
        places->read++;
    }
    return NULL;
}

static int place(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct places *places = (struct places *)run->context + rank;
    scope_buffer text = {0};
    if (step == 0) {
        places->trainer = trainer;
        return pthread_create(&places->thread, NULL, read_places, places);
    }
    if (trainer_place(trainer, &text) < 0 ||
        !strstr(text.data, "between steps: compute has begun operation "))
        return -1;
    if (step < STEPS)
        return 0;
    atomic_store(&places->ends, true);
    return pthread_join(places->thread, NULL) || places->wrong || !places->read;
}

static void a_place_is_read_meanwhile(void **state)
{
    (void)state;
    static struct places places[2];
    struct training run = training_small();
    run.strategy = STRATEGY_FULL_SHARD;
    run.mesh.side[SIDE_SHARD] = 2;
    run.steps = STEPS;
    run.visit = place;
    run.context = places;
    assert_int_equal(training_run(&run), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chosen_steps_are_traced),
        cmocka_unit_test(a_place_is_read_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
