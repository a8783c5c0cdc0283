/* plan_models.c - see plan_models.h. */
#include "tests/support/plan_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cmocka_all.h"

static void sizes_of(const void *config, struct shape max, enum dtype dtype, enum layer_mode mode,
                     const struct kernels *kernels, struct layer_sizes *sizes)
{
    const struct plan_model_layer *layer = config;
    (void)max;
    (void)dtype;
    (void)kernels;
    *sizes = (struct layer_sizes){
        .out = layer->out,
        .saved = mode == LAYER_EVAL ? 0 : layer->saved,
        .work = layer->work + (mode == LAYER_EVAL ? layer->saved : 0),
    };
}

/* A loss forms its logits in its work memory. */
static void chunked_sizes_of(const void *config, struct shape max, enum dtype dtype, enum layer_mode mode,
                             const struct kernels *kernels, int64_t chunk_bytes, struct layer_sizes *sizes)
{
    sizes_of(config, max, dtype, mode, kernels, sizes);
    if (sizes->out == 0 && sizes->work > chunk_bytes)
        sizes->work = chunk_bytes;
}

static const struct layer_ops sizes_only = {
    .name = "sizes", .sizes = sizes_of, .chunked_sizes = chunked_sizes_of};

struct plan_model *plan_model_create(const char *name, int params, int layers)
{
    struct plan_model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->params = calloc((size_t)params, sizeof *m->params);
    m->layers = calloc((size_t)layers, sizeof *m->layers);
    m->sizes = calloc((size_t)layers, sizeof *m->sizes);
    assert_true(m->params && m->layers && m->sizes);
    m->param_capacity = params;
    m->layer_capacity = layers;
    m->model = (struct model){.params = m->params, .layers = m->layers, .parts = 1};
    (void)snprintf(m->model.name, sizeof m->model.name, "%s", name);
    assert_int_equal(model_add_input(&m->model, "tokens", DTYPE_I32, true, 1), 0);
    assert_int_equal(model_add_input(&m->model, "targets", DTYPE_I32, true, 1), 1);
    return m;
}

void plan_model_destroy(struct plan_model *m)
{
    if (!m)
        return;
    free(m->params);
    free(m->layers);
    free(m->sizes);
    free(m);
}

int plan_model_param(struct plan_model *m, const char *name, int64_t rows, int64_t columns, bool trainable,
                     int unit)
{
    assert_true(m->model.param_count < m->param_capacity);
    struct param_desc *param = &m->params[m->model.param_count];
    *param = (struct param_desc){.ndim = columns ? 2 : 1,
                                 .dim = {rows, columns},
                                 .trainable = trainable,
                                 .parameter_class = columns ? 0 : 1,
                                 .unit = unit};
    (void)snprintf(param->name, sizeof param->name, "%s", name);
    return m->model.param_count++;
}

int plan_model_layer(struct plan_model *m, const char *name, struct plan_model_layer sizes, int source)
{
    int index = m->model.layer_count++;
    assert_true(index < m->layer_capacity);
    m->sizes[index] = sizes;
    m->layers[index] = (struct layer_desc){.ops = &sizes_only, .config = &m->sizes[index]};
    (void)snprintf(m->layers[index].name, sizeof m->layers[index].name, "%s", name);
    plan_model_source(m, index, source);
    return index;
}

void plan_model_use(struct plan_model *m, int layer, int param)
{
    struct layer_desc *desc = &m->layers[layer];
    assert_true(desc->param_count < LAYER_PARAMS);
    desc->param[desc->param_count++] = param;
}

void plan_model_source(struct plan_model *m, int layer, int source)
{
    struct layer_desc *desc = &m->layers[layer];
    assert_true(desc->source_count < LAYER_SOURCES);
    desc->source[desc->source_count++] = source;
}

void plan_model_stages(struct plan_model *m, int stages)
{
    m->model.parts = stages;
    for (int l = 0; l < m->model.layer_count; l++)
        m->layers[l].part = l * stages / m->model.layer_count;
}

/* ---- GPT ---- */

static void block_param(struct plan_model *m, int layer, int block, const char *name, int64_t rows,
                        int64_t columns, bool trainable)
{
    char full[MODEL_NAME_LIMIT];
    (void)snprintf(full, sizeof full, "h.%d.%s", block, name);
    plan_model_use(m, layer, plan_model_param(m, full, rows, columns, trainable, 1 + block));
}

static void block_params(struct plan_model *m, int layer, int block, int C, int lora)
{
    const struct {
        const char *weight, *bias, *a, *b;
        int out, in;
    } product[4] = {
        {"attn.c_attn.weight", "attn.c_attn.bias", "attn.c_attn.lora_a", "attn.c_attn.lora_b", 3 * C, C},
        {"attn.c_proj.weight", "attn.c_proj.bias", "attn.c_proj.lora_a", "attn.c_proj.lora_b", C, C},
        {"mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_fc.lora_a", "mlp.c_fc.lora_b", 4 * C, C},
        {"mlp.c_proj.weight", "mlp.c_proj.bias", "mlp.c_proj.lora_a", "mlp.c_proj.lora_b", C, 4 * C},
    };
    bool whole = lora == 0;
    const char *const norms[] = {"ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias"};
    for (int i = 0; i < 4; i++) {
        block_param(m, layer, block, norms[i], C, 0, whole);
        block_param(m, layer, block, product[i].weight, product[i].out, product[i].in, whole);
        block_param(m, layer, block, product[i].bias, product[i].out, 0, whole);
        if (whole)
            continue;
        block_param(m, layer, block, product[i].a, lora, product[i].in, true);
        block_param(m, layer, block, product[i].b, product[i].out, lora, true);
    }
}

struct plan_model *plan_model_gpt(int blocks, int C, int vocab, int positions, int rows, int lora)
{
    struct plan_model *m = plan_model_create(lora ? "gpt-lora" : "gpt", 4 + blocks * 20, blocks + 2);
    int64_t wide = (int64_t)rows * C * 4;
    bool whole = lora == 0;
    m->model.max_positions = positions;
    int wte = plan_model_param(m, "wte.weight", vocab, C, whole, 0);
    int wpe = plan_model_param(m, "wpe.weight", positions, C, whole, 0);
    int last = plan_model_layer(m, "embedding", (struct plan_model_layer){wide, 0, 0}, SOURCE_BATCH);
    plan_model_use(m, last, wte);
    plan_model_use(m, last, wpe);
    m->layers[last].lookup = 1;
    for (int i = 0; i < blocks; i++) {
        char name[MODEL_NAME_LIMIT];
        (void)snprintf(name, sizeof name, "h.%d", i);
        last = plan_model_layer(m, name, (struct plan_model_layer){wide, 14 * wide, 5 * wide}, last);
        block_params(m, last, i, C, lora);
    }
    int head =
        plan_model_layer(m, "head", (struct plan_model_layer){0, wide, (int64_t)rows * vocab * 4}, last);
    plan_model_use(m, head, plan_model_param(m, "ln_f.weight", C, 0, whole, 1 + blocks));
    plan_model_use(m, head, plan_model_param(m, "ln_f.bias", C, 0, whole, 1 + blocks));
    plan_model_use(m, head, wte);
    return m;
}

struct plan_model *plan_model_untied(int blocks, int C, int vocab, int positions, int rows)
{
    struct plan_model *m = plan_model_gpt(blocks, C, vocab, positions, rows, 0);
    struct layer_desc *head = &m->layers[m->model.layer_count - 1];
    (void)snprintf(m->model.name, sizeof m->model.name, "gpt-untied");
    head->param[head->param_count - 1] = plan_model_param(m, "lm_head.weight", vocab, C, true, 1 + blocks);
    return m;
}

void plan_model_store(struct plan_model *m, enum stored stored)
{
    for (int i = 0; i < m->model.param_count; i++)
        if (!m->params[i].trainable && m->params[i].ndim == 2)
            m->params[i].stored = stored != STORED_PLAIN ? stored : (enum stored)(i % STORED_KIND_COUNT);
}

/* ---- CNN ---- */

struct plan_model *plan_model_cnn(int pairs, int rows)
{
    struct plan_model *m = plan_model_create("cnn", 6 + pairs * 6, 3 + pairs * 3);
    char name[MODEL_NAME_LIMIT];
    int64_t map = (int64_t)rows * 10 * 4;
    struct plan_model_layer conv = {map, 2 * map, map}, plain = {map, 0, 0};
    int last = plan_model_layer(m, "stem", conv, SOURCE_BATCH);
    plan_model_use(m, last, plan_model_param(m, "stem.weight", 10, 27, true, 0));
    for (int p = 0; p < pairs; p++) {
        int shortcut = last;
        for (int i = 0; i < 2; i++) {
            (void)snprintf(name, sizeof name, "conv.%d.%d", p, i);
            last = plan_model_layer(m, name, conv, last);
            (void)snprintf(name, sizeof name, "conv.%d.%d.weight", p, i);
            plan_model_use(m, last, plan_model_param(m, name, 10, 90, true, 1 + p));
            (void)snprintf(name, sizeof name, "conv.%d.%d.bias", p, i);
            plan_model_use(m, last, plan_model_param(m, name, 10, 0, true, 1 + p));
        }
        (void)snprintf(name, sizeof name, "add.%d", p);
        last = plan_model_layer(m, name, plain, last);
        plan_model_source(m, last, shortcut);
    }
    last = plan_model_layer(m, "pool", plain, last);
    int head = plan_model_layer(m, "classifier", (struct plan_model_layer){0, map, map}, last);
    plan_model_use(m, head, plan_model_param(m, "classifier.weight", 7, 10, true, 1 + pairs));
    plan_model_use(m, head, plan_model_param(m, "classifier.bias", 7, 0, true, 1 + pairs));
    return m;
}

void plan_model_statistics(struct plan_model *m, int width)
{
    char name[MODEL_NAME_LIMIT];
    for (int l = 0; l < m->model.layer_count; l++) {
        if (!m->layers[l].param_count || m->layers[l].lookup)
            continue;
        (void)snprintf(name, sizeof name, "l%d.running_mean", l);
        const int unit = m->params[m->layers[l].param[0]].unit,
                  param = plan_model_param(m, name, width, 0, true, unit);
        m->params[param].statistic = PARAM_STATISTIC;
        plan_model_use(m, l, param);
    }
}

/* ---- anything ---- */

uint64_t plan_model_next(uint64_t *seed, uint64_t limit)
{
    uint64_t x = *seed;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *seed = x;
    return (x * UINT64_C(2685821657736338717) >> 33) % limit;
}

static void random_params(struct plan_model *m, uint64_t *seed, int layer)
{
    char name[MODEL_NAME_LIMIT];
    int count = (int)plan_model_next(seed, 4);
    for (int i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "p%d", m->model.param_count);
        int64_t rows = 1 + (int64_t)plan_model_next(seed, 200), columns = (int64_t)plan_model_next(seed, 40);
        const int unit = layer / (1 + (int)plan_model_next(seed, 3)); /* arguments have no order */
        const bool trainable = plan_model_next(seed, 4) > 0;
        plan_model_use(m, layer, plan_model_param(m, name, rows, columns, trainable, unit));
    }
    int shared = m->model.param_count ? (int)plan_model_next(seed, (uint64_t)m->model.param_count) : 0;
    bool again = m->model.param_count > 0 && plan_model_next(seed, 5) == 0;
    for (int i = 0; again && i < m->layers[layer].param_count; i++)
        again = m->layers[layer].param[i] != shared;
    if (again)
        plan_model_use(m, layer, shared);
}

/* A shared parameter has to lie on one stage, or on the first and the last. */
static void unshare(struct plan_model *m)
{
    for (int l = 0; l < m->model.layer_count; l++) {
        struct layer_desc *layer = &m->layers[l];
        for (int i = 0; i < layer->param_count; i++) {
            int first = l;
            for (int k = l - 1; k >= 0; k--)
                for (int j = 0; j < m->layers[k].param_count; j++)
                    first = m->layers[k].param[j] == layer->param[i] ? k : first;
            int stage = m->layers[first].part;
            if (stage == layer->part || (stage == 0 && layer->part == m->model.parts - 1))
                continue;
            layer->param[i--] = layer->param[--layer->param_count];
        }
    }
}

void plan_model_look_up(struct plan_model *m)
{
    enum { WIDTH = 5 };
    struct layer_desc *first = &m->layers[0];
    if (first->param_count > 2)
        return;
    for (int i = 0; i < first->param_count; i++) {
        m->params[first->param[i]].ndim = 2;
        m->params[first->param[i]].dim[1] = WIDTH;
    }
    first->source_count = 1;
    first->lookup = 1;
    m->sizes[0].out = 1 << 10; /* room for a few positions of WIDTH */
}

struct plan_model *plan_model_random(uint64_t *seed, int stages)
{
    int layers = stages + 1 + (int)plan_model_next(seed, 9);
    struct plan_model *m = plan_model_create("random", layers * 6 + 2, layers);
    char name[MODEL_NAME_LIMIT];
    for (int l = 0; l < layers; l++) {
        (void)snprintf(name, sizeof name, "l%d", l);
        struct plan_model_layer sizes = {
            l == layers - 1 ? 0 : 8 * (1 + (int64_t)plan_model_next(seed, 200)),
            (int64_t)plan_model_next(seed, 3) * 1000,
            (int64_t)plan_model_next(seed, 3) * 700,
        };
        (void)plan_model_layer(m, name, sizes, l == 0 ? SOURCE_BATCH : l - 1);
    }
    plan_model_stages(m, stages);
    for (int l = 0; l < layers; l++) {
        int skip = l > 1 ? (int)plan_model_next(seed, (uint64_t)l) : SOURCE_BATCH;
        if (plan_model_next(seed, 3) == 0 &&
            (skip == SOURCE_BATCH || m->layers[skip].part + 1 >= m->layers[l].part))
            plan_model_source(m, l, skip);
        m->layers[l].recompute = plan_model_next(seed, 4) == 0;
        random_params(m, seed, l);
    }
    unshare(m);
    /* Something to train, somewhere. */
    plan_model_use(m, 0, plan_model_param(m, "first", 9, 5, true, 100));
    return m;
}
