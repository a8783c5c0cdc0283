/* A plan that does not fit is refused with changes that make it fit: each has its stated effect, and the
 * cheapest come first. The time of a step is predicted from its schedule. A plan as JSON has the figures of
 * the plan.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_cost.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/plan_models.h"
#include "tests/support/plan_world.h"

static struct plan built(const struct plan_model *m, const struct plan_options *options)
{
    struct plan plan;
    struct muster_error err = {0};
    if (plan_build(&m->model, options, &plan, &err) < 0)
        fail_msg("%s", err.text);
    return plan;
}

/* Makes the changes of one advice, as its text has them. */
static void follow_advice(const char *text, struct plan_options *o)
{
    const char *at;
    if ((at = strstr(text, "training.strategy: "))) {
        at += strlen("training.strategy: ");
        for (int s = 0; s < STRATEGY_COUNT; s++)
            if (!strncmp(at, strategy_name((enum strategy)s), strlen(strategy_name((enum strategy)s))))
                o->strategy = (enum strategy)s;
        o->mesh = (struct mesh)MESH(1, 1, mesh_size(o->mesh));
    }
    if (strstr(text, "training.recompute: all"))
        o->recompute = (struct recompute_options){RECOMPUTE_ALL, 0};
    if ((at = strstr(text, "recompute_every: ")))
        o->recompute = (struct recompute_options){RECOMPUTE_EVERY, atoi(at + strlen("recompute_every: "))};
    if ((at = strstr(text, "training.micro_batch: "))) {
        int batch = atoi(at + strlen("training.micro_batch: "));
        o->micro_batches *= o->shape.B / batch;
        o->shape.B = batch;
    }
    if ((at = strstr(text, "training.head_chunk: ")))
        o->chunk_bytes = (int64_t)atoi(at + strlen("training.head_chunk: ")) << 20;
    if (strstr(text, "training.embedding_gradient: dense"))
        o->embedding_gradient = EMBEDDING_DENSE;
    if (strstr(text, "training.embedding_gradient: rows"))
        o->embedding_gradient = EMBEDDING_ROWS;
    if (strstr(text, "training.prefetch: 1"))
        o->prefetch_forward = o->prefetch_backward = 1;
}

/* Cuts "... it fits with A (about +1% time), B (...) or C (...)" into its advices; returns how many. */
static int cut_advice(char *text, char *advice[3])
{
    int count = 0;
    char *at = strstr(text, "it fits with ");
    at = at ? at + strlen("it fits with ") : NULL;
    while (at && *at && count < 3) {
        char *end = strstr(at, "% time)");
        assert_non_null(end);
        advice[count++] = at;
        at = end + strlen("% time)");
        at += *at ? strcspn(at, "t") : 0; /* ", training" or " or training" */
        end[0] = '\0';
    }
    return count;
}

static double predicted(const struct plan_model *m, const struct plan *plan)
{
    struct plan_cost cost;
    const struct plan_rates rates = plan_rates_nominal(1);
    assert_int_equal(plan_predict(&m->model, plan, &rates, &cost, NULL), 0);
    assert_true(cost.step_s > 0 && cost.exposed_s >= 0);
    assert_true(cost.step_s >= 0.999 * (cost.compute_s + cost.exposed_s));
    return cost.step_s;
}

static int check_advice(const struct plan_model *m, const struct plan_options *options, int64_t percent)
{
    struct plan plan = built(m, options);
    struct muster_error err = {0};
    const int64_t limit = plan_bytes(&plan) * percent / 100;
    char *advice[3];
    double before = 0;
    assert_int_equal(plan_fits(&m->model, &plan,
                               &(struct plan_room){PLAN_MEMORY_ALL, plan_bytes(&plan), "is all", 0}, &err),
                     0);
    assert_int_equal(
        plan_fits(&m->model, &plan, &(struct plan_room){PLAN_MEMORY_ALL, limit, "is too little", 0}, &err),
        -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    print_message("%lld%%: %s\n", (long long)percent, err.text);
    const int count = cut_advice(err.text, advice);
    for (int i = 0; i < count; i++) {
        struct plan_options changed = *options;
        follow_advice(advice[i], &changed);
        struct plan smaller = built(m, &changed);
        assert_true(plan_bytes(&smaller) <= limit);
        double step_s = predicted(m, &smaller);
        assert_true(step_s >= before);
        before = step_s;
        plan_free(&smaller);
    }
    plan_free(&plan);
    return count;
}

static void what_does_not_fit_is_told_what_would(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(12, 128, 512, 128, 512, 0);
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 1, 1, 4);
    options.shape.B = 8;
    assert_int_equal(check_advice(m, &options, 95), 3);
    assert_int_equal(check_advice(m, &options, 60), 3);
    assert_true(check_advice(m, &options, 42) > 0); /* pairs */
    assert_int_equal(check_advice(m, &options, 1), 0);
    options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 1);
    assert_true(check_advice(m, &options, 85) > 0);
    options = plan_world_options(STRATEGY_HYBRID_SHARD, 1, 2, 2);
    assert_true(check_advice(m, &options, 80) > 0);
    plan_model_destroy(m);
}

/* Pinned memory is no part of a GPU's. */
static void memory_of_a_device_and_of_its_host_are_counted_apart(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(2, 32, 64, 128, 2048, 0);
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 1, 1, 1);
    options.optimizer_memory = MEMORY_HOST;
    struct plan plan = built(m, &options);
    struct muster_error err = {0};
    const int64_t device = plan_bytes_of(&plan, PLAN_MEMORY_DEVICE),
                  host = plan_bytes_of(&plan, PLAN_MEMORY_HOST);
    assert_int_equal(device + host, plan_bytes(&plan));
    assert_true(device > 0 && host > 0);
    assert_int_equal(
        plan_fits(&m->model, &plan, &(struct plan_room){PLAN_MEMORY_DEVICE, device, "is all", 0}, &err), 0);
    assert_int_equal(
        plan_fits(&m->model, &plan, &(struct plan_room){PLAN_MEMORY_HOST, host, "is all", 0}, &err), 0);
    assert_int_equal(
        plan_fits(&m->model, &plan, &(struct plan_room){PLAN_MEMORY_ALL, device, "is too little", 0}, &err),
        -1);
    assert_int_equal(plan_fits(&m->model, &plan,
                               &(struct plan_room){PLAN_MEMORY_DEVICE, device - 1, "is too little", 0}, &err),
                     -1);
    assert_non_null(strstr(err.text, "of the device's memory on rank 0"));
    assert_int_equal(plan_fits(&m->model, &plan,
                               &(struct plan_room){PLAN_MEMORY_HOST, host - 1, "is too little", 0}, &err),
                     -1);
    assert_non_null(strstr(err.text, "of the host's memory on rank 0"));
    plan_free(&plan);
    plan_model_destroy(m);
}

/* Moments that a device has no room for may be the host's, if the host has room. */
static void moments_may_move_to_the_host(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(2, 64, 256, 128, 8, 0);
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 1, 1, 1), other = options;
    other.optimizer_memory = MEMORY_HOST;
    struct plan plan = built(m, &options), less = built(m, &other);
    const int64_t bytes = plan_bytes_of(&less, PLAN_MEMORY_DEVICE),
                  host = plan_bytes_of(&less, PLAN_MEMORY_HOST);
    char said[96], moved[32];
    (void)snprintf(said, sizeof said, "training.optimizer_memory: host (the optimizer reads and writes %s",
                   text_format_bytes(moved, sizeof moved, host - plan_bytes_of(&plan, PLAN_MEMORY_HOST)));
    const struct {
        struct plan_room room;
        bool offered;
    } cases[] = {
        {{PLAN_MEMORY_DEVICE, bytes, "is too little", 0}, true},
        {{PLAN_MEMORY_DEVICE, bytes, "is too little", host}, true},
        {{PLAN_MEMORY_DEVICE, bytes, "is too little", host - 1}, false},
        {{PLAN_MEMORY_DEVICE, plan_bytes_of(&plan, PLAN_MEMORY_DEVICE) - 1, "is too little", host}, true},
        {{PLAN_MEMORY_ALL, plan_bytes(&plan) - 1, "is too little", 0}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        assert_int_equal(plan_fits(&m->model, &plan, &cases[i].room, &err), -1);
        print_message("%s\n", err.text);
        assert_int_equal(strstr(err.text, said) != NULL, cases[i].offered);
        assert_int_equal(strstr(err.text, "optimizer_memory") != NULL, cases[i].offered);
    }
    plan_free(&plan);
    plan_free(&less);
    plan_model_destroy(m);
}

/* Logits are cut into chunks where that is enough: the largest that fits, once. */
static void a_large_head_is_cut_into_chunks(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(2, 32, 8192, 128, 2048, 0); /* 64 MB of logits */
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 1, 1, 1);
    struct plan plan = built(m, &options);
    struct muster_error err = {0};
    assert_int_equal(
        plan_fits(&m->model, &plan,
                  &(struct plan_room){PLAN_MEMORY_ALL, plan_bytes(&plan) - (40 << 20), "is too little", 0},
                  &err),
        -1);
    print_message("%s\n", err.text);
    const char *first = strstr(err.text, "training.head_chunk: 16M");
    assert_non_null(first);
    assert_null(strstr(first + 1, "training.head_chunk"));
    assert_null(strstr(err.text, "training.head_chunk: 32M"));
    options.chunk_bytes = 16 << 20;
    struct plan smaller = built(m, &options);
    assert_true(plan_bytes(&smaller) <= plan_bytes(&plan) - (40 << 20) && smaller.hash != plan.hash);
    plan_free(&smaller);
    plan_free(&plan);
    plan_model_destroy(m);
}

/* The form of an embedding's gradient that takes less: dense where rows of many positions were asked for, and
 * rows where they take the place of the whole gradient of a table that nothing else writes. */
static void the_smaller_form_of_an_embeddings_gradient_is_offered(void **state)
{
    (void)state;
    for (int rows = 0; rows < 2; rows++) {
        struct plan_model *m = plan_model_untied(2, 32, rows ? 4096 : 64, 64, 512);
        struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 4), other = options;
        options.shape = other.shape = (struct shape){rows ? 1 : 8, 64};
        options.embedding_gradient = rows ? EMBEDDING_DENSE : EMBEDDING_ROWS;
        other.embedding_gradient = rows ? EMBEDDING_ROWS : EMBEDDING_DENSE;
        struct plan plan = built(m, &options), smaller = built(m, &other);
        struct muster_error err = {0};
        assert_true(plan_bytes(&smaller) < plan_bytes(&plan));
        assert_int_equal(
            plan_fits(&m->model, &plan,
                      &(struct plan_room){PLAN_MEMORY_ALL, plan_bytes(&smaller), "is too little", 0}, &err),
            -1);
        print_message("%s\n", err.text);
        assert_non_null(strstr(err.text, rows ? "training.embedding_gradient: rows"
                                              : "training.embedding_gradient: dense"));
        assert_null(strstr(err.text, rows ? "embedding_gradient: dense" : "embedding_gradient: rows"));
        plan_free(&plan);
        plan_free(&smaller);
        plan_model_destroy(m);
    }
    struct plan_model *m = plan_model_untied(2, 32, 64, 64, 512);
    struct plan_options alone = plan_world_options(STRATEGY_NO_SHARD, 1, 1, 1);
    alone.shape = (struct shape){4, 64};
    struct plan plan = built(m, &alone);
    struct muster_error err = {0};
    assert_int_equal(
        plan_fits(&m->model, &plan,
                  &(struct plan_room){PLAN_MEMORY_ALL, plan_bytes(&plan) / 2, "is too little", 0}, &err),
        -1);
    assert_null(strstr(err.text, "embedding_gradient")); /* one rank exchanges nothing */
    plan_free(&plan);
    plan_model_destroy(m);
}

/* A group gathered for the next step is not waited for where the step of the others takes as long. */
static void prediction_follows_the_schedule(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(4, 128, 256, 128, 512, 0);
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    struct plan plan = built(m, &options);
    struct plan_rates rates = plan_rates_nominal(1);
    struct plan_cost free_comm, slow, serial;
    for (int k = 0; k < COMM_KIND_COUNT; k++)
        rates.comm[k] = (struct plan_line){0, 1e-18};
    assert_int_equal(plan_predict(&m->model, &plan, &rates, &free_comm, NULL), 0);
    assert_true(free_comm.exposed_s < 1e-6);
    assert_true(free_comm.step_s < free_comm.compute_s + 1e-6);
    for (int k = 0; k < COMM_KIND_COUNT; k++)
        rates.comm[k].byte_s = 1e-7;
    assert_int_equal(plan_predict(&m->model, &plan, &rates, &slow, NULL), 0);
    assert_true(slow.step_s > free_comm.step_s && slow.exposed_s < slow.comm_s);
    plan_free(&plan);
    options.prefetch_forward = options.prefetch_backward = 0;
    plan = built(m, &options);
    assert_int_equal(plan_predict(&m->model, &plan, &rates, &serial, NULL), 0);
    assert_true(serial.exposed_s > slow.exposed_s); /* nothing runs in parallel */
    plan_free(&plan);
    plan_model_destroy(m);
}

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("%s is no number", key);
    return json_integer_value(value);
}

static void json_says_what_the_plan_says(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(4, 128, 256, 128, 512, 0);
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    options.recompute = (struct recompute_options){RECOMPUTE_EVERY, 2};
    struct plan plan = built(m, &options);
    scope_buffer text = {0};
    assert_int_equal(plan_json(&m->model, &plan, &text), 0);
    json_error_t error;
    json_t *root = json_loads(text.data, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("line %d: %s\n%s", error.line, error.text, text.data);
    assert_string_equal(json_string_value(json_object_get(root, "schema")), "muster-plan-1");
    assert_string_equal(json_string_value(json_object_get(root, "strategy")), "FULL_SHARD");
    assert_string_equal(json_string_value(json_object_get(root, "recompute")), "every");
    assert_int_equal(number(root, "recompute_every"), 2);
    assert_int_equal(number(root, "parameters"), model_parameters(&m->model));
    assert_int_equal(number(root, "bytes"), plan_bytes(&plan));
    assert_int_equal(number(root, "operations"), plan.op_count);
    assert_int_equal(json_array_size(json_object_get(root, "groups")), plan.group_count);
    for (int k = 0; k < PLAN_KIND_COUNT; k++)
        assert_int_equal(number(json_object_get(root, "bytes_by_kind"), plan_kind_name((enum plan_kind)k)),
                         plan.kind_bytes[k]);
    for (int c = 0; c < MEMORY_CLASS_COUNT; c++)
        assert_int_equal(
            number(json_object_get(root, "bytes_by_memory"), memory_class_name((enum memory_class)c)),
            plan.arena_bytes[c]);
    json_decref(root);
    plan_free(&plan);
    plan_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_told_what_would),
        cmocka_unit_test(memory_of_a_device_and_of_its_host_are_counted_apart),
        cmocka_unit_test(moments_may_move_to_the_host),
        cmocka_unit_test(a_large_head_is_cut_into_chunks),
        cmocka_unit_test(the_smaller_form_of_an_embeddings_gradient_is_offered),
        cmocka_unit_test(prediction_follows_the_schedule),
        cmocka_unit_test(json_says_what_the_plan_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
