/* gpt.c - GPT-2 as a model: names, shapes, initialisation and the list of layers; and the small forward pass
 * that sampling needs. */
#include "runtime/model/gpt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/model/gpt_layers.h"

int gpt_config_check(const struct gpt_config *config, struct muster_error *err)
{
#define CHECK_LIMIT(member, least, most)                                                                     \
    if (config->member < (least) || config->member > (most))                                                 \
        return error_set(err, MUSTER_E_INVALID, "model: " #member " is %d, but must be %d to %d",            \
                         config->member, (int)(least), (int)(most));
    GPT_CONFIG_LIMITS(CHECK_LIMIT)
#undef CHECK_LIMIT
    if (config->channels % config->heads)
        return error_set(err, MUSTER_E_INVALID,
                         "model: channels (%d) must be a multiple of heads (%d), so that every head has the "
                         "same size",
                         config->channels, config->heads);
    return 0;
}

/* ---- parameters ---- */

static void add_param(struct model *model, int unit, const char *name, int64_t rows, int64_t columns,
                      enum param_init init, double std)
{
    struct param_desc *param = &model->params[model->param_count++];
    (void)snprintf(param->name, sizeof param->name, "%s", name); /* our names are short */
    param->ndim = columns ? 2 : 1;
    param->dim[0] = rows;
    param->dim[1] = columns;
    param->init = init;
    param->init_std = std;
    param->trainable = true;
    param->parameter_class = columns ? 0 : 1;
    param->unit = unit;
}

/* A row of the table of a block's parameters, in the order of enum gpt_block_param. rows, columns: multiples
 * of the channels. */
struct block_row {
    const char *name;
    int rows, columns;
    enum param_init init;
    bool residual;
};
static const struct block_row block_rows[BLOCK_PARAMS] = {
    [BLOCK_LN1_WEIGHT] = {"ln_1.weight", 1, 0, PARAM_INIT_ONE, false},
    [BLOCK_LN1_BIAS] = {"ln_1.bias", 1, 0, PARAM_INIT_ZERO, false},
    [BLOCK_QKV_WEIGHT] = {"attn.c_attn.weight", 3, 1, PARAM_INIT_NORMAL, false},
    [BLOCK_QKV_BIAS] = {"attn.c_attn.bias", 3, 0, PARAM_INIT_ZERO, false},
    [BLOCK_PROJ_WEIGHT] = {"attn.c_proj.weight", 1, 1, PARAM_INIT_NORMAL, true},
    [BLOCK_PROJ_BIAS] = {"attn.c_proj.bias", 1, 0, PARAM_INIT_ZERO, false},
    [BLOCK_LN2_WEIGHT] = {"ln_2.weight", 1, 0, PARAM_INIT_ONE, false},
    [BLOCK_LN2_BIAS] = {"ln_2.bias", 1, 0, PARAM_INIT_ZERO, false},
    [BLOCK_FC_WEIGHT] = {"mlp.c_fc.weight", 4, 1, PARAM_INIT_NORMAL, false},
    [BLOCK_FC_BIAS] = {"mlp.c_fc.bias", 4, 0, PARAM_INIT_ZERO, false},
    [BLOCK_OUT_WEIGHT] = {"mlp.c_proj.weight", 1, 4, PARAM_INIT_NORMAL, true},
    [BLOCK_OUT_BIAS] = {"mlp.c_proj.bias", 1, 0, PARAM_INIT_ZERO, false},
};
enum { PARAMS_AROUND = 4, WTE = 0, WPE = 1, FIRST_BLOCK_PARAM = 2 }; /* wte, wpe, ln_f's two */
#define GPT_INIT_STD 0.02

static void add_params(const struct gpt_config *c, struct model *model)
{
    add_param(model, 0, "wte.weight", c->vocab, c->channels, PARAM_INIT_NORMAL, GPT_INIT_STD);
    add_param(model, 0, "wpe.weight", c->max_positions, c->channels, PARAM_INIT_NORMAL, GPT_INIT_STD);
    for (int layer = 0; layer < c->layers; layer++) {
        for (int i = 0; i < BLOCK_PARAMS; i++) {
            const struct block_row *row = &block_rows[i];
            char name[MODEL_NAME_LIMIT];
            (void)snprintf(name, sizeof name, "h.%d.%s", layer, row->name);
            add_param(model, 1 + layer, name, (int64_t)row->rows * c->channels,
                      (int64_t)row->columns * c->channels, row->init,
                      row->residual ? GPT_INIT_STD / sqrt(2.0 * c->layers) : GPT_INIT_STD);
            /* Every matrix of a block is a product's: what Hugging Face calls Conv1D. */
            model->params[model->param_count - 1].file_transposed = row->columns > 0;
        }
    }
    add_param(model, 1 + c->layers, "ln_f.weight", c->channels, 0, PARAM_INIT_ONE, 0);
    add_param(model, 1 + c->layers, "ln_f.bias", c->channels, 0, PARAM_INIT_ZERO, 0);
}

/* ---- layers ---- */

static struct layer_desc *add_layer(struct gpt *gpt, const char *name, const struct layer_ops *ops)
{
    struct model *model = &gpt->model;
    struct layer_desc *layer = &model->layers[model->layer_count];
    (void)snprintf(layer->name, sizeof layer->name, "%s", name);
    layer->ops = ops;
    layer->config = &gpt->config;
    layer->source[0] = model->layer_count ? model->layer_count - 1 : SOURCE_BATCH;
    layer->source_count = 1;
    model->layer_count++;
    return layer;
}

static void use(struct layer_desc *layer, int param)
{
    layer->param[layer->param_count++] = param;
}

static void add_layers(struct gpt *gpt)
{
    const struct gpt_config *c = &gpt->config;
    struct layer_desc *layer = add_layer(gpt, "embedding", &gpt_embedding_ops);
    use(layer, WTE);
    use(layer, WPE);
    for (int block = 0; block < c->layers; block++) {
        char name[MODEL_NAME_LIMIT];
        (void)snprintf(name, sizeof name, "h.%d", block);
        layer = add_layer(gpt, name, &gpt_block_ops);
        for (int i = 0; i < BLOCK_PARAMS; i++)
            use(layer, FIRST_BLOCK_PARAM + block * BLOCK_PARAMS + i);
    }
    layer = add_layer(gpt, "head", &gpt_head_ops);
    use(layer, gpt->model.param_count - 2);
    use(layer, gpt->model.param_count - 1);
    use(layer, WTE);
}

struct gpt *gpt_create(const struct gpt_config *config, struct muster_error *err)
{
    static const char *const metadata[] = {"architecture", "gpt2", "linear_layout", "in_out", NULL};
    if (gpt_config_check(config, err))
        return NULL;
    GUARD(guard_gpt) struct gpt *gpt = mem_calloc(1, sizeof *gpt);
    if (gpt) {
        size_t params = PARAMS_AROUND + (size_t)config->layers * BLOCK_PARAMS;
        gpt->config = *config;
        gpt->model.params = mem_calloc(params, sizeof *gpt->model.params);
        gpt->model.layers = mem_calloc((size_t)config->layers + 2, sizeof *gpt->model.layers);
    }
    if (!gpt || !gpt->model.params || !gpt->model.layers) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a model of %d layers", config->layers);
        return NULL;
    }
    (void)snprintf(gpt->model.name, sizeof gpt->model.name, "gpt2-%dx%d", config->layers, config->channels);
    gpt->model.stages = 1;
    gpt->model.max_positions = config->max_positions;
    gpt->model.metadata = metadata;
    add_params(config, &gpt->model);
    add_layers(gpt);
    return take_pointer(&gpt);
}

void gpt_destroy(struct gpt *gpt)
{
    if (!gpt)
        return;
    mem_free(gpt->model.params);
    mem_free(gpt->model.layers);
    mem_free(gpt);
}

/* ---- logits for sampling ---- */

struct logits_work {
    void *activation[2], *norm, *mean, *rstd, *layer;
};

static struct logits_work logits_work(const struct gpt *gpt, const struct kernels *kernels,
                                      struct shape shape, struct carve *at)
{
    int size = dtype_size(kernels->dtype);
    int64_t wide = (int64_t)shape.B * shape.T * gpt->config.channels * size;
    struct layer_sizes block;
    gpt_block_ops.sizes(&gpt->config, shape, kernels->dtype, LAYER_EVAL, kernels, &block);
    return (struct logits_work){
        .activation = {carve_bytes(at, wide), carve_bytes(at, wide)},
        .norm = carve_bytes(at, (int64_t)shape.B * gpt->config.channels * size),
        .mean = carve_bytes(at, (int64_t)shape.B * size),
        .rstd = carve_bytes(at, (int64_t)shape.B * size),
        .layer = carve_bytes(at, block.work),
    };
}

int64_t gpt_logits_work(const struct gpt *gpt, const struct kernels *kernels, struct shape max)
{
    struct carve count = {0};
    (void)logits_work(gpt, kernels, max, &count);
    return count.used;
}

void gpt_logits(const struct gpt *gpt, const struct kernels *kernels, const void *const *weights,
                const int32_t *tokens, struct shape shape, void *work, void *logits)
{
    struct carve at = {.base = work};
    struct logits_work w = logits_work(gpt, kernels, shape, &at);
    struct batch batch = {.tokens = tokens};
    const void *in = NULL;
    int C = gpt->config.channels, size = dtype_size(kernels->dtype), head = gpt->model.layer_count - 1;
    for (int i = 0; i < head; i++) {
        const struct layer_desc *layer = &gpt->model.layers[i];
        const void *weight[LAYER_PARAMS];
        for (int p = 0; p < layer->param_count; p++)
            weight[p] = weights[layer->param[p]];
        struct layer_context x = {.kernels = kernels,
                                  .mode = LAYER_EVAL,
                                  .shape = shape,
                                  .weight = weight,
                                  .in = &in,
                                  .out = w.activation[i % 2],
                                  .work = w.layer,
                                  .batch = &batch};
        layer->ops->forward(layer->config, &x);
        in = x.out;
    }
    const int *param = gpt->model.layers[head].param;
    for (int row = 0; row < shape.B; row++) {
        size_t last = ((size_t)row * (size_t)shape.T + (size_t)shape.T - 1) * (size_t)C * (size_t)size;
        kernels->layernorm_forward((char *)w.norm + (size_t)row * (size_t)C * (size_t)size,
                                   (char *)w.mean + row * size, (char *)w.rstd + row * size,
                                   (const char *)in + last, weights[param[HEAD_LN_WEIGHT]],
                                   weights[param[HEAD_LN_BIAS]], 1, C, GPT_NORM_EPSILON, NULL);
    }
    kernels->linear_forward(logits, w.norm, weights[param[HEAD_WTE]], NULL, shape.B, C, gpt->config.vocab,
                            NULL);
}
