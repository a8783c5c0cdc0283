/* product_shapes_test.c - the sizes of a training step's products on a device whose rows have multiples:
 * those of models as they are trained have no odd size, which libraries of products are slow with.
 *
 * Every layer runs forward and backward over a table that does nothing but note its products; memory is
 * addresses alone. */
#include "tests/support/cmocka_all.h"

#include <sys/mman.h>

#include "runtime/model/architectures.h"
#include "runtime/plan/model.h"

enum { MULTIPLE = 8, LAYERS = 3 };
static int products;
static char odd[256]; /* the first product with an odd size */

static void note(int N, int C, int OC, int row)
{
    products++;
    if (!*odd && (N % MULTIPLE || C % MULTIPLE || OC % MULTIPLE || row % MULTIPLE))
        (void)snprintf(odd, sizeof odd, "%d x %d x %d, rows of %d", N, C, OC, row);
}

static void note_forward(void *out, const void *in, const void *weight, const void *bias, int N, int C,
                         int OC, int row, void *stream)
{
    (void)out, (void)in, (void)weight, (void)bias, (void)stream;
    note(N, C, OC, row);
}

static void note_input(void *din, const void *dout, const void *weight, int N, int C, int OC, int row,
                       int beta, void *stream)
{
    (void)din, (void)dout, (void)weight, (void)beta, (void)stream;
    note(N, C, OC, row);
}

static void note_weight(void *dweight, void *dbias, const void *dout, const void *in, int N, int C, int OC,
                        int row, int beta, void *stream)
{
    (void)dweight, (void)dbias, (void)dout, (void)in, (void)beta, (void)stream;
    note(N, C, OC, row);
}

static void nothing(void) {}

/* As the CUDA table's: rows of 32 elements, chunks of 512 MiB. */
static struct kernels noting(void)
{
    struct kernels k = *kernels_ref_f32();
#define OPERATION(name, parameters, arguments) k.name = (__typeof__(k.name))(uintptr_t)nothing;
#include "kernels/operations.inc"
    k.linear_forward = note_forward;
    k.linear_backward_input = note_input;
    k.linear_backward_weight = note_weight;
    k.linear_activation_forward = NULL;
    k.linear_backward_activation = NULL;
    k.row_multiple = 32;
    k.chunk_bytes = 512 << 20;
    return k;
}

/* All layers, forward and backward. at: addresses of memory that nothing reads. */
static void run(const struct model *model, struct shape shape, const struct kernels *kernels, char *at)
{
    const void *in[LAYER_SOURCES], *weight[LAYER_PARAMS];
    void *grad[LAYER_PARAMS], *din[LAYER_SOURCES];
    const uint8_t beta[LAYER_PARAMS] = {0};
    struct batch batch = {0};
    for (int i = 0; i < LAYER_SOURCES; i++)
        in[i] = din[i] = at;
    for (int i = 0; i < LAYER_PARAMS; i++)
        weight[i] = grad[i] = at;
    for (int i = 0; i < model->input_count; i++)
        batch.input[i] = at;
    for (int l = 0; l < model->layer_count; l++) {
        const struct layer_desc *layer = &model->layers[l];
        const struct layer_context context = {.kernels = kernels,
                                              .mode = LAYER_TRAIN,
                                              .shape = shape,
                                              .weight = weight,
                                              .grad = grad,
                                              .grad_beta = beta,
                                              .in = in,
                                              .out = at,
                                              .dout = at,
                                              .din = din,
                                              .din_beta = beta,
                                              .saved = at,
                                              .work = at,
                                              .batch = &batch,
                                              .scalars = (const struct step_scalars *)(const void *)at,
                                              .loss_total = (double *)(void *)at,
                                              .loss_count = (int64_t *)(void *)at};
        layer->ops->forward(layer->config, &context);
        layer->ops->backward(layer->config, &context, LAYER_INPUT | LAYER_WEIGHT);
    }
}

static void check(struct model *model, struct shape shape)
{
    const size_t bytes = (size_t)1 << 40;
    const struct kernels kernels = noting();
    char *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    assert_non_null(model);
    products = 0;
    *odd = '\0';
    run(model, shape, &kernels, at);
    assert_true(products >
                3 * 4 * LAYERS); /* of each block four products at least, each of them three times */
    assert_string_equal(odd, "");
    model_destroy(model);
    assert_int_equal(munmap(at, bytes), 0);
}

static void no_product_of_gpt2_has_an_odd_size(void **state)
{
    (void)state;
    struct gpt2_config small = {.layers = LAYERS, .channels = 768, .heads = 12, .vocab = 50257},
                       xl = {.layers = LAYERS, .channels = 1600, .heads = 25, .vocab = 50257};
    small.max_positions = xl.max_positions = 1024;
    check(gpt2_create(&small, NULL), (struct shape){16, 1024});
    check(gpt2_create(&xl, NULL), (struct shape){8, 1024});
}

static void no_product_of_llama_has_an_odd_size(void **state)
{
    (void)state;
    struct llama_config small = {.layers = LAYERS,
                                 .channels = 2048,
                                 .heads = 32,
                                 .kv_heads = 8,
                                 .hidden = 8192,
                                 .vocab = 128256,
                                 .max_positions = 8192,
                                 .tied = true},
                        large = {.layers = LAYERS,
                                 .channels = 4096,
                                 .heads = 32,
                                 .kv_heads = 8,
                                 .hidden = 14336,
                                 .vocab = 128256,
                                 .max_positions = 8192};
    check(llama_create(&small, NULL), (struct shape){4, 2048});
    check(llama_create(&large, NULL), (struct shape){1, 8192});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_product_of_gpt2_has_an_odd_size),
                                       cmocka_unit_test(no_product_of_llama_has_an_odd_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
