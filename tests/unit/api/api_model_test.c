/* api_model_test.c - models by handles: a fault of a page is reported in one line, a page that is
 * GPT-2's is GPT-2 to the last bit, and every operation of the table has its function. */
#include "tests/support/cmocka_all.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "runtime/include/muster.h"
#include "runtime/model/operation.h"

enum { C = 16, VOCABULARY = 24, POSITIONS = 8, HEADS = 2, LAYERS = 2 };

/* ---- faults of a model ---- */

struct page {
    struct muster_model *m;
    int32_t tokens, targets, table, x;
};

/* Inputs, and an open embedding layer with its value in x. */
static struct page begin(void)
{
    struct page p = {.m = muster_model_new("mine", NULL)};
    p.tokens = muster_model_input(p.m, "tokens", MUSTER_I32, 1);
    p.targets = muster_model_input(p.m, "targets", MUSTER_I32, 1);
    muster_layer(p.m, "embedding");
    p.table = muster_parameter(p.m, "table", VOCABULARY, C, MUSTER_NORMAL, 0.02, 0);
    p.x = muster_embedding(p.m, p.tokens, p.table, -1);
    return p;
}

static void end(struct page *p)
{
    muster_layer(p->m, "head");
    muster_cross_entropy(p->m, p->x, p->table, p->targets);
}

static void right(struct page *p)
{
    muster_layer(p->m, "mlp");
    int32_t h = muster_activation(p->m, muster_linear(p->m, p->x, 32, "up", 0.02, 0), "relu");
    p->x = muster_add(p->m, p->x, muster_linear(p->m, h, C, "down", 0.02, MUSTER_NO_BIAS));
    end(p);
}

/* Planes of 2 x 4 x 2, normalised; and as other planes than the value has. */
static void normalised(struct page *p, int32_t height)
{
    const int32_t shape[] = {2, height, 2};
    muster_layer(p->m, "norm");
    p->x = muster_batch_norm2d(p->m, p->x, shape, "bn", 1e-5, 0.1);
    end(p);
}

static void right_planes(struct page *p)
{
    normalised(p, 4);
}

static void other_planes(struct page *p)
{
    normalised(p, 3);
}

static void widths(struct page *p)
{
    muster_layer(p->m, "mlp");
    p->x = muster_add(p->m, p->x, muster_linear(p->m, p->x, 32, "up", 0.02, 0));
    end(p);
}

static void dangling_value(struct page *p)
{
    muster_layer(p->m, "mlp");
    (void)muster_linear(p->m, p->x, 32, "unused", 0.02, 0);
    p->x = muster_linear(p->m, p->x, C, "used", 0.02, 0);
    end(p);
}

static void dangling_layer(struct page *p)
{
    muster_layer(p->m, "mlp");
    (void)muster_linear(p->m, p->x, C, "unused", 0.02, 0);
    end(p);
}

static void dangling_parameter(struct page *p)
{
    (void)muster_parameter(p->m, "spare", 4, 0, MUSTER_ZERO, 0, 0);
    end(p);
}

static void dangling_input(struct page *p)
{
    (void)muster_model_input(p->m, "lengths", MUSTER_I32, 1);
    end(p);
}

static void twice_with_other_shape(struct page *p)
{
    (void)muster_parameter(p->m, "table", VOCABULARY, C + 1, MUSTER_NORMAL, 0.02, 0);
    end(p);
}

static void twice_with_other_flags(struct page *p)
{
    (void)muster_parameter(p->m, "table", VOCABULARY, C, MUSTER_NORMAL, 0.02, MUSTER_FROZEN);
    end(p);
}

static void operation_twice(struct page *p)
{
    muster_layer(p->m, "mlp");
    p->x = muster_linear(p->m, muster_linear(p->m, p->x, C, "fc", 0.02, 0), C, "fc", 0.02, 0);
    end(p);
}

static void no_loss(struct page *p)
{
    muster_layer(p->m, "mlp");
    (void)muster_linear(p->m, p->x, C, "fc", 0.02, 0);
}

static void after_the_loss(struct page *p)
{
    end(p);
    muster_layer(p->m, "more");
    (void)muster_linear(p->m, p->x, C, "fc", 0.02, 0);
    end(p);
}

static void inside_of_another_layer(struct page *p)
{
    muster_layer(p->m, "mlp");
    int32_t h = muster_linear(p->m, p->x, C, "fc", 0.02, 0);
    (void)muster_activation(p->m, h, "relu");
    muster_layer(p->m, "next");
    p->x = muster_linear(p->m, h, C, "fc", 0.02, 0);
    end(p);
}

static void empty_layer(struct page *p)
{
    muster_layer(p->m, "nothing");
    end(p);
}

static void no_layer(struct page *p)
{
    muster_model_free(p->m);
    p->m = muster_model_new("mine", NULL);
    (void)muster_parameter(p->m, "table", VOCABULARY, C, MUSTER_NORMAL, 0.02, 0);
}

static void all_frozen(struct page *p)
{
    muster_model_free(p->m);
    p->m = muster_model_new("mine", NULL);
    p->tokens = muster_model_input(p->m, "tokens", MUSTER_I32, 1);
    p->targets = muster_model_input(p->m, "targets", MUSTER_I32, 1);
    muster_layer(p->m, "embedding");
    p->table = muster_parameter(p->m, "table", VOCABULARY, C, MUSTER_NORMAL, 0.02, MUSTER_FROZEN);
    p->x = muster_embedding(p->m, p->tokens, p->table, -1);
    end(p);
}

static void own_targets(struct page *p)
{
    muster_layer(p->m, "head");
    muster_cross_entropy(p->m, p->x, p->table, p->tokens);
}

static void strange_activation(struct page *p)
{
    p->x = muster_activation(p->m, p->x, "gelu_fast");
    end(p);
}

static void strange_handle(struct page *p)
{
    p->x = muster_add(p->m, p->x, 99999);
    end(p);
}

static void heads(struct page *p)
{
    muster_layer(p->m, "attention");
    p->x =
        muster_attention_packed(p->m, muster_linear(p->m, p->x, 3 * C, "qkv", 0.02, 0), 5, 5, MUSTER_CAUSAL);
    end(p);
}

static void other_types(struct page *p)
{
    (void)muster_model_input(p->m, "image", 7, 3072);
    end(p);
}

static void pairs_of_numbers(struct page *p)
{
    (void)muster_model_input(p->m, "pairs", MUSTER_I32, 2);
    end(p);
}

static void embedded_values(struct page *p)
{
    p->x = muster_embedding(p->m, muster_model_input(p->m, "image", MUSTER_U8, 1), p->table, -1);
    end(p);
}

static void values_of_tokens(struct page *p)
{
    p->x = muster_values(p->m, p->tokens);
    end(p);
}

/* x: a row of 3 elements of the batch, next to the embedding's 16; wanted: 4. */
static void regression(struct page *p, int64_t width, bool own)
{
    muster_model_free(p->m);
    p->m = muster_model_new("mine", NULL);
    int32_t x = muster_model_input(p->m, "x", MUSTER_F32, 3);
    int32_t wanted = own ? x : muster_model_input(p->m, "wanted", MUSTER_F32, 4);
    muster_layer(p->m, "up");
    p->x = muster_linear(p->m, muster_values(p->m, x), width, "fc", 0.02, 0);
    muster_layer(p->m, "head");
    (void)muster_squared_error(p->m, p->x, wanted);
}

static void right_regression(struct page *p)
{
    regression(p, 4, false);
}

static void regression_of_another_width(struct page *p)
{
    regression(p, 5, false);
}

static void regression_to_itself(struct page *p)
{
    regression(p, 3, true);
}

/* The mean of what attention sees, against a label for each sample. */
static void ends_in_samples(struct page *p, bool loss_of_positions, bool attention_behind)
{
    int32_t lengths = muster_model_sample_input(p->m, "lengths", MUSTER_I32, 1);
    int32_t labels = muster_model_sample_input(p->m, "labels", MUSTER_I32, 1);
    muster_layer(p->m, "encoder");
    int32_t h = muster_linear(p->m, p->x, 3 * C, "qkv", 0.02, 0);
    h = muster_within(p->m, muster_attention_packed(p->m, h, 2, 2, 0), lengths);
    h = muster_mean(p->m, h, lengths);
    if (attention_behind)
        h = muster_attention_packed(p->m, muster_linear(p->m, h, 3 * C, "more", 0.02, 0), 2, 2, 0);
    muster_layer(p->m, "head");
    (void)muster_classes(p->m, h, 3, "fc", loss_of_positions ? p->targets : labels);
}

static void of_samples(struct page *p)
{
    ends_in_samples(p, false, false);
}

static void of_samples_against_positions(struct page *p)
{
    ends_in_samples(p, true, false);
}

static void attention_of_samples(struct page *p)
{
    ends_in_samples(p, false, true);
}

static void within_no_attention(struct page *p)
{
    int32_t lengths = muster_model_sample_input(p->m, "lengths", MUSTER_I32, 1);
    muster_layer(p->m, "mlp");
    p->x = muster_within(p->m, muster_linear(p->m, p->x, C, "fc", 0.02, 0), lengths);
    end(p);
}

static void lengths_of_positions(struct page *p)
{
    int32_t lengths = muster_model_input(p->m, "lengths", MUSTER_I32, 1);
    muster_layer(p->m, "mlp");
    p->x = muster_mean(p->m, p->x, lengths);
    end(p);
}

static const struct {
    void (*write)(struct page *page);
    const char *error; /* NULL: nothing is wrong */
} pages[] = {
    {right, NULL},
    {widths, "mine: layer mlp: add reads values of 16 and 32 elements; they must be equal"},
    {dangling_value, "mine: layer mlp: the linear of mlp.unused.weight is read by no operation"},
    {dangling_layer, "mine: the result of layer mlp is read by no later layer"},
    {dangling_parameter, "mine: parameter embedding.spare is used by no operation"},
    {dangling_input, "mine: input lengths is read by no operation"},
    {twice_with_other_shape,
     "mine: layer embedding: parameter embedding.table is declared as (24, 17), but it is (24, 16) already"},
    {twice_with_other_flags,
     "mine: layer embedding: parameter embedding.table is declared with the flags 1, but it has the flags 0 "
     "already"},
    {operation_twice,
     "mine: layer mlp: parameter mlp.fc.weight is there already; to tie it, take the function ..._by"},
    {of_samples, "mine: input targets is read by no operation"},
    {of_samples_against_positions,
     "mine: layer head: cross_entropy reads targets of the batch, which is not one i32 a sample"},
    {attention_of_samples, "mine: layer encoder: attention_packed reads neighbouring positions, and its "
                           "value has a row for each "
                           "sample"},
    {within_no_attention, "mine: layer mlp: value 1 is no attention, and sees no positions"},
    {lengths_of_positions, "mine: layer mlp: mean reads lengths of the batch, which is not one i32 a sample"},
    {no_loss, "mine has no loss: its last layer must end with cross_entropy or squared_error"},
    {after_the_loss, "mine: layer more comes after the loss, which ends a model"},
    {inside_of_another_layer,
     "mine: layer next: linear reads a value inside of layer mlp; only its result is there for other layers"},
    {empty_layer, "mine: layer nothing: it has no operation"},
    {no_layer, "mine: an operation was written outside of a layer"},
    {all_frozen, "mine: all 1 parameters are frozen: there is nothing to train"},
    {own_targets,
     "mine: input tokens is read by embedding and by cross_entropy, where -1 stands for no target; "
     "declare an input for each"},
    {strange_activation,
     "mine: layer embedding: activation 'gelu_fast'; there are gelu_tanh, gelu, silu, relu, "
     "tanh and sigmoid"},
    {strange_handle, "mine: layer embedding: add reads value 99999, which is none"},
    {heads, "mine: layer attention: attention_packed: 48 elements are not 5 + 2 x 5 heads of one size"},
    {other_types, "mine: layer embedding: input image has the type 7; types are 1 to 4"},
    {pairs_of_numbers,
     "mine: layer embedding: input pairs has 2 elements of MUSTER_I32; operations read one a position"},
    {embedded_values,
     "mine: layer embedding: embedding reads image of the batch, which is not one i32 a position"},
    {values_of_tokens, "mine: layer embedding: values reads tokens of the batch, which is not a row of f32, "
                       "f64 or u8 for each position"},
    {right_planes, NULL},
    {other_planes, "mine: layer norm: batch_norm2d reads 16 elements as 2 planes of 3 x 2"},
    {right_regression, NULL},
    {regression_of_another_width,
     "mine: layer head: squared_error compares rows of 5 elements with wanted of "
     "the batch, which is 4 of f32"},
    {regression_to_itself, "mine: input x is read by values and by squared_error, where NaN stands for no "
                           "target; declare an input for each"},
};

static void what_is_wrong_is_one_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        struct muster_error err = {0};
        struct page page = begin();
        pages[i].write(&page);
        int result = muster_model_check(page.m, &err);
        assert_int_equal(result, pages[i].error ? -1 : 0);
        if (pages[i].error && strcmp(err.text, pages[i].error) != 0)
            fail_msg("'%s' is not '%s'", err.text, pages[i].error);
        /* complete: nothing more is added, and every user of the model gets the same error */
        assert_int_equal(muster_layer(page.m, "late"), -1);
        struct muster_error again = {0};
        struct muster_trainer *trainer = muster_trainer_open(NULL, page.m, NULL, &again);
        if (pages[i].error)
            assert_string_equal(again.text, err.text);
        assert_int_equal(trainer == NULL, pages[i].error != NULL);
        muster_trainer_close(&trainer);
        muster_model_free(page.m);
    }
    struct muster_error err = {0};
    assert_int_equal(muster_model_check(NULL, &err), -1);
    muster_model_free(NULL);
}

/* ---- every operation ---- */

static void every_operation_has_its_function(void **state)
{
    (void)state;
#define HAS_FUNCTION(name)                                                                                   \
    if (!dlsym(RTLD_DEFAULT, "muster_" #name))                                                               \
        fail_msg("libmuster.so has no muster_" #name);
    OPERATIONS(HAS_FUNCTION)
#undef HAS_FUNCTION
}

/* ---- GPT-2 by handles ---- */

static int32_t block(struct muster_model *m, int32_t x, int index)
{
    const double std = 0.02, residual = 0.02 / 2; /* sqrt(2 x 2 layers) */
    char name[16];
    (void)snprintf(name, sizeof name, "h.%d", index);
    muster_layer(m, name);
    int32_t h = muster_layer_norm(m, x, "ln_1", 1e-5, 0);
    h = muster_attention_packed(m, muster_linear(m, h, 3 * C, "attn.c_attn", std, 0), HEADS, HEADS,
                                MUSTER_CAUSAL);
    x = muster_add(m, x, muster_linear(m, h, C, "attn.c_proj", residual, 0));
    h = muster_layer_norm(m, x, "ln_2", 1e-5, 0);
    h = muster_activation(m, muster_linear(m, h, 4 * C, "mlp.c_fc", std, 0), "gelu_tanh");
    return muster_add(m, x, muster_linear(m, h, C, "mlp.c_proj", residual, 0));
}

static struct muster_model *gpt2_by_hand(void)
{
    struct muster_model *m = muster_model_new("by hand", NULL);
    int32_t tokens = muster_model_input(m, "tokens", MUSTER_I32, 1);
    int32_t targets = muster_model_input(m, "targets", MUSTER_I32, 1);
    muster_layer(m, "embedding");
    muster_prefix(m, "");
    int32_t wte = muster_parameter(m, "wte.weight", VOCABULARY, C, MUSTER_NORMAL, 0.02, 0);
    int32_t wpe = muster_parameter(m, "wpe.weight", POSITIONS, C, MUSTER_NORMAL, 0.02, 0);
    int32_t x = muster_embedding(m, tokens, wte, wpe);
    for (int i = 0; i < LAYERS; i++)
        x = block(m, x, i);
    muster_layer(m, "head");
    muster_prefix(m, "");
    muster_cross_entropy(m, muster_layer_norm(m, x, "ln_f", 1e-5, 0), wte, targets);
    return m;
}

static const char *const settings[] = {"training.micro_batch=2",     "training.global_batch=4",
                                       "training.sequence_length=8", "training.threads=1",
                                       "training.warmup_steps=2",    NULL};

static void losses_of(struct muster_model *m, int steps, double *losses)
{
    struct muster_error err = {0};
    struct muster_trainer *trainer = muster_trainer_open(NULL, m, settings, &err);
    if (!trainer)
        fail_msg("%s", err.text);
    int32_t tokens[4 * POSITIONS], targets[4 * POSITIONS];
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < 4 * POSITIONS; i++) {
            tokens[i] = (i * 5 + step * 7) % VOCABULARY;
            targets[i] = (tokens[i] * 3 + 1) % VOCABULARY;
        }
        struct muster_result result = {.size = sizeof result};
        assert_int_equal(muster_trainer_train(trainer, (const void *[]){tokens, targets}, 4, &result, &err),
                         0);
        losses[step] = result.loss;
    }
    muster_trainer_close(&trainer);
}

static void a_page_of_gpt2_is_gpt2(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct muster_model *ours = gpt2_by_hand();
    const char *const sizes[] = {"model.layers=2",      "model.channels=16", "model.heads=2",
                                 "model.vocabulary=24", "model.positions=8", NULL};
    struct muster_model *theirs = muster_model_open("gpt2", sizes, &err);
    if (!theirs)
        fail_msg("%s", err.text);
    double a[6], b[6];
    losses_of(ours, 6, a);
    losses_of(theirs, 6, b);
    assert_memory_equal(a, b, sizeof a);
    assert_true(a[5] < a[0]);
    muster_model_free(ours);
    muster_model_free(theirs);
}

static void built_in_models_have_settings(void **state)
{
    (void)state;
    static const struct {
        const char *architecture, *setting, *error;
    } wrong[] = {
        {"gpt3", NULL, "gpt3"},
        {"gpt3", "model.layers=2",
         "setting 'model.layers=2' has no effect: the files at gpt3 have the sizes"},
        {"gpt2", "model.layer=2", "unknown setting 'model.layer'; did you mean 'model.layers'?"},
        {"gpt2", "model.layers", "setting 'model.layers': write key=value"},
        {"gpt2", "model.layers=0", "model.layers: '0' is outside 1 to 1024"},
        {"gpt2", "model.kv_heads=2", "model.kv_heads has no effect with model.architecture: gpt2"},
        {"gpt2", "model.heads=3", "model.channels 128 is not a multiple of model.heads 3"},
        {"gpt2", "training.steps=3", "setting 'training.steps' has no effect here: trainers take it"},
        {"llama", "data.path=x", "setting 'data.path' has no effect here: it is of the program muster-train"},
        {"llama", "model.architecture=gpt2", "setting model.architecture differs from 'llama'"},
        {"simple_cnn", "model.blocks=2", "model.blocks has no effect with model.architecture: simple_cnn"},
        {"resnet", "model.stages=7", "model.stages: '7' is outside 1 to 6"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct muster_error err = {0};
        const char *const texts[] = {wrong[i].setting, NULL};
        assert_null(muster_model_open(wrong[i].architecture, texts, &err));
        if (!strstr(err.text, wrong[i].error))
            fail_msg("'%s' does not contain '%s'", err.text, wrong[i].error);
    }
    struct muster_model *llama =
        muster_model_open("llama", (const char *const[]){"model.tied=true", NULL}, NULL);
    assert_non_null(llama);
    assert_true(muster_model_logits(llama) > 0);
    assert_int_equal(muster_model_check(llama, NULL), 0);
    muster_model_free(llama);
    struct muster_model *resnet = muster_model_open("resnet", NULL, NULL);
    assert_int_equal(muster_model_check(resnet, NULL), 0);
    muster_model_free(resnet);
}

/* One document a sample has the losses of the model that is not packed; two see nothing of each other. */
static void documents_share_rows(void **state)
{
    (void)state;
    enum { T = 8 };
    struct muster_error err = {0};
    const char *const sizes[] = {"model.layers=2",      "model.channels=16", "model.heads=2",
                                 "model.vocabulary=24", "model.positions=8", NULL};
    static const char *const settings[] = {"training.sequence_length=8", "training.micro_batch=2",
                                           "training.threads=1", NULL};
    static const int32_t tokens[3][2 * T] = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7},
                                             {1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 7, 8, 0, 0, 0},
                                             {1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}};
    static const int32_t targets[3][2 * T] = {{2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8},
                                              {2, 3, 4, -1, -1, -1, -1, -1, 5, 6, 7, 8, 9, -1, -1, -1},
                                              {2, 3, 4, 5, 6, 7, 8, 9, -1, -1, -1, -1, -1, -1, -1, -1}};
    static const int32_t positions[3][2 * T] = {{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7},
                                                {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7},
                                                {0, 1, 2, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0}};
    double loss[2][3];
    for (int packed = 0; packed < 2; packed++) {
        struct muster_model *model = muster_model_open("gpt2", sizes, &err);
        if (!model || (packed && muster_model_pack(model, &err) < 0))
            fail_msg("%s", err.text);
        struct muster_trainer *trainer = muster_trainer_open(NULL, model, settings, &err);
        if (!trainer)
            fail_msg("%s", err.text);
        for (int i = 0; i < 3; i++) {
            const void *arrays[] = {tokens[i], targets[i], positions[i]};
            double sums[2];
            if (muster_trainer_forward(trainer, arrays, 2, -1, NULL, sums, &err) < 0)
                fail_msg("%s", err.text);
            loss[packed][i] = sums[0];
        }
        for (int i = 0; packed && i < 3; i++) {
            static const int32_t wrong[3][T] = {{1}, {0, 1, 3}, {0, 1, 2, 8}};
            const void *arrays[] = {tokens[0], targets[0], wrong[i]};
            double sums[2];
            assert_int_equal(muster_trainer_forward(trainer, arrays, 1, -1, NULL, sums, &err), -1);
            assert_non_null(strstr(err.text, i == 2 ? "positions[3] is 8, but must be 0 to 7"
                                             : i    ? "positions[2] is 3, but must be 0, at the begin"
                                                    : "positions[0] is 1, but must be 0"));
        }
        muster_trainer_close(&trainer);
        muster_model_free(model);
    }
    for (int i = 0; i < 2; i++) /* the row of two documents against two rows */
        assert_true(fabs(loss[1][i] - loss[0][i]) < 1e-5 * loss[0][i]);
    assert_true(fabs(loss[1][2] - loss[0][1]) < 1e-5 * loss[0][1]);
    assert_true(fabs(loss[0][2] - loss[0][1]) > 1e-4 * loss[0][1]);
    struct muster_model *encoder = muster_model_open("text_encoder", NULL, &err);
    assert_int_equal(muster_model_pack(encoder, &err), -1);
    assert_non_null(strstr(err.text, "has the operation attention"));
    assert_non_null(strstr(err.text, "it sees positions after its own"));
    muster_model_free(encoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_one_line), cmocka_unit_test(every_operation_has_its_function),
        cmocka_unit_test(a_page_of_gpt2_is_gpt2),    cmocka_unit_test(built_in_models_have_settings),
        cmocka_unit_test(documents_share_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
