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
        at = strstr(at, "training."); /* ", training" or " or training" */
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
    assert_int_equal(
        plan_fits(&m->model, &plan,
                  &(struct plan_room){.memory = PLAN_MEMORY_ALL, .bytes = plan_bytes(&plan), .is = "is all"},
                  &err),
        0);
    assert_int_equal(
        plan_fits(&m->model, &plan,
                  &(struct plan_room){.memory = PLAN_MEMORY_ALL, .bytes = limit, .is = "is too little"},
                  &err),
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
        plan_fits(&m->model, &plan,
                  &(struct plan_room){.memory = PLAN_MEMORY_DEVICE, .bytes = device, .is = "is all"}, &err),
        0);
    assert_int_equal(plan_fits(&m->model, &plan,
                               &(struct plan_room){.memory = PLAN_MEMORY_HOST, .bytes = host, .is = "is all"},
                               &err),
                     0);
    assert_int_equal(
        plan_fits(&m->model, &plan,
                  &(struct plan_room){.memory = PLAN_MEMORY_ALL, .bytes = device, .is = "is too little"},
                  &err),
        -1);
    assert_int_equal(plan_fits(&m->model, &plan,
                               &(struct plan_room){
                                   .memory = PLAN_MEMORY_DEVICE, .bytes = device - 1, .is = "is too little"},
                               &err),
                     -1);
    assert_non_null(strstr(err.text, "of the device's memory on rank 0"));
    assert_int_equal(
        plan_fits(&m->model, &plan,
                  &(struct plan_room){.memory = PLAN_MEMORY_HOST, .bytes = host - 1, .is = "is too little"},
                  &err),
        -1);
    assert_non_null(strstr(err.text, "of the host's memory on rank 0"));
    plan_free(&plan);
    plan_model_destroy(m);
}

/* Moments that the host has no room for may be the device's, if the device has room. */
static void check_moments_that_move_back(const struct plan_model *m, const struct plan *in_device,
                                         const struct plan *in_host)
{
    const int64_t bytes = plan_bytes_of(in_host, PLAN_MEMORY_HOST) - 1,
                  device = plan_bytes_of(in_device, PLAN_MEMORY_DEVICE);
    for (int i = 0; i < 3; i++) {
        const struct plan_room room = {.memory = PLAN_MEMORY_HOST,
                                       .bytes = bytes,
                                       .is = "is too little",
                                       .other = i ? device - (i == 2) : 0};
        struct muster_error err = {0};
        assert_int_equal(plan_fits(&m->model, in_host, &room, &err), -1);
        print_message("%s\n", err.text);
        assert_int_equal(strstr(err.text, "training.optimizer_memory: device (") != NULL, i != 2);
        assert_non_null(strstr(err.text, "more of the device's memory)")); /* else with less work memory */
    }
}

/* Two ranks whose state is kept in copies: more of the host's memory than the rest of the plan. */
static void copies_in_memory_may_be_left_out(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(2, 64, 256, 128, 8, 0);
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    options.state_copies = 4;
    struct plan plan = built(m, &options);
    for (int all = 0; all < 2; all++) {
        const enum plan_memory memory = all ? PLAN_MEMORY_ALL : PLAN_MEMORY_HOST;
        const struct plan_room room = {
            .memory = memory, .bytes = plan_bytes_of(&plan, memory) - 1000, .is = "is too little"};
        struct muster_error err = {0};
        assert_int_equal(plan_fits(&m->model, &plan, &room, &err), -1);
        print_message("%s\n", err.text);
        assert_non_null(strstr(err.text, "training.memory_copies: 0 (a lost rank's state"));
    }
    plan_free(&plan);
    plan_model_destroy(m);
}

/* Times are those of the rates that are given, which the text names. */
static void advice_names_the_rates_of_its_times(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(12, 128, 512, 128, 512, 0);
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 1, 1, 4);
    options.shape.B = 8;
    struct plan plan = built(m, &options);
    struct plan_rates rates = plan_rates_of(1e15, 1e10, 1e9);
    struct plan_room room = {
        .memory = PLAN_MEMORY_ALL, .bytes = plan_bytes(&plan) * 60 / 100, .is = "is too little"};
    struct muster_error cores = {0}, gpu = {0};
    (void)snprintf(rates.of, sizeof rates.of, "a GPU");
    assert_int_equal(plan_fits(&m->model, &plan, &room, &cores), -1);
    room.rates = &rates;
    assert_int_equal(plan_fits(&m->model, &plan, &room, &gpu), -1);
    print_message("%s\n", gpu.text);
    assert_non_null(strstr(cores.text, "% time), by the times of ordinary cores"));
    assert_non_null(strstr(gpu.text, "% time), by arithmetic, at the peaks of a GPU"));
    *strstr(cores.text, ", by the times") = *strstr(gpu.text, ", by arithmetic") = '\0';
    assert_string_not_equal(cores.text, gpu.text);
    plan_free(&plan);
    plan_model_destroy(m);
}

/* All ranks together write every element once, with its moments. */
static void ranks_share_the_bytes_of_a_checkpoint(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(2, 64, 256, 128, 8, 0);
    const enum strategy strategies[] = {STRATEGY_NO_SHARD, STRATEGY_SHARD_OPTIM, STRATEGY_FULL_SHARD};
    const int64_t whole = model_parameters(&m->model) * 3 * (int64_t)sizeof(float);
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        int64_t sum = 0;
        for (int rank = 0; rank < 4; rank++) {
            struct plan_options options = plan_world_options(strategies[s], 1, 1, 4);
            options.rank = rank;
            struct plan plan = built(m, &options);
            sum += plan_saved_bytes(&m->model, &plan);
            plan_free(&plan);
        }
        assert_true(sum <= whole && sum > whole - whole / 100); /* divided without a rest of one element */
    }
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
        {{.memory = PLAN_MEMORY_DEVICE, .bytes = bytes, .is = "is too little", .other = 0}, true},
        {{.memory = PLAN_MEMORY_DEVICE, .bytes = bytes, .is = "is too little", .other = host}, true},
        {{.memory = PLAN_MEMORY_DEVICE, .bytes = bytes, .is = "is too little", .other = host - 1}, false},
        {{.memory = PLAN_MEMORY_DEVICE,
          .bytes = plan_bytes_of(&plan, PLAN_MEMORY_DEVICE) - 1,
          .is = "is too little",
          .other = host},
         true},
        {{.memory = PLAN_MEMORY_DEVICE,
          .bytes = bytes,
          .is = "is too little",
          .other = host - 1,
          .another = true},
         true},
        {{.memory = PLAN_MEMORY_ALL, .bytes = plan_bytes(&plan) - 1, .is = "is too little", .other = 0},
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        assert_int_equal(plan_fits(&m->model, &plan, &cases[i].room, &err), -1);
        print_message("%s\n", err.text);
        assert_int_equal(strstr(err.text, said) != NULL, cases[i].offered);
        assert_int_equal(strstr(err.text, "optimizer_memory") != NULL, cases[i].offered);
        assert_int_equal(strstr(err.text, "in each step; ") != NULL, cases[i].room.another);
    }
    check_moments_that_move_back(m, &plan, &less);
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
    assert_int_equal(plan_fits(&m->model, &plan,
                               &(struct plan_room){.memory = PLAN_MEMORY_ALL,
                                                   .bytes = plan_bytes(&plan) - (40 << 20),
                                                   .is = "is too little"},
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
        assert_int_equal(plan_fits(&m->model, &plan,
                                   &(struct plan_room){.memory = PLAN_MEMORY_ALL,
                                                       .bytes = plan_bytes(&smaller),
                                                       .is = "is too little"},
                                   &err),
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
    assert_int_equal(plan_fits(&m->model, &plan,
                               &(struct plan_room){.memory = PLAN_MEMORY_ALL,
                                                   .bytes = plan_bytes(&plan) / 2,
                                                   .is = "is too little"},
                               &err),
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
    assert_int_equal(buffer_text(&text, "{"), 0);
    assert_int_equal(plan_json(&m->model, &plan, ",\n \"device\": {\"left\": 5}", &text), 0);
    assert_int_equal(buffer_text(&text, "}"), 0);
    json_error_t error;
    json_t *root = json_loads(text.data, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("line %d: %s\n%s", error.line, error.text, text.data);
    assert_string_equal(json_string_value(json_object_get(root, "schema")), "muster-plan-1");
    assert_string_equal(json_string_value(json_object_get(root, "strategy")), "FULL_SHARD");
    assert_string_equal(json_string_value(json_object_get(root, "recompute")), "every");
    assert_int_equal(number(root, "recompute_every"), 2);
    assert_int_equal(number(json_object_get(root, "device"), "left"), 5); /* the caller's */
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
        cmocka_unit_test(copies_in_memory_may_be_left_out),
        cmocka_unit_test(advice_names_the_rates_of_its_times),
        cmocka_unit_test(ranks_share_the_bytes_of_a_checkpoint),
        cmocka_unit_test(a_large_head_is_cut_into_chunks),
        cmocka_unit_test(the_smaller_form_of_an_embeddings_gradient_is_offered),
        cmocka_unit_test(prediction_follows_the_schedule),
        cmocka_unit_test(json_says_what_the_plan_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
