/* plan_check_test.c - the checker catches all faults of a plan: every wait, every operation and
 * every number of a plan matters, and taking it away is noticed. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/plan/plan.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/plan_models.h"
#include "tests/support/plan_world.h"

/* A world that is right, to be spoilt in one place at a time. */
struct bench {
    const char *name;
    struct plan_model *m;
    struct plan_world world;
};

static struct bench bench(const char *name, struct plan_model *m, const struct plan_options *options)
{
    struct bench b = {.name = name, .m = m};
    struct muster_error err = {0};
    if (plan_world_build(&m->model, options, &b.world, &err) < 0)
        fail_msg("%s: %s", name, err.text);
    return b;
}

static void bench_end(struct bench *b)
{
    plan_world_free(&b->world);
    plan_model_destroy(b->m);
}

enum { BENCHES = 18 };
static struct bench make(int which)
{
    struct plan_model *gpt = which == 3                   ? plan_model_cnn(3, 100)
                             : which >= 11 && which <= 12 ? plan_model_untied(2, 16, 40, 8, 24)
                             : which >= 14                ? plan_model_gpt(2, 16, 40, 8, 24, 2)
                                                          : plan_model_gpt(4, 16, 40, 8, 24, 0);
    struct plan_options o = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    o.shape = (struct shape){3, 8};
    o.group_bytes = 4096;
    switch (which) {
    case 0:
        o.micro_batches = 2;
        return bench("full shard", gpt, &o);
    case 1:
        o.strategy = STRATEGY_HYBRID_SHARD;
        o.mesh = (struct mesh)MESH(1, 2, 2);
        o.compression.kind = COMPRESSION_TOPK;
        o.compression.ratio = 0.1;
        return bench("hybrid with top-k", gpt, &o);
    case 16:
        o.strategy = STRATEGY_HYBRID_SHARD;
        o.mesh = (struct mesh)MESH(1, 2, 2);
        o.compression = (struct compression_options){.kind = COMPRESSION_POWERSGD, .rank = 2, .least = 20};
        return bench("hybrid with factors", gpt, &o);
    case 17:
        o.strategy = STRATEGY_NO_SHARD;
        o.mesh = (struct mesh)MESH(2, 2, 1);
        o.micro_batches = 2;
        o.compression = (struct compression_options){
            .kind = COMPRESSION_TOPK, .ratio = 0.1, .least = 20, .start = 1, .forgets = true};
        plan_model_stages(gpt, 2);
        return bench("pipeline with top-k after a dense step", gpt, &o);
    case 2:
        o.strategy = STRATEGY_SHARD_OPTIM;
        o.micro_batches = 2;
        o.average_decay = 0.9;
        return bench("shard optim, averaged", gpt, &o);
    case 3:
        return bench("cnn", gpt, &o);
    case 4:
        o.mesh = (struct mesh)MESH(2, 1, 2);
        o.micro_batches = 3;
        plan_model_stages(gpt, 2);
        return bench("pipeline", gpt, &o);
    case 5:
        o.strategy = STRATEGY_NO_SHARD;
        o.mesh = (struct mesh)MESH(1, 2, 1);
        gpt->layers[2].recompute = true;
        return bench("no shard", gpt, &o);
    case 6:
        o.strategy = STRATEGY_HYBRID_SHARD;
        o.mesh = (struct mesh)MESH(1, 2, 2);
        o.micro_batches = 2;
        o.param_dtype = o.reduce_dtype = DTYPE_BF16;
        o.average_decay = 0.9;
        return bench("hybrid in bf16, averaged", gpt, &o);
    case 7:
        o.strategy = STRATEGY_SHARD_OPTIM;
        o.param_dtype = o.reduce_dtype = DTYPE_F16;
        return bench("shard optim in f16", gpt, &o);
    case 9:
        o.micro_batches = 2;
        o.embedding_gradient = EMBEDDING_ROWS;
        return bench("full shard, rows", gpt, &o);
    case 10:
        o.strategy = STRATEGY_HYBRID_SHARD;
        o.mesh = (struct mesh)MESH(1, 2, 2);
        o.reduce_dtype = DTYPE_BF16;
        o.embedding_gradient = EMBEDDING_ROWS;
        return bench("hybrid, reduced in bf16, rows", gpt, &o);
    case 11:
        o.micro_batches = 2;
        o.embedding_gradient = EMBEDDING_ROWS;
        return bench("untied, rows", gpt, &o);
    case 12:
        o.strategy = STRATEGY_SHARD_OPTIM;
        o.embedding_gradient = EMBEDDING_ROWS;
        return bench("untied, shard optim, rows", gpt, &o);
    case 13:
        o.strategy = STRATEGY_NO_SHARD;
        o.mesh = (struct mesh)MESH(1, 2, 1);
        o.embedding_gradient = EMBEDDING_ROWS;
        return bench("no shard, rows", gpt, &o);
    case 14:
        plan_model_store(gpt, STORED_NF4);
        return bench("full shard, the base in few bits", gpt, &o);
    case 15:
        o.strategy = STRATEGY_HYBRID_SHARD;
        o.mesh = (struct mesh)MESH(1, 2, 2);
        o.param_dtype = DTYPE_BF16;
        o.micro_batches = 2;
        plan_model_store(gpt, STORED_PLAIN);
        return bench("hybrid in bf16, the base in several ways", gpt, &o);
    default:
        o.strategy = STRATEGY_HYBRID_SHARD;
        o.mesh = (struct mesh)MESH(1, 2, 2);
        o.param_dtype = DTYPE_F16;
        o.reduce_dtype = DTYPE_BF16;
        o.clip = false;
        o.check = true;
        return bench("hybrid in f16, reduced in bf16", gpt, &o);
    }
}

/* Fails the test where the spoilt world of b still passes. */
static void must_fail(struct bench *b, const char *what, int rank, int index)
{
    struct muster_error err = {0};
    if (plan_world_check(&b->m->model, &b->world, &err) == 0)
        fail_msg("%s: rank %d, %s of %d is not noticed (%s)", b->name, rank, what, index,
                 index < b->world.plans[rank].op_count ? op_kind_name(b->world.plans[rank].ops[index].kind)
                                                       : "");
    assert_int_equal(err.code, MUSTER_E_STATE);
}

static void for_every(void (*spoil)(struct bench *b, int rank, int index), bool entries)
{
    for (int which = 0; which < BENCHES; which++) {
        struct bench b = make(which);
        for (int rank = 0; rank<b.world.count; rank += b.world.count> 1 ? b.world.count - 1 : 1) {
            const struct plan *plan = &b.world.plans[rank];
            for (int i = 0; i < (entries ? plan->entry_count : plan->op_count); i++)
                spoil(&b, rank, i);
        }
        struct muster_error err = {0};
        if (plan_world_check(&b.m->model, &b.world, &err) < 0) /* everything was put back */
            fail_msg("%s: %s", b.name, err.text);
        bench_end(&b);
    }
}

static void drop_waits(struct bench *b, int rank, int index)
{
    struct schedule_op *op = &b->world.plans[rank].ops[index], kept = *op;
    for (int i = 0; i < kept.wait_count; i++) {
        op->wait[i] = op->wait[--op->wait_count];
        must_fail(b, "a dropped wait", rank, index);
        *op = kept;
    }
}

static void drop_op(struct bench *b, int rank, int index)
{
    struct schedule_op *op = &b->world.plans[rank].ops[index], kept = *op;
    *op = (struct schedule_op){.kind = OP_COPY, .stream = kept.stream, .group = -1, .layer = -1, .micro = -1};
    op->out = op->dout = op->saved = op->work = op->batch = op->from = op->to = op->feedback = -1;
    op->signal = kept.signal;
    for (op->wait_count = 0; op->wait_count < kept.wait_count; op->wait_count++)
        op->wait[op->wait_count] = kept.wait[op->wait_count];
    must_fail(b, "a missing operation", rank, index);
    *op = kept;
}

static void wrong_carry(struct bench *b, int rank, int index)
{
    struct schedule_op *op = &b->world.plans[rank].ops[index];
    op->carried = !op->carried;
    must_fail(b, "a wrong carry", rank, index);
    op->carried = !op->carried;
}

/* A gather for the next step before the step of its group: it would gather values that the step changes. */
static void early_gather(struct bench *b, int rank, int index)
{
    struct plan *plan = &b->world.plans[rank];
    struct schedule_op *op = &plan->ops[index];
    int step = index;
    while (op->carried && step >= 0 &&
           (plan->ops[step].kind != OP_STEP || plan->ops[step].group != op->group))
        step--;
    if (!op->carried || step < 0)
        return;
    struct schedule_op gather = *op, stepped = plan->ops[step];
    plan->ops[step] = gather;
    plan->ops[step].wait_count = 0;
    plan->ops[index] = stepped;
    must_fail(b, "an early gather", rank, index);
    plan->ops[step] = stepped;
    plan->ops[index] = gather;
}

static void wrong_weight(struct bench *b, int rank, int index)
{
    struct schedule_op *op = &b->world.plans[rank].ops[index], kept = *op;
    for (int i = 0; i < kept.group_count; i++) {
        for (int other = 0; other < b->world.plans[rank].entry_count; other++) {
            enum plan_kind kind = b->world.plans[rank].entries[other].kind;
            if (other == kept.weight[i] ||
                (kind != PLAN_GATHER_SLOT && kind != PLAN_PARAM_SHARD && kind != PLAN_WIDE))
                continue;
            op->weight[i] = other;
            must_fail(b, "a wrong weight buffer", rank, index);
        }
        *op = kept;
    }
}

static void wrong_beta(struct bench *b, int rank, int index)
{
    struct schedule_op *op = &b->world.plans[rank].ops[index], kept = *op;
    if (op->kind != OP_BACKWARD)
        return;
    const struct layer_desc *layer = &b->m->model.layers[op->layer];
    for (int i = 0; i < layer->param_count; i++) {
        if (!b->m->model.params[layer->param[i]].trainable) /* no gradient of it is formed */
            continue;
        op->grad_beta[i] = !kept.grad_beta[i];
        must_fail(b, "a wrong gradient beta", rank, index);
        *op = kept;
    }
    for (int i = 0; i < layer->source_count; i++) {
        op->din_beta[i] = !kept.din_beta[i];
        if (kept.din[i] >= 0)
            must_fail(b, "a wrong input gradient beta", rank, index);
        *op = kept;
    }
}

static void wrong_reduction(struct bench *b, int rank, int index)
{
    struct schedule_op *op = &b->world.plans[rank].ops[index], kept = *op;
    if (op->kind != OP_COMM)
        return;
    if (op->comm.kind == COMM_REDUCE_SCATTER) {
        op->comm.accumulate = !op->comm.accumulate;
        must_fail(b, "a wrong accumulation", rank, index);
        *op = kept;
    }
    op->comm.count++;
    must_fail(b, "a wrong count", rank, index);
    *op = kept;
}

static void wrong_cast(struct bench *b, int rank, int index)
{
    struct schedule_op *op = &b->world.plans[rank].ops[index], kept = *op;
    if (op->kind != OP_CAST)
        return;
    op->beta = !kept.beta;
    must_fail(b, "a wrong beta of a cast", rank, index);
    *op = kept;
    op->bytes += 256;
    must_fail(b, "a wrong size of a cast", rank, index);
    *op = kept;
    op->from_offset += 64;
    must_fail(b, "a wrong place of a cast", rank, index);
    *op = kept;
}

/* Groups in few bits: held as something else, cut within a unit, in a buffer that is too short. */
static void wrong_units(struct bench *b, int rank, int index)
{
    struct plan *plan = &b->world.plans[rank];
    struct plan_entry *entry = &plan->entries[index], kept_entry = *entry;
    if (entry->kind != PLAN_PARAM_SHARD || plan->groups[entry->group].stored == STORED_PLAIN)
        return;
    struct param_group *group = &plan->groups[entry->group], kept = *group;
    for (int other = 0; other < STORED_KIND_COUNT; other++) {
        group->stored = (enum stored)other;
        if (group->stored != kept.stored)
            must_fail(b, "another way to hold a group", rank, index);
    }
    *group = kept;
    group->shard -= 64;
    must_fail(b, "a shard that ends within a unit", rank, index);
    *group = kept;
    group->trainable = true;
    must_fail(b, "a group in few bits that is trained", rank, index);
    *group = kept;
    entry->bytes -= 256;
    must_fail(b, "a short buffer of units", rank, index);
    *entry = kept_entry;
    entry->dtype = plan->options.param_dtype;
    must_fail(b, "units that are no bytes", rank, index);
    *entry = kept_entry;
}

/* An average before its step would take in the parameters of the step before. */
static void wrong_average(struct bench *b, int rank, int index)
{
    struct plan *plan = &b->world.plans[rank];
    struct schedule_op *op = &plan->ops[index], kept = *op;
    if (op->kind != OP_AVERAGE)
        return;
    struct schedule_op step = plan->ops[index - 1];
    assert_true(step.kind == OP_STEP && step.group == kept.group);
    plan->ops[index - 1] = kept;
    plan->ops[index] = step;
    must_fail(b, "an average before its step", rank, index);
    plan->ops[index - 1] = step;
    *op = kept;
    op->from = plan->groups[op->group].grad;
    must_fail(b, "an average of something else", rank, index);
    *op = kept;
    op->from_offset += 64;
    must_fail(b, "a wrong place of an average", rank, index);
    *op = kept;
    op->to = plan->groups[op->group].moment1;
    must_fail(b, "an average in another buffer", rank, index);
    *op = kept;
    op->bytes -= 64;
    must_fail(b, "a short average", rank, index);
    *op = kept;
}

/* Rows of other ranks' places, of another micro-batch, added elsewhere, or gathered among other ranks. */
static void wrong_rows(struct bench *b, int rank, int index)
{
    struct plan *plan = &b->world.plans[rank];
    struct schedule_op *op = &plan->ops[index], kept = *op;
    const bool copy = op->kind == OP_COPY && op->layer >= 0;
    const bool gather = op->kind == OP_COMM && op->layer >= 0 && op->comm.kind == COMM_ALL_GATHER;
    if (copy || gather) {
        op->from_offset += 4;
        must_fail(b, "rows from another place", rank, index);
        *op = kept;
        op->to_offset += 4;
        must_fail(b, "rows to another place", rank, index);
        *op = kept;
        op->bytes -= copy ? 4 : 0;
        op->comm.dtype = DTYPE_F64;
        must_fail(b, "rows of another size", rank, index);
        *op = kept;
    }
    if (gather) {
        op->axis = kept.axis == AXIS_SHARD ? AXIS_REPLICATE : AXIS_SHARD;
        must_fail(b, "rows of other ranks", rank, index);
        *op = kept;
    }
    if (op->kind != OP_ROWS)
        return;
    op->micro++;
    must_fail(b, "rows of another micro-batch", rank, index);
    *op = kept;
    op->to = plan->groups[op->group].moment1;
    must_fail(b, "rows added to something else", rank, index);
    *op = kept;
    op->from = kept.batch;
    must_fail(b, "something else added as rows", rank, index);
    *op = kept;
    op->layer++;
    must_fail(b, "rows of another layer", rank, index);
    *op = kept;
    /* Before the reduction that they are added to, or after the norm. */
    for (int other = 0; other < plan->op_count; other++) {
        struct schedule_op *there = &plan->ops[other], there_kept = *there;
        const bool reduces = there->kind == OP_COMM && there->group == kept.group && other < index &&
                             there->comm.kind != COMM_ALL_GATHER;
        const bool normed = there->kind == OP_NORM && there->group == kept.group;
        if ((!reduces && !normed) || there->micro > kept.micro)
            continue;
        *there = kept;
        *op = there_kept;
        must_fail(b, "rows in another order", rank, index);
        *there = there_kept;
        *op = kept;
    }
}

static void wrong_offset(struct bench *b, int rank, int index)
{
    struct plan *plan = &b->world.plans[rank];
    struct plan_entry *entry = &plan->entries[index], kept = *entry;
    for (int other = 0; other < plan->entry_count; other++) {
        const struct plan_entry *there = &plan->entries[other];
        bool together = kept.first_op < 0 || there->first_op < 0 ||
                        (kept.first_op <= there->last_op && there->first_op <= kept.last_op);
        if (other == index || there->memory != kept.memory || !together)
            continue;
        entry->offset = there->offset;
        must_fail(b, "an overlap", rank, index);
    }
    *entry = kept;
    entry->offset = plan->arena_bytes[kept.memory];
    must_fail(b, "a buffer outside its arena", rank, index);
    *entry = kept;
}

static void wrong_life(struct bench *b, int rank, int index)
{
    struct plan_entry *entry = &b->world.plans[rank].entries[index], kept = *entry;
    if (entry->first_op < 0 || entry->first_op == entry->last_op)
        return;
    entry->first_op++;
    must_fail(b, "a late birth", rank, index);
    *entry = kept;
    entry->last_op--;
    must_fail(b, "an early death", rank, index);
    *entry = kept;
}

static void every_wait_is_needed(void **state)
{
    (void)state;
    for_every(drop_waits, false);
}

static void every_operation_is_needed(void **state)
{
    (void)state;
    for_every(drop_op, false);
}

static void steps_are_joined(void **state)
{
    (void)state;
    for_every(wrong_carry, false);
    for_every(early_gather, false);
}

static void weights_are_those_of_the_group(void **state)
{
    (void)state;
    for_every(wrong_weight, false);
}

static void betas_are_right(void **state)
{
    (void)state;
    for_every(wrong_beta, false);
}

static void reductions_are_right(void **state)
{
    (void)state;
    for_every(wrong_reduction, false);
}

static void casts_are_right(void **state)
{
    (void)state;
    for_every(wrong_cast, false);
}

static void units_are_whole(void **state)
{
    (void)state;
    for_every(wrong_units, true);
}

static void averages_are_right(void **state)
{
    (void)state;
    for_every(wrong_average, false);
}

static void rows_are_right(void **state)
{
    (void)state;
    for_every(wrong_rows, false);
}

static void memory_does_not_overlap(void **state)
{
    (void)state;
    for_every(wrong_offset, true);
}

static void lives_cover_uses(void **state)
{
    (void)state;
    for_every(wrong_life, true);
}

/* Two ranks that issue collectives in a different order wait for ever or are told that they differ. */
static void order_is_the_same_on_all_ranks(void **state)
{
    (void)state;
    struct bench b = make(0);
    struct plan *plan = &b.world.plans[1];
    int last = -1, tried = 0;
    for (int o = 0; o < plan->op_count; o++) {
        if (plan->ops[o].kind != OP_COMM || plan->ops[o].stream != STREAM_GATHER)
            continue;
        if (last >= 0 && plan->ops[o].comm.count != plan->ops[last].comm.count) {
            struct comm_op kept = plan->ops[o].comm;
            plan->ops[o].comm = plan->ops[last].comm;
            plan->ops[last].comm = kept;
            must_fail(&b, "a swapped order", 1, o);
            plan->ops[last].comm = plan->ops[o].comm;
            plan->ops[o].comm = kept;
            tried++;
        }
        last = o;
    }
    assert_true(tried > 2);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wait_is_needed),
        cmocka_unit_test(every_operation_is_needed),
        cmocka_unit_test(steps_are_joined),
        cmocka_unit_test(weights_are_those_of_the_group),
        cmocka_unit_test(betas_are_right),
        cmocka_unit_test(reductions_are_right),
        cmocka_unit_test(casts_are_right),
        cmocka_unit_test(units_are_whole),
        cmocka_unit_test(averages_are_right),
        cmocka_unit_test(rows_are_right),
        cmocka_unit_test(memory_does_not_overlap),
        cmocka_unit_test(lives_cover_uses),
        cmocka_unit_test(order_is_the_same_on_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
