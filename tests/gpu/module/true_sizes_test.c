/* true_sizes_test.c - a training step of models at their true sizes, enqueued by the CUDA module over the
 * fakes: every call of a kernel and of cuBLASLt is made with its real shapes and addresses. The compute
 * stream records them, so nothing runs, and arenas of 100 GiB are pages that nobody touches. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/buffer.h"
#include "runtime/api/api_trainer.h"
#include "runtime/cuda/cuda_stream.h"
#include "runtime/executor/executor.h"
#include "tests/gpu/cudart/fake_cudart.h"
#include "tests/support/cmocka_all.h"

static const struct {
    const char *name, *architecture, *model[9];
    const char *positions, *micro_batch;
    int linear; /* dense layers of a forward: each is a product, and two in backward */
} models[] = {
    {"GPT-2 124M",
     "gpt2",
     {"model.layers=12", "model.channels=768", "model.heads=12", "model.vocabulary=50257"},
     "training.sequence_length=1024",
     "training.micro_batch=12", /* no power of two: chunks of logits */
     12 * 4},
    {"GPT-2 XL",
     "gpt2",
     {"model.layers=48", "model.channels=1600", "model.heads=25", "model.vocabulary=50257"},
     "training.sequence_length=1024",
     "training.micro_batch=4",
     48 * 4},
    {"Llama 1B",
     "llama",
     {"model.layers=16", "model.channels=2048", "model.heads=32", "model.kv_heads=8", "model.hidden=8192",
      "model.positions=2048", "model.vocabulary=128256", "model.tied=true"},
     "training.sequence_length=2048",
     "training.micro_batch=2",
     16 * 7},
    {"Llama 8B",
     "llama",
     {"model.layers=32", "model.channels=4096", "model.heads=32", "model.kv_heads=8", "model.hidden=14336",
      "model.positions=8192", "model.vocabulary=128256"},
     "training.sequence_length=8192",
     "training.micro_batch=1",
     32 * 7},
};
static const struct {
    const char *name, *dtype, *arithmetic;
    enum dtype values;
} types[] = {
    {"fp32", "training.dtype=fp32", "training.matmul_precision=fp32", DTYPE_F32},
    {"tf32", "training.dtype=fp32", "training.matmul_precision=tf32", DTYPE_F32},
    {"bf16", "training.dtype=bf16", "training.values=dtype", DTYPE_BF16},
    {"fp16", "training.dtype=fp16", "training.values=dtype", DTYPE_F16},
};
static const struct {
    int ranks;
    const char *strategy, *replicas;
} layouts[] = {
    {1, "training.strategy=NO_SHARD", NULL},
    {2, "training.strategy=FULL_SHARD", NULL},
    {4, "training.strategy=FULL_SHARD", NULL},
    {4, "training.strategy=HYBRID_SHARD", "training.replicas=2"},
};

/* ---- the device, of which only the compute stream's kernels are of interest ---- */

static const struct device_ops *cuda;
static struct device_ops only_kernels; /* cuda's, with these in its place */

static struct device_event *event_create(struct device *device, struct muster_error *err)
{
    (void)err;
    return (struct device_event *)(void *)device; /* any */
}
static void event_destroy(struct device_event *event)
{
    (void)event;
}
static int launch(struct device_stream *stream, void (*fn)(void *argument), void *argument)
{
    (void)stream;
    fn(argument);
    return 0;
}
static int order(struct device_stream *stream, struct device_event *event)
{
    (void)stream, (void)event;
    return 0;
}
static int copy(struct device_stream *stream, void *to, const void *from, int64_t bytes)
{
    (void)stream, (void)to, (void)from, (void)bytes;
    return 0;
}
static int fill(struct device_stream *stream, void *to, int byte, int64_t bytes)
{
    (void)stream, (void)to, (void)byte, (void)bytes;
    return 0;
}
static int issue(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
                 struct device_stream *stream, struct muster_error *err)
{
    (void)comm, (void)op, (void)send, (void)recv, (void)stream, (void)err;
    return 0;
}

static const struct comm_ops no_comm = {.name = "none", .issue = issue};

/* ---- a run ---- */

struct run {
    struct muster_model *model;
    struct muster_trainer trainer;
    struct plan plan;
    struct device *device;
    struct device_arena arenas[MEMORY_CLASS_COUNT];
    struct device_stream *stream;
    struct executor *executor;
};

static const char *what; /* the run, for failures */
#define MUST(call)                                                                                           \
    do {                                                                                                     \
        if ((call) != 0)                                                                                     \
            fail_msg("%s: %s", what, err.text);                                                              \
    } while (0)

static void prepare(struct run *r, int m, int type, int layout)
{
    struct muster_error err = {0};
    const char *settings[12] = {types[type].dtype, models[m].positions, models[m].micro_batch,
                                layouts[layout].strategy, "training.device=h100"};
    int count = 5;
    char batch[64];
    (void)snprintf(batch, sizeof batch, "training.global_batch=%d",
                   2 * layouts[layout].ranks * atoi(strchr(models[m].micro_batch, '=') + 1));
    settings[count++] = batch; /* two micro-batches: gradients are written, then added to */
    settings[count++] = types[type].arithmetic;
    if (layouts[layout].replicas)
        settings[count++] = layouts[layout].replicas;
    const int ranks = layouts[layout].ranks;
    const struct train_place place = {.rank = ranks - 1, .world_size = ranks, .local_size = ranks};
    r->model = muster_model_open(models[m].architecture, models[m].model, &err);
    if (!r->model)
        fail_msg("%s: %s", what, err.text);
    MUST(api_prepare(&r->trainer, r->model, settings, &place, &err));
    MUST(api_plan_sizes(&r->trainer, ranks, &err));
    MUST(plan_build(&r->trainer.model, &r->trainer.plan, &r->plan, &err));
    assert_int_equal(r->plan.options.value_dtype, types[type].values);
}

static void open_device(struct run *r, bool tf32)
{
    struct muster_error err = {0};
    r->device = cuda->open(0, 1, &err);
    if (!r->device)
        fail_msg("%s: %s", what, err.text);
    if (tf32)
        MUST(cuda->tf32(r->device, &err));
    r->stream = cuda->stream_create(r->device, "compute", true, &err);
    if (!r->stream)
        fail_msg("%s: %s", what, err.text);
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++)
        if (r->plan.arena_bytes[i])
            MUST(cuda->arena_create(r->device, (enum memory_class)i, r->plan.arena_bytes[i], &r->arenas[i],
                                    &err));
}

/* The plan's step is enqueued while the stream records. */
static void enqueue_step(struct run *r)
{
    struct muster_error err = {0};
    static const struct step_guard guard;
    struct device_stream *streams[STREAM_COUNT];
    struct comm_table comms = {.ops = &no_comm};
    for (int s = 0; s < STREAM_COUNT; s++)
        streams[s] = r->stream;
    for (int a = 0; a < AXIS_COUNT; a++)
        for (int s = 0; s < STREAM_COUNT; s++)
            comms.comm[a][s] = (struct comm *)(void *)r->stream; /* any */
    const struct executor_parts parts = {.model = &r->trainer.model,
                                         .plan = &r->plan,
                                         .ops = &only_kernels,
                                         .device = r->device,
                                         .kernels = r->trainer.plan.kernels,
                                         .arenas = r->arenas,
                                         .streams = streams,
                                         .comms = &comms,
                                         .guard = &guard};
    const struct cuda_stream_handle *handle = cuda->stream_handle(r->stream);
    cudaGraph_t recorded = NULL;
    MUST(cuda->sync(r->stream, INSTANT_NEVER, &err)); /* the arenas are filled */
    r->executor = executor_create(&parts, &err);
    if (!r->executor)
        fail_msg("%s: %s", what, err.text);
    assert_int_equal(cudaStreamBeginCapture(handle->stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    MUST(executor_run(r->executor, &err));
    assert_int_equal(cudaStreamEndCapture(handle->stream, &recorded), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(recorded), cudaSuccess);
    MUST(cuda->poll_error(r->device, &err)); /* a kernel or a product has refused its arguments */
}

static void end(struct run *r)
{
    executor_destroy(r->executor);
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++)
        if (r->plan.arena_bytes[i])
            cuda->arena_destroy(r->device, &r->arenas[i]);
    cuda->stream_destroy(r->stream);
    cuda->close(r->device);
    plan_free(&r->plan);
    api_release(&r->trainer);
    muster_model_free(r->model);
}

static void there_is_no_odd_product(int64_t products)
{
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
    int (*odd)(int64_t sizes[6]) = (int (*)(int64_t *))(uintptr_t)dlsym(library, "fake_cublaslt_odd");
    int64_t z[6];
    assert_non_null(odd);
    const int count = odd(z);
    if (count)
        fail_msg("%s: of %lld products %d are odd, the first of %lld x %lld x %lld with leading dimensions "
                 "%lld, %lld and %lld",
                 what, (long long)products, count, (long long)z[0], (long long)z[1], (long long)z[2],
                 (long long)z[3], (long long)z[4], (long long)z[5]);
    (void)dlclose(library);
}

static void its_products_have_no_odd_sizes(int m)
{
    char name[128];
    for (size_t type = 0; type < sizeof types / sizeof *types; type++)
        for (size_t layout = 0; layout < sizeof layouts / sizeof *layouts; layout++) {
            struct run r = {0};
            (void)snprintf(name, sizeof name, "%s, %s, %d ranks, %s", models[m].name, types[type].name,
                           layouts[layout].ranks, layouts[layout].strategy);
            what = name;
            prepare(&r, m, (int)type, (int)layout);
            open_device(&r, strstr(types[type].arithmetic, "tf32") != NULL);
            const uint64_t before = fake_calls("cublasLtMatmul");
            enqueue_step(&r);
            const int64_t products = (int64_t)(fake_calls("cublasLtMatmul") - before);
            /* Two micro-batches; next to the layers the head, in chunks. */
            if (products < 2 * 3 * (models[m].linear + 1))
                fail_msg("%s: %lld products", what, (long long)products);
            there_is_no_odd_product(products);
            end(&r);
        }
}

static void of_gpt2_124m(void **state)
{
    (void)state;
    its_products_have_no_odd_sizes(0);
}
static void of_gpt2_xl(void **state)
{
    (void)state;
    its_products_have_no_odd_sizes(1);
}
static void of_llama_1b(void **state)
{
    (void)state;
    its_products_have_no_odd_sizes(2);
}
static void of_llama_8b(void **state)
{
    (void)state;
    its_products_have_no_odd_sizes(3);
}

static int load(void **state)
{
    struct muster_error err = {0};
    const struct muster_cuda_module *module = device_module_load(&err); /* that of MUSTER_CUDA_MODULE */
    (void)state;
    if (!module) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    cuda = module->device;
    only_kernels = *cuda;
    only_kernels.event_create = event_create;
    only_kernels.event_destroy = event_destroy;
    only_kernels.launch = launch;
    only_kernels.record = only_kernels.wait = order;
    only_kernels.copy = copy;
    only_kernels.fill = fill;
    only_kernels.mark = NULL;
    only_kernels.marked = NULL;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_gpt2_124m),
        cmocka_unit_test(of_gpt2_xl),
        cmocka_unit_test(of_llama_1b),
        cmocka_unit_test(of_llama_8b),
    };
    return cmocka_run_group_tests_name("gpu_true_sizes", tests, load, NULL);
}
