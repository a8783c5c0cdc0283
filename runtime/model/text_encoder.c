/* text_encoder.c - the encoder of texts as a page. */
#include "runtime/model/architectures.h"

#include <math.h>

#include "proto/base/error.h"
#include "runtime/model/program.h"

#define EPSILON  1e-5
#define INIT_STD 0.02 /* deviation of both tables' elements */

static int encoder_check(const struct text_encoder_config *c, struct muster_error *err)
{
    const struct size_limit limits[] = {
        {"vocabulary", c->vocabulary, 2, 1 << 20},  {"layers", c->layers, 1, 1024},
        {"channels", c->channels, 1, 65536},        {"heads", c->heads, 1, 1024},
        {"hidden", c->hidden, 0, 1 << 20},          {"num_classes", c->classes, 2, 65536},
        {"positions", c->max_positions, 1, 1 << 20}};
    if (writer_check_sizes(limits, sizeof limits / sizeof *limits, err) < 0)
        return -1;
    if (c->channels % c->heads)
        return error_set(err, MUSTER_E_INVALID,
                         "model: channels (%d) must be a multiple of heads (%d), so that every head has the "
                         "same size",
                         c->channels, c->heads);
    return 0;
}

/* x + attention(norm1(x)), then + linear2(relu(linear1(norm2(x)))). */
static int encoder_block(struct writer *w, const struct text_encoder_config *c, int index, int source,
                         int lengths)
{
    const int C = c->channels, layer = program_layer(w, "encoder.layers.%d", index);
    int x = program_input(w, source);
    int h = program_layer_norm(w, x, "norm1", EPSILON);
    /* drawn as torch.nn.MultiheadAttention draws it: xavier_uniform_ of all three together */
    int weight = program_parameter(w, "self_attn.in_proj_weight", 3 * (int64_t)C, C, PARAM_INIT_UNIFORM,
                                   sqrt(6.0 / (4.0 * C)));
    int bias = program_parameter(w, "self_attn.in_proj_bias", 3 * (int64_t)C, 0, PARAM_INIT_ZERO, 0);
    h = program_linear_by(w, h, weight, bias);
    h = program_within(w, program_attention_packed(w, h, c->heads, c->heads, false), lengths);
    h = program_drawn_linear(w, h, C, "self_attn.out_proj");
    x = program_add(w, x, program_dropped(w, h, c->dropout));
    h = program_layer_norm(w, x, "norm2", EPSILON);
    h = program_drawn_linear(w, h, c->hidden ? c->hidden : 4 * (int64_t)C, "linear1");
    h = program_dropped(w, program_activation(w, h, ACTIVATION_RELU), c->dropout);
    h = program_drawn_linear(w, h, C, "linear2");
    program_result(w, program_add(w, x, program_dropped(w, h, c->dropout)));
    return layer;
}

struct model *text_encoder_create(const struct text_encoder_config *c, struct muster_error *err)
{
    static const char *const metadata[] = {"architecture", "text_encoder", NULL};
    if (encoder_check(c, err) < 0)
        return NULL;
    struct writer w = writer_begin("text_encoder-%dx%d", c->layers, c->channels);
    int tokens = writer_input(&w, "tokens", DTYPE_I32, true, 1);
    int lengths = writer_input(&w, "lengths", DTYPE_I32, false, 1);
    int labels = writer_input(&w, "labels", DTYPE_I32, false, 1);

    int last = program_layer(&w, "embedding");
    program_prefix(&w, "");
    int table =
        program_parameter(&w, "embedding.weight", c->vocabulary, c->channels, PARAM_INIT_NORMAL, INIT_STD);
    int positions =
        program_parameter(&w, "positions.weight", c->max_positions, c->channels, PARAM_INIT_NORMAL, INIT_STD);
    int rows = program_embedding(&w, tokens, table, positions);
    program_result(&w, program_dropped(&w, rows, c->dropout));

    for (int i = 0; i < c->layers; i++)
        last = encoder_block(&w, c, i, last, lengths);

    (void)program_layer(&w, "classifier");
    program_prefix(&w, "");
    int h = program_layer_norm(&w, program_input(&w, last), "encoder.norm", EPSILON);
    program_classes(&w, program_mean(&w, h, lengths), c->classes, "fc", labels);

    struct model *model = writer_finish(&w, err);
    if (model) {
        model->max_positions = c->max_positions;
        model->metadata = metadata;
    }
    return model;
}
