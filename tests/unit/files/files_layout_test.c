/* files_layout_test.c - which tensor of a file is which parameter, and which file an export puts it into. */
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/files/files_internal.h"
#include "runtime/files/layout.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

#include <stdio.h>

static const struct architecture gpt2 = {
    .kind = ARCHITECTURE_GPT2,
    .gpt2 = {.layers = 2, .channels = 8, .heads = 2, .vocab = 10, .max_positions = 4}};
static const struct architecture tied = {
    .kind = ARCHITECTURE_LLAMA,
    .llama = {
        .layers = 2, .channels = 8, .heads = 2, .hidden = 16, .vocab = 10, .max_positions = 4, .tied = true}};

static struct model *make(const struct architecture *architecture)
{
    struct muster_error err = {0};
    struct model *model = architecture_model(architecture, &err);
    assert_non_null(model);
    return model;
}

/* The tensors of a whole model under the names of one's choice. */
static struct file_tensors tensors_of(const struct model *model, const char *prefix, size_t cut)
{
    struct file_tensors tensors = {0};
    for (int i = 0; i < model->param_count; i++) {
        const struct param_desc *param = &model->params[i];
        char name[100];
        (void)snprintf(name, sizeof name, "%s%s", prefix, param->name + cut);
        struct file_tensor tensor = {.name = name, .dtype = DTYPE_F32, .ndim = param->ndim};
        for (int d = 0; d < param->ndim; d++)
            tensor.dim[d] = param->dim[param->file_transposed ? param->ndim - 1 - d : d];
        assert_int_equal(tensors_add(&tensors, &tensor, NULL), 0);
    }
    assert_int_equal(tensors_sort(&tensors, "x", NULL), 0);
    return tensors;
}

static void add(struct file_tensors *tensors, const char *name, int64_t rows, int64_t columns)
{
    const struct file_tensor tensor = {
        .name = (char *)name, .dtype = DTYPE_F32, .ndim = 2, .dim = {rows, columns}};
    assert_int_equal(tensors_add(tensors, &tensor, NULL), 0);
    assert_int_equal(tensors_sort(tensors, "x", NULL), 0);
}

static void check_match(const struct file_tensors *tensors, const struct model *model,
                        const struct architecture *architecture, bool has_tied)
{
    struct match match;
    struct muster_error err = {0};
    if (match_tensors("x", tensors, model, architecture, &match, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < model->param_count; i++) {
        const char *name = tensors->item[match.tensor[i]].name;
        size_t length = strlen(name), tail = strlen("ln_1.bias");
        assert_true(length >= tail);
        assert_string_equal(name + length - tail,
                            model->params[i].name + strlen(model->params[i].name) - tail);
    }
    assert_int_equal(match.tied >= 0, has_tied);
    match_free(&match);
}

static void names_with_and_without_the_head_are_matched(void **state)
{
    (void)state;
    GUARD(guard_model) struct model *g = make(&gpt2), *t = make(&tied);
    struct file_tensors tensors = tensors_of(g, "transformer.", 0);
    check_match(&tensors, g, &gpt2, false);
    add(&tensors, "lm_head.weight", 10, 8);
    check_match(&tensors, g, &gpt2, true);
    add(&tensors, "transformer.h.0.attn.bias", 4, 4); /* the mask that older versions kept */
    check_match(&tensors, g, &gpt2, true);
    tensors_free(&tensors);
    tensors = tensors_of(g, "", 0);
    check_match(&tensors, g, &gpt2, false);
    check_match(&tensors, g, NULL, false);
    tensors_free(&tensors);
    tensors = tensors_of(t, "", 0);
    check_match(&tensors, t, &tied, false);
    tensors_free(&tensors);
    tensors = tensors_of(t, "", strlen("model."));
    check_match(&tensors, t, &tied, false);
    tensors_free(&tensors);
}

static void check_refused(const struct file_tensors *tensors, const struct model *model, const char *says)
{
    struct match match;
    struct muster_error err = {0};
    assert_int_equal(match_tensors("some/path", tensors, model, &gpt2, &match, &err), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_null(match.tensor);
    if (!strstr(err.text, says) || strncmp(err.text, "some/path does not fit gpt2-2x8: ", 33))
        fail_msg("%s", err.text);
}

static void what_does_not_fit_is_listed(void **state)
{
    (void)state;
    GUARD(guard_model) struct model *g = make(&gpt2);
    struct file_tensors tensors = tensors_of(g, "transformer.", 0);
    tensors.item[0].name[12] = 'x'; /* transformer.x.0.attn.c_attn.bias */
    assert_int_equal(tensors_sort(&tensors, "x", NULL), 0);
    check_refused(&tensors, g,
                  "1 tensors are missing: transformer.h.0.attn.c_attn.bias; 1 are unexpected: "
                  "transformer.x.0.attn.c_attn.bias");
    tensors_free(&tensors);

    tensors = tensors_of(g, "", 0);
    struct file_tensor *square = (struct file_tensor *)tensors_find(&tensors, "h.1.mlp.c_fc.weight");
    square->dim[0] = 32;
    square->dim[1] = 8;
    check_refused(&tensors, g, "1 have a wrong shape: h.1.mlp.c_fc.weight is (32, 8), not (8, 32)");
    square->out_in = true; /* as llm.c has them */
    check_match(&tensors, g, &gpt2, false);
    square->dtype = DTYPE_I32;
    (void)snprintf(square->type, sizeof square->type, "I32");
    check_refused(&tensors, g, "1 have a type that parameters cannot have: h.1.mlp.c_fc.weight is I32");
    tensors_free(&tensors);

    tensors = (struct file_tensors){0};
    check_refused(&tensors, g,
                  "28 tensors are missing: transformer.wte.weight, transformer.wpe.weight, "
                  "transformer.h.0.ln_1.weight and 25 more");
    add(&tensors, "a", 1, 1);
    check_refused(&tensors, g, "1 are unexpected: a");
    tensors_free(&tensors);
}

static int match_once(void *context)
{
    const struct model *model = context;
    struct file_tensors tensors = {0};
    struct match match;
    struct muster_error err = {0};
    for (int i = 0; i < model->param_count; i++) {
        struct file_tensor tensor = {
            .name = (char *)model->params[i].name, .dtype = DTYPE_F32, .ndim = model->params[i].ndim};
        memcpy(tensor.dim, model->params[i].dim, sizeof model->params[i].dim);
        tensor.out_in = true;
        if (tensors_add(&tensors, &tensor, &err)) {
            tensors_free(&tensors);
            return -1;
        }
    }
    int result = tensors_sort(&tensors, "x", &err);
    result = result ? result : match_tensors("x", &tensors, model, &gpt2, &match, &err);
    if (!result)
        match_free(&match);
    tensors_free(&tensors);
    struct layout layout;
    if (!result && !(result = layout_make(model, &gpt2, true, DTYPE_F32, 1000, &layout, &err)))
        layout_free(&layout);
    return result;
}

static void survives_no_memory(void **state)
{
    (void)state;
    GUARD(guard_model) struct model *model = make(&gpt2);
    faults_sweep(match_once, model);
}

static void shards_are_filled_in_the_order_of_transformers(void **state)
{
    (void)state;
    /* Bytes at float32: wte 320, wpe 128; a block: norms 32 each, products 768 + 96, 256 + 32, 1024 + 128,
     * 1024 + 32. */
    GUARD(guard_model) struct model *model = make(&gpt2);
    struct layout layout;
    struct muster_error err = {0};
    char name[LAYOUT_NAME];
    assert_int_equal(layout_make(model, &gpt2, true, DTYPE_F32, 0, &layout, &err), 0);
    assert_int_equal(layout.file_count, 1);
    assert_string_equal(layout_file_name(&layout, 0, name), "model.safetensors");
    assert_string_equal(layout.tensors.item[0].name, "transformer.h.0.attn.c_attn.bias");
    assert_int_equal(layout.first[0], 0);
    assert_int_equal(layout.first[1], model->param_count);
    layout_free(&layout);

    assert_int_equal(layout_make(model, &gpt2, true, DTYPE_F32, 1000, &layout, &err), 0);
    /* wte, wpe, ln_1 fill 512; the 768 of c_attn opens shard 1 with its bias; c_fc and c_proj of the MLP are
     * larger than a shard and have their own at once: numbers 1 and 3, before the shards being filled.
     */
    for (int i = 0; i < model->param_count; i++)
        assert_int_equal(layout.tensor[i] >= layout.first[layout.tensors.item[layout.tensor[i]].file], 1);
    assert_int_equal(layout.tensors.item[layout.tensor[0]].file, 0);
    for (int f = 0; f < layout.file_count; f++) {
        int64_t bytes = 0;
        for (int i = layout.first[f]; i < layout.first[f + 1]; i++) {
            assert_int_equal(layout.tensors.item[i].file, f);
            bytes += layout.tensors.item[i].bytes;
        }
        assert_true(bytes > 0 && (bytes <= 1000 || layout.first[f + 1] - layout.first[f] == 1));
    }
    (void)layout_file_name(&layout, 1, name);
    assert_true(layout_owns(name));
    scope_buffer index = {0};
    assert_int_equal(layout_index(&layout, &index, &err), 0);
    assert_non_null(strstr(index.data, "\"total_size\": 7488\n"));
    assert_non_null(strstr(index.data, "\"transformer.wte.weight\": \"model-00001-of-"));
    layout_free(&layout);
}

static void only_our_own_files_are_ours(void **state)
{
    (void)state;
    static const char *const ours[] = {"model.safetensors", "model.safetensors.index.json",
                                       "model-00001-of-00003.safetensors"};
    static const char *const others[] = {"model-1.safetensors", "model-00001-of-00003.safetensors.bak",
                                         "mymodel.safetensors", "config.json", "model-a-of-b.safetensors"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        assert_true(layout_owns(ours[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(layout_owns(others[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_with_and_without_the_head_are_matched),
        cmocka_unit_test(what_does_not_fit_is_listed),
        cmocka_unit_test(survives_no_memory),
        cmocka_unit_test(shards_are_filled_in_the_order_of_transformers),
        cmocka_unit_test(only_our_own_files_are_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
