/* plan_rows_test.c - gradients of lookups as rows: when a plan exchanges them, what then begins early, and
 * what memory it costs or saves. */
#include <stdio.h>
#include <string.h>

#include "runtime/plan/plan.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/plan_check/plan_check.h"
#include "tests/support/plan_models.h"
#include "tests/support/plan_world.h"

static struct plan built(const struct plan_model *m, const struct plan_options *options)
{
    struct plan plan;
    struct muster_error err = {0};
    if (plan_build(&m->model, options, &plan, &err) < 0)
        fail_msg("%s", err.text);
    if (plan_check(&m->model, &plan, &err) < 0)
        fail_msg("%s", err.text);
    return plan;
}

static int count(const struct plan *plan, enum op_kind kind)
{
    int found = 0;
    for (int o = 0; o < plan->op_count; o++)
        found += plan->ops[o].kind == kind;
    return found;
}

static int exchanges(const struct plan_model *m, const struct plan_options *options)
{
    struct plan plan = built(m, options);
    const int found = count(&plan, OP_ROWS);
    plan_free(&plan);
    return found;
}

/* Tables of (100 + 28) rows: 64 rows are half of them. */
static void rows_where_they_are_at_most_half_of_the_tables(void **state)
{
    (void)state;
    for (int strategy = 0; strategy < STRATEGY_COUNT; strategy++) {
        const int ranks = 2 + (strategy == STRATEGY_HYBRID_SHARD) * 2;
        struct plan_model *m = plan_model_gpt(2, 16, 100, 28, 64 / ranks + 4, 0);
        struct plan_options o = plan_world_options((enum strategy)strategy, 1, ranks / 2, 2);
        o.mesh = ranks == 2 ? (struct mesh)MESH(1, 1, 2) : o.mesh;
        o.shape = (struct shape){64 / ranks / 4, 4};
        assert_int_equal(exchanges(m, &o), 1);
        o.shape = (struct shape){64 / ranks / 4 + 1, 4};
        assert_int_equal(exchanges(m, &o), 0);
        o.embedding_gradient = EMBEDDING_ROWS;
        assert_int_equal(exchanges(m, &o), 1);
        o.embedding_gradient = EMBEDDING_DENSE;
        o.shape = (struct shape){1, 4};
        assert_int_equal(exchanges(m, &o), 0);
        o.embedding_gradient = EMBEDDING_AUTO;
        o.micro_batches = 3; /* tied: in the last one alone */
        assert_int_equal(exchanges(m, &o), 1);
        o.reduce_dtype = DTYPE_BF16; /* dense arrays are half as long */
        o.shape = (struct shape){32 / ranks / 4, 4};
        assert_int_equal(exchanges(m, &o), 1);
        o.shape = (struct shape){64 / ranks / 4, 4};
        assert_int_equal(exchanges(m, &o), 0);
        o.mesh = (struct mesh)MESH(1, 1, 1);
        assert_int_equal(exchanges(m, &o), 0);
        plan_model_destroy(m);
    }
}

/* The reduction of a tied table waits for nothing after the head's backward. */
static void a_tied_table_is_reduced_behind_the_head(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(4, 16, 400, 8, 24, 0);
    struct plan_options o = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    o.shape = (struct shape){3, 8};
    o.group_bytes = 1;
    for (int rows = 0; rows < 2; rows++) {
        o.embedding_gradient = rows ? EMBEDDING_AUTO : EMBEDDING_DENSE;
        struct plan plan = built(m, &o);
        const int table = plan.places[0].group;
        int calls = 0, before = -1;
        for (int i = 0; i < plan.op_count; i++) {
            calls += plan.ops[i].kind == OP_BACKWARD;
            if (plan.ops[i].kind == OP_COMM && plan.ops[i].comm.kind == COMM_REDUCE_SCATTER &&
                plan.ops[i].group == table)
                before = calls;
        }
        assert_int_equal(before, rows ? 1 : 6);
        plan_free(&plan);
    }
    plan_model_destroy(m);
}

/* The request does not decide: auto is one or the other. */
static void the_text_says_what_was_chosen(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(2, 16, 400, 8, 24, 0);
    struct plan_options o = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    o.shape = (struct shape){3, 8};
    for (int rows = 0; rows < 2; rows++) {
        char text[64], wanted[80];
        o.embedding_gradient = rows ? EMBEDDING_AUTO : EMBEDDING_DENSE;
        struct plan plan = built(m, &o);
        plan_embedding_text(&m->model, &plan, text, sizeof text);
        (void)snprintf(wanted, sizeof wanted, rows ? "rows of %s" : "dense", m->model.layers[0].name);
        assert_string_equal(text, wanted);
        plan_embedding_text(&m->model, &plan, text, 8);
        assert_int_equal(strlen(text), rows ? 7 : 5); /* cut off */
        plan_free(&plan);
    }
    plan_model_destroy(m);
}

static int64_t bytes_of(const struct plan *plan, enum memory_class memory)
{
    return plan->arena_bytes[memory];
}

/* Tied: the rows are at the place of the full gradient; their indices are additional. Untied: there is no
 * full gradient of the table, and it is not gathered for its backward. */
static void memory_and_gathers(void **state)
{
    (void)state;
    struct plan_model *tied = plan_model_gpt(4, 16, 1000, 8, 24, 0),
                      *untied = plan_model_untied(4, 16, 1000, 8, 24);
    struct plan_options o = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    o.shape = (struct shape){3, 8};
    o.group_bytes = 1;
    for (int m = 0; m < 2; m++) {
        const struct plan_model *model = m ? untied : tied;
        o.embedding_gradient = EMBEDDING_AUTO;
        struct plan rows = built(model, &o);
        o.embedding_gradient = EMBEDDING_DENSE;
        struct plan dense = built(model, &o);
        assert_true(bytes_of(&rows, MEMORY_DEVICE) <= bytes_of(&dense, MEMORY_DEVICE));
        const int64_t index = 256; /* 2 ranks of 24 positions, 4 bytes each, rounded up */
        if (m == 0)
            assert_int_equal(bytes_of(&rows, MEMORY_COMM), bytes_of(&dense, MEMORY_COMM) + index);
        else
            assert_true(bytes_of(&rows, MEMORY_COMM) < bytes_of(&dense, MEMORY_COMM) - 1000 * 16 * 4 / 2);
        plan_free(&rows);
        plan_free(&dense);
    }
    plan_model_destroy(tied);
    plan_model_destroy(untied);
}

static void refused(const struct model *model, const struct plan_options *options, int code, const char *text)
{
    struct plan plan = {0};
    struct muster_error err = {0};
    assert_int_equal(plan_build(model, options, &plan, &err), -1);
    if (err.code != code || !strstr(err.text, text))
        fail_msg("wanted \"%s\" but got %d: %s", text, err.code, err.text);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(4, 16, 400, 8, 24, 0);
    struct plan_options good = plan_world_options(STRATEGY_NO_SHARD, 1, 2, 1), o = good;
    good.shape = o.shape = (struct shape){3, 8};
    o.embedding_gradient = (enum embedding_gradient)EMBEDDING_GRADIENT_COUNT;
    refused(&m->model, &o, MUSTER_E_INVALID, "embedding gradient 3 is unknown");
    o = good;
    o.embedding_gradient = EMBEDDING_ROWS;
    o.compression.kind = COMPRESSION_TOPK;
    o.compression.ratio = 0.1;
    refused(&m->model, &o, MUSTER_E_UNSUPPORTED, "one stage and no compression: use auto or dense");
    o.embedding_gradient = EMBEDDING_AUTO; /* compressed as before */
    assert_int_equal(exchanges(m, &o), 0);
    o = good;
    struct kernels none = {.name = "bare"};
    o.kernels = &none;
    assert_int_equal(exchanges(m, &o), 0);
    o.embedding_gradient = EMBEDDING_ROWS;
    refused(&m->model, &o, MUSTER_E_UNSUPPORTED, "kernels bare cannot add them");
    /* The requirements of a lookup. */
    o = good;
    m->layers[0].lookup = 3;
    refused(&m->model, &o, MUSTER_E_INVALID, "input 2 of the batch, which is not one i32 for each position");
    m->model.inputs[0].dtype = DTYPE_F32;
    m->layers[0].lookup = 1;
    refused(&m->model, &o, MUSTER_E_INVALID, "input 0 of the batch, which is not one i32");
    m->model.inputs[0].dtype = DTYPE_I32;
    m->layers[1].lookup = 1;
    refused(&m->model, &o, MUSTER_E_INVALID, "looks rows up, but has 12 parameters");
    plan_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_where_they_are_at_most_half_of_the_tables),
        cmocka_unit_test(a_tied_table_is_reduced_behind_the_head),
        cmocka_unit_test(the_text_says_what_was_chosen),
        cmocka_unit_test(memory_and_gathers),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
