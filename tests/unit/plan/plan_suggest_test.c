/* plan_suggest_test.c - the fastest meshes of a world: those of an exhaustive search, all proved, on
 * described machines.
 *
 *     plan_suggest_test [--full]    small worlds, or GPT-2 1.5B on 64 ranks and all worlds of five kinds of
 * models
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/model/architectures.h"
#include "runtime/plan/plan_suggest.h"
#include "tests/support/cmocka_all.h"

static bool full;

static struct plan_options options_of(int positions)
{
    return (struct plan_options){
        .shape = {1, positions},
        .micro_batches = 1,
        .dtype = DTYPE_F32,
        .prefetch_forward = 2,
        .prefetch_backward = 2,
        .clip = true,
        .train = true,
        .kernels = kernels_cpu((unsigned)-1),
    };
}

/* Fast products on nodes of so many ranks, with a slow line between nodes. */
static struct plan_rates machine(int ranks_per_node, double link)
{
    struct plan_rates rates = plan_rates_nominal(1);
    rates.flops = 5e12;
    rates.memory = 200e9;
    rates.ranks_per_node = ranks_per_node;
    rates.link = (struct plan_line){10e-6, 1 / link};
    return rates;
}

static struct suggest_result *search(struct model *model, int positions,
                                     const struct suggest_request *request)
{
    struct muster_error err = {0};
    const struct plan_options base = options_of(positions);
    struct suggest_result *result = mem_calloc(1, sizeof *result);
    assert_non_null(result);
    if (plan_suggest(model, &base, request, result, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(result->stuck, 0);
    assert_int_equal(result->above_bound, 0);
    assert_true(result->count > 0 && result->planned >= result->count);
    for (int i = 0; i < result->count; i++) {
        assert_true(!request->memory || result->best[i].bytes <= request->memory);
        assert_true(i == 0 || result->best[i].step_s >= result->best[i - 1].step_s);
        assert_int_equal(mesh_size(result->best[i].options.mesh), request->world_size);
    }
    return result;
}

static void compare(struct model *model, int positions, struct suggest_request request, int *pipelines)
{
    scope_free struct suggest_result *found = search(model, positions, &request);
    request.exhaustive = true;
    scope_free struct suggest_result *all = search(model, positions, &request);
    printf("%d ranks: %d meshes, %d planned; %d of them by the bounds\n", request.world_size, all->meshes,
           all->planned, found->planned);
    assert_int_equal(found->count, all->count);
    for (int i = 0; i < found->count; i++) {
        const struct suggestion *a = &found->best[i], *b = &all->best[i];
        if (a->step_s != b->step_s || a->bytes != b->bytes || a->node_bytes != b->node_bytes ||
            memcmp(&a->options, &b->options, sizeof a->options))
            fail_msg("number %d is another mesh: %.6g s, and %.6g s", i, a->step_s, b->step_s);
        *pipelines += a->options.mesh.side[SIDE_PIPELINE] > 1;
    }
    assert_true(found->planned <= all->planned);
}

static struct model *gpt(int layers, int channels, int vocabulary, int positions)
{
    const struct gpt2_config config = {.layers = layers,
                                       .channels = channels,
                                       .heads = channels / 16,
                                       .vocab = vocabulary,
                                       .max_positions = positions};
    struct muster_error err = {0};
    struct model *model = gpt2_create(&config, &err);
    if (!model)
        fail_msg("%s", err.text);
    return model;
}

static void the_fastest_are_those_of_an_exhaustive_search(void **state)
{
    (void)state;
    const struct plan_rates slow = machine(4, 1e9), fast = machine(4, 100e9), node = machine(0, 1);
    const struct suggest_request requests[] = {
        {.world_size = 1, .global_batch = 8, .rates = &node},
        {.world_size = 4, .global_batch = 6, .rates = &node},
        {.world_size = 6, .global_batch = 12, .memory = 22 << 20, .rates = &node},
        {.world_size = 8, .global_batch = 16, .memory = 12 << 20, .rates = &fast},
        {.world_size = 12, .global_batch = 12, .rates = &slow},
    };
    struct model *model = gpt(6, 128, 1000, 64);
    int pipelines = 0;
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        compare(model, 64, requests[i], &pipelines);
    assert_true(pipelines > 3);
    model_destroy(model);
    if (!full)
        return;
    const struct plan_rates described = machine(8, 25e9);
    struct model *large = gpt(48, 1600, 50257, 1024);
    compare(large, 1024,
            (struct suggest_request){
                .world_size = 64, .global_batch = 128, .memory = INT64_C(20) << 30, .rates = &described},
            &pipelines);
    model_destroy(large);
}

static void a_large_model_on_many_ranks_is_quick(void **state)
{
    (void)state;
    const struct plan_rates rates = machine(8, 25e9);
    const struct suggest_request request = {
        .world_size = 64, .global_batch = 512, .memory = INT64_C(16) << 30, .rates = &rates};
    struct model *model = gpt(48, 1600, 50257, 1024);
    const clock_t begun = clock(); /* of this process: the machine may be busy */
    scope_free struct suggest_result *found = search(model, 1024, &request);
    const double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    printf("%d meshes, %d planned in %.2f s; the fastest: pipeline %d, %s, %.4g s\n", found->meshes,
           found->planned, seconds, found->best[0].options.mesh.side[SIDE_PIPELINE],
           strategy_name(found->best[0].options.strategy), found->best[0].step_s);
    assert_true(seconds < 10);
    assert_int_equal(found->count, SUGGESTIONS);
    model_destroy(model);
}

static void meshes_of_all_kinds_of_models_are_proved(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const struct llama_config llama = {
        .layers = 8, .channels = 64, .heads = 4, .kv_heads = 2, .vocab = 500, .max_positions = 32};
    const struct resnet_config resnet = {
        .channels = 3, .height = 32, .width = 32, .classes = 10, .stages = 3, .blocks = 3, .filters = 16};
    const struct simple_cnn_config cnn = {.channels = 3, .height = 32, .width = 32, .classes = 10};
    const struct text_encoder_config encoder = {
        .vocabulary = 500, .layers = 6, .channels = 64, .heads = 4, .classes = 2, .max_positions = 32};
    const struct {
        const char *name;
        struct model *model;
        int positions;
    } kinds[] = {{"gpt2", gpt(10, 64, 500, 32), 32},
                 {"llama", llama_create(&llama, &err), 32},
                 {"resnet", resnet_create(&resnet, &err), 1},
                 {"simple_cnn", simple_cnn_create(&cnn, &err), 1},
                 {"text_encoder", text_encoder_create(&encoder, &err), 32}};
    static const int some[] = {6, 0}, every[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 12, 14, 15, 16,
                                                 18, 20, 24, 27, 30, 32, 36, 40, 48, 54, 60, 63, 64, 0};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int planned = 0;
        if (!kinds[k].model)
            fail_msg("%s: %s", kinds[k].name, err.text);
        for (const int *world = full ? every : some; *world; world++) {
            const struct plan_rates rates = machine(*world % 2 ? 0 : *world / 2, 1e9);
            const struct suggest_request request = {.world_size = *world,
                                                    .global_batch = *world < 16 ? 16 : 64,
                                                    .rates = &rates,
                                                    .exhaustive = true};
            scope_free struct suggest_result *found = search(kinds[k].model, kinds[k].positions, &request);
            planned += found->planned;
        }
        printf("%s: %d meshes are proved\n", kinds[k].name, planned);
        model_destroy(kinds[k].model);
    }
}

static void searches_in_vain_have_reasons(void **state)
{
    (void)state;
    const struct plan_rates rates = machine(0, 1);
    const struct {
        struct suggest_request request;
        int positions;
        const char *says;
    } cases[] = {
        {{.world_size = 4, .global_batch = 8, .memory = 1 << 20, .rates = &rates},
         64,
         "meshes of 4 ranks fits into 1.00 MB a rank; the smallest that was planned needs "},
        {{.world_size = 4, .global_batch = 8, .rates = &rates},
         65,
         "sequence length 65 is above the 64 positions"},
        {{.world_size = 64, .global_batch = 0, .rates = &rates},
         64,
         "no mesh of 64 ranks takes a batch of 0"},
    };
    struct model *model = gpt(2, 64, 100, 64);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        const struct plan_options base = options_of(cases[i].positions);
        scope_free struct suggest_result *result = mem_calloc(1, sizeof *result);
        assert_int_equal(plan_suggest(model, &base, &cases[i].request, result, &err), -1);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' lacks '%s'", err.text, cases[i].says);
    }
    model_destroy(model);
}

/* Bytes between nodes: none on one node, gathers of the other nodes' shards on two. */
static void bytes_between_nodes_are_counted(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct model *model = gpt(2, 64, 100, 64);
    struct plan_options options = options_of(64);
    struct plan_rates rates = machine(0, 1);
    struct plan plan;
    options.strategy = STRATEGY_SHARD_OPTIM;
    options.mesh = (struct mesh)MESH(1, 1, 4);
    options.embedding_gradient = EMBEDDING_DENSE;
    assert_int_equal(plan_build(model, &options, &plan, &err), 0);
    assert_true(plan_node_bytes(&plan, &rates) == 0);
    rates.ranks_per_node = 2;
    /* Each node receives half of every sum and of every gather, and so does the other one. */
    double padded = 0;
    for (int g = 0; g < plan.group_count; g++)
        padded += (double)plan.groups[g].padded * 4;
    const double found = plan_node_bytes(&plan, &rates);
    assert_true(found >= 2 * padded && found < 2.01 * padded);
    plan_free(&plan);
    model_destroy(model);
}

int main(int argc, char **argv)
{
    full = argc > 1 && !strcmp(argv[1], "--full");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_are_those_of_an_exhaustive_search),
        cmocka_unit_test(a_large_model_on_many_ranks_is_quick),
        cmocka_unit_test(meshes_of_all_kinds_of_models_are_proved),
        cmocka_unit_test(searches_in_vain_have_reasons),
        cmocka_unit_test(bytes_between_nodes_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
