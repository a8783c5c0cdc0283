/* graphs_test.c - attention by cuDNN over graphs of this test: which shapes share a graph, and which calls
 * are left to muster's kernels. */
#include "tests/support/cmocka_all.h"

#include <string.h>

#include "kernels/cuda/operations.h"
#include "proto/base/mem.h"
#include "runtime/cuda/cudnn/attention.h"
#include "runtime/cuda/cudnn/graph.h"
#include "runtime/cuda/device_cuda.h"
#include "runtime/cuda/kernels_attention.h"

/* ---- graph.h ---- */

enum { MEMORY = 16 << 20, WORK = MEMORY / CUDNN_WORK_SHARE };

struct cudnn_place {
    int unused;
};
struct cudnn_graph {
    struct attention a;
    bool backward;
};
static int made, alive;                           /* graphs */
static size_t forward_work, backward_work = WORK; /* that a graph asks for */
static const struct cudnn_graph *ran;
static void *given[CUDNN_BACKWARD_TENSORS];

int cudnn_graph_built(struct muster_error *err)
{
    (void)err;
    return 0;
}
struct cudnn_place *cudnn_place_open(void *library, const struct cuda_description *described,
                                     struct muster_error *err)
{
    (void)library, (void)described, (void)err;
    return mem_calloc(1, sizeof(struct cudnn_place));
}
void cudnn_place_close(struct cudnn_place *place)
{
    mem_free(place);
}
struct cudnn_graph *cudnn_graph_make(struct cudnn_place *place, const struct attention *a, enum dtype values,
                                     bool backward, struct muster_error *err)
{
    struct cudnn_graph *graph = mem_calloc(1, sizeof *graph);
    (void)place, (void)values, (void)err;
    assert_non_null(graph);
    *graph = (struct cudnn_graph){.a = *a, .backward = backward};
    made++, alive++;
    return graph;
}
void cudnn_graph_free(struct cudnn_graph *graph)
{
    alive -= graph != NULL;
    mem_free(graph);
}
size_t cudnn_graph_work(const struct cudnn_graph *graph)
{
    return graph->backward ? backward_work : forward_work;
}
int cudnn_graph_run(struct cudnn_graph *graph, void *const *tensors, void *work, void *stream,
                    struct muster_error *err)
{
    (void)work, (void)stream, (void)err;
    ran = graph;
    memcpy(given, tensors,
           (graph->backward ? CUDNN_BACKWARD_TENSORS : CUDNN_FORWARD_TENSORS) * sizeof *given);
    return 0;
}

/* ---- tests ---- */

static struct attention usual = {.B = 2,
                                 .T = 128,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_size = 64,
                                 .causal = 1,
                                 .q_row = 512,
                                 .k_row = 512,
                                 .v_row = 512,
                                 .scale = 0.25};

static int open_cudnn(void **state)
{
    struct muster_error err = {0};
    (void)state;
    usual.by = cudnn_attention_open(NULL, 90, MEMORY, DTYPE_BF16, &err);
    if (!usual.by)
        fail_msg("%s", err.text);
    made = alive = 0;
    return 0;
}
static int close_cudnn(void **state)
{
    (void)state;
    cudnn_attention_close(usual.by);
    assert_int_equal(alive, 0);
    return 0;
}

static _Alignas(256) float memory[16][64];

/* The graph that a call runs; NULL: none, muster's kernels are to run. */
static const struct cudnn_graph *forward(const struct attention *a)
{
    ran = NULL;
    const int status =
        cudnn_attention_forward(memory[0], memory[1], memory[2], memory[3], memory[4], a, NULL, NULL, NULL);
    assert_int_equal(status, ran ? 0 : 1);
    return ran;
}
static const struct cudnn_graph *backward_at(const struct attention *a, void *const t[CUDNN_BACKWARD_TENSORS],
                                             const int beta[3])
{
    ran = NULL;
    const int status =
        cudnn_attention_backward(t[CUDNN_DQ], t[CUDNN_DK], t[CUDNN_DV], t[CUDNN_DOUT], t[CUDNN_Q], t[CUDNN_K],
                                 t[CUDNN_V], t[CUDNN_OUT], t[CUDNN_LSE], a, beta, NULL, NULL, NULL);
    assert_int_equal(status, ran ? 0 : 1);
    return ran;
}

/* A graph is of one shape: whatever of it differs, another graph runs, and again the first one's. */
static void each_shape_has_a_graph_of_its_own(void **state)
{
    struct attention other[10];
    const struct cudnn_graph *graphs[10];
    enum { COUNT = sizeof other / sizeof *other };
    (void)state;
    for (int i = 0; i < COUNT; i++)
        other[i] = usual;
    other[0].B = 3, other[1].T = 256, other[2].heads = 8, other[3].kv_heads = 4, other[4].head_size = 128;
    other[5].causal = 0, other[6].q_row = 520, other[7].k_row = 520, other[8].v_row = 520, other[9].scale = 0;
    const struct cudnn_graph *first = forward(&usual);
    assert_non_null(first);
    for (int i = 0; i < COUNT; i++) {
        graphs[i] = forward(&other[i]);
        assert_non_null(graphs[i]);
        other[i].by = NULL; /* a graph knows the shape alone */
        assert_memory_equal(&graphs[i]->a, &other[i], sizeof other[i]);
        other[i].by = usual.by;
    }
    assert_int_equal(made, 2 * (COUNT + 1)); /* both directions */
    for (int i = 0; i < COUNT; i++)
        assert_ptr_equal(forward(&other[i]), graphs[i]);
    assert_ptr_equal(forward(&usual), first);
    assert_int_equal(made, 2 * (COUNT + 1));
}

static void a_call_that_it_cannot_take_is_left(void **state)
{
    static const int stored[3] = {0};
    void *t[CUDNN_BACKWARD_TENSORS];
    int32_t numbers[2] = {1, 1};
    (void)state;
    for (int i = 0; i < CUDNN_BACKWARD_TENSORS; i++)
        t[i] = memory[i];
    assert_non_null(backward_at(&usual, t, stored));
    assert_memory_equal(given, t, sizeof t);
    for (int i = 0; i < 3; i++) { /* gradients that are added */
        int beta[3] = {0};
        beta[i] = 1;
        assert_null(backward_at(&usual, t, beta));
    }
    for (int i = 0; i < CUDNN_BACKWARD_TENSORS; i++) {
        t[i] = memory[i] + 2; /* at a multiple of 8 bytes */
        assert_null(backward_at(&usual, t, stored));
        t[i] = memory[i];
    }
    for (int i = CUDNN_DQ; i <= CUDNN_DV; i++) { /* a gradient that is not wanted */
        t[i] = NULL;
        assert_null(backward_at(&usual, t, stored));
        t[i] = memory[i];
    }
    struct attention a = usual;
    a.lengths = numbers;
    assert_null(forward(&a));
    a = usual;
    a.positions = numbers;
    assert_null(forward(&a));
    assert_null(backward_at(&a, t, stored));
    a = usual;
    a.head_size = 36;
    assert_null(forward(&a));
    assert_non_null(backward_at(&usual, t, stored));
}

/* Forward is cuDNN's all the same. */
static void a_backward_of_too_much_memory_is_left(void **state)
{
    static const int stored[3] = {0};
    struct muster_error why = {0};
    void *t[CUDNN_BACKWARD_TENSORS];
    size_t work = 0;
    (void)state;
    for (int i = 0; i < CUDNN_BACKWARD_TENSORS; i++)
        t[i] = memory[i];
    assert_true(cudnn_attention_takes(&usual, 1, &work, &why));
    assert_int_equal(work, WORK);
    struct attention large = usual;
    large.B = 5;
    backward_work = WORK + 1;
    assert_non_null(forward(&large));
    assert_null(backward_at(&large, t, stored));
    assert_false(cudnn_attention_takes(&large, 1, &work, &why));
    assert_non_null(strstr(why.text, "more than 1/16 of the GPU's memory ("));
    backward_work = WORK;
    struct cudnn_attention_report report;
    cudnn_attention_report(usual.by, &report);
    assert_int_equal(report.taken, 2);
    assert_int_equal(report.forward_alone, 1);
}

/* A call may go to either: a library that needs less leaves room for muster's kernels, and the other way. */
static void work_memory_is_for_both(void **state)
{
    (void)state;
    for (int backward = 0; backward < 2; backward++) {
        size_t *library = backward ? &backward_work : &forward_work;
        struct attention a = usual;
        const size_t ours = cuda_attention_work(&a, backward), before = *library;
        *library = ours + 256;
        assert_int_equal(chosen_attention_work(&a, backward), ours + 256);
        *library = ours ? ours - 1 : 0;
        a.causal = 0; /* graphs are kept: another shape has another graph */
        assert_int_equal(chosen_attention_work(&a, backward), ours);
        a.head_size = 36; /* not cuDNN's */
        assert_int_equal(chosen_attention_work(&a, backward), cuda_attention_work(&a, backward));
        a.by = NULL;
        assert_int_equal(chosen_attention_work(&a, backward), cuda_attention_work(&a, backward));
        *library = before;
    }
}

/* By the device's table: a share of its memory is room for a backward, and with it the graphs go. */
static void a_device_has_its_memory_and_its_graphs(void **state)
{
    struct muster_error err = {0};
    size_t work = 0;
    const struct device_ops *ops = device_cuda();
    (void)state;
    struct device *device = ops->open(0, 1, &err);
    if (!device || ops->values(device, DTYPE_BF16, &err) || ops->attention(device, &err))
        fail_msg("%s", err.text);
    const struct kernels *kernels = ops->kernels(device);
    struct attention a = usual;
    a.by = kernels->attention_by;
    assert_non_null(a.by);
    made = alive = 0;
    backward_work = (size_t)(ops->memory_available(device) / CUDNN_WORK_SHARE);
    assert_true(cudnn_attention_takes(&a, 1, &work, NULL));
    a.B = 5;
    backward_work = (size_t)ops->memory_available(device);
    assert_false(cudnn_attention_takes(&a, 1, &work, NULL));
    backward_work = WORK;
    assert_true(alive > 0);
    ops->close(device);
    assert_int_equal(alive, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_shape_has_a_graph_of_its_own, open_cudnn, close_cudnn),
        cmocka_unit_test_setup_teardown(a_call_that_it_cannot_take_is_left, open_cudnn, close_cudnn),
        cmocka_unit_test_setup_teardown(a_backward_of_too_much_memory_is_left, open_cudnn, close_cudnn),
        cmocka_unit_test_setup_teardown(work_memory_is_for_both, open_cudnn, close_cudnn),
        cmocka_unit_test(a_device_has_its_memory_and_its_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
