/* shipped_module_test.c - the module that nvcc has built, on the fake cudart: it loads, registers its
 * kernels, opens a device, and the slots of its table launch them. Their code is a GPU's and does not run:
 * the test covers the host's side, from the loader to the launch. */
#include <dlfcn.h>
#include <stdlib.h>

#include "proto/base/clock.h"
#include "runtime/device/device_module.h"
#include "tests/gpu/cudart/registration.h"
#include "tests/support/cmocka_all.h"

static const struct muster_cuda_module *module;
static struct device *device;
static struct device_stream *stream;
static struct device_arena arena;

static void the_module_loads_and_registers_its_kernels(void **state)
{
    struct muster_error err = {0};
    (void)state;
    module = device_module_load(&err); /* that of MUSTER_CUDA_MODULE */
    if (!module)
        fail_msg("%s", err.text);
    assert_true(fake_cudart_kernels("") >= 30);
    assert_int_equal(fake_cudart_kernels("10add_kernel"), 3); /* a type of values each */
    assert_int_equal(fake_cudart_launches(""), 0);
    if (module->probe(&err) != 0)
        fail_msg("%s", err.text);
}

static void it_opens_a_device(void **state)
{
    struct muster_error err = {0};
    (void)state;
    assert_non_null(module);
    device = module->device->open(0, 1, &err);
    if (!device)
        fail_msg("%s", err.text);
    stream = module->device->stream_create(device, "compute", true, &err);
    if (!stream)
        fail_msg("%s", err.text);
    if (module->device->arena_create(device, MEMORY_DEVICE, 1 << 20, &arena, &err) != 0)
        fail_msg("%s", err.text);
}

/* A few slots of every kind: one kernel, several, a template, a product with a kernel after it. */
static void enqueue_slots(void *argument)
{
    const struct kernels *k = module->device->kernels(device);
    void *handle = module->device->stream_handle(stream);
    float *memory = arena.base;
    const struct attention a = {.B = 1,
                                .T = 4,
                                .heads = 2,
                                .kv_heads = 2,
                                .head_size = 8,
                                .causal = 1,
                                .q_row = 48,
                                .k_row = 48,
                                .v_row = 48};
    (void)argument;
    k->add(memory, memory, memory, 100, handle);
    k->layernorm_forward(memory, memory + 1024, memory + 2048, memory + 3072, memory + 4096, memory + 4096, 4,
                         16, 1e-5, handle);
    k->activation_forward(memory, memory, ACTIVATION_GELU_TANH, 100, handle);
    k->attention_forward(memory, memory + 1024, memory + 2048, memory + 2064, memory + 2080, &a,
                         memory + 8192, handle);
    k->linear_forward(memory, memory + 1024, memory + 2048, memory + 4097, 4, 8, 12, 12, handle);
    k->norm_squared((double *)memory, memory + 1024, 100, 0, handle);
    k->adamw(memory, memory + 1024, memory + 2048, memory + 3072, OPTIMIZER_WHOLE(100, 0), NULL, DTYPE_F32,
             (const struct step_scalars *)(memory + 4096), handle);
}

static void its_slots_launch_kernels(void **state)
{
    static const char *const launched[] = {"10add_kernel",        "attention",         "adamw_kernel",
                                           "norm_partial_kernel", "norm_total_kernel", "bias_add_kernel"};
    struct muster_error err = {0};
    (void)state;
    assert_non_null(stream);
    assert_int_equal(module->device->launch(stream, enqueue_slots, NULL), 0);
    struct instant deadline = instant_add(clock_now(NULL), 60 * NS_PER_S);
    if (module->device->sync(stream, deadline, &err) != 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof launched / sizeof launched[0]; i++)
        if (fake_cudart_launches(launched[i]) < 1)
            fail_msg("%s was not launched", launched[i]);
    assert_int_equal(fake_cudart_launches(""), 8); /* norm_squared is two, linear one and a product */
    if (module->device->poll_error(device, &err) != 0)
        fail_msg("%s", err.text);
}

static void it_closes(void **state)
{
    (void)state;
    assert_non_null(device);
    module->device->arena_destroy(device, &arena);
    module->device->stream_destroy(stream);
    module->device->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_module_loads_and_registers_its_kernels),
        cmocka_unit_test(it_opens_a_device),
        cmocka_unit_test(its_slots_launch_kernels),
        cmocka_unit_test(it_closes),
    };
    return cmocka_run_group_tests_name("gpu_shipped_module", tests, NULL, NULL);
}
