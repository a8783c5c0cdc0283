/* pack.c - documents in one row: the operations that know positions read them from the batch. See program.h.
 */
#include <string.h>

#include "proto/base/error.h"
#include "runtime/model/program_internal.h"

static bool attends(const struct program_step *step)
{
    return step->op == &operation_attention || step->op == &operation_attention_packed;
}

static bool reads_positions(const struct program_step *step)
{
    return attends(step) || step->op == &operation_rotary ||
           (step->op == &operation_embedding && step->param[1] >= 0);
}

/* Whether documents of a row may be apart in this step; an error names the operation. */
static int check_step(const struct layer_desc *layer, const struct program *p,
                      const struct program_step *step, struct muster_error *err)
{
    const char *why = attends(step) && !step->settings.causal ? "it sees positions after its own"
                      : step->op == &operation_mean           ? "it takes the mean of a whole sample"
                      : step->op->loss && p->values[step->in[0]].sample ? "it has one target a sample"
                                                                        : NULL;
    return why ? error_set(err, MUSTER_E_UNSUPPORTED,
                           "documents cannot share a row: layer %s has the operation %s, and %s", layer->name,
                           step->op->name, why)
               : 0;
}

static int check_layers(const struct model *model, struct muster_error *err)
{
    for (int l = 0; l < model->layer_count; l++) {
        const struct layer_desc *layer = &model->layers[l];
        if (layer->ops != &program_ops)
            return error_set(err, MUSTER_E_UNSUPPORTED,
                             "documents cannot share a row: layer %s is no program of operations",
                             layer->name);
        const struct program *p = layer->config;
        for (int s = 0; s < p->step_count; s++)
            if (check_step(layer, p, &p->steps[s], err) < 0)
                return -1;
    }
    return 0;
}

int model_pack(struct model *model, struct muster_error *err)
{
    if (check_layers(model, err) < 0)
        return -1;
    for (int i = 0; i < model->input_count; i++)
        if (!strcmp(model->inputs[i].name, MODEL_POSITIONS))
            return error_set(err, MUSTER_E_INVALID, "%s has an input '%s' already", model->name,
                             model->inputs[i].name);
    const int input = model_add_input(model, MODEL_POSITIONS, DTYPE_I32, true, 1);
    if (input < 0)
        return error_set(err, MUSTER_E_LIMIT, "%s has %d arrays of a batch, and no room for '%s'",
                         model->name, model->input_count, MODEL_POSITIONS);
    model->inputs[input].places = true;
    for (int l = 0; l < model->layer_count; l++) {
        struct layer_desc *layer = &model->layers[l];
        struct program *p = (struct program *)layer->config; /* the model's own, as yet read by none */
        for (int s = 0; s < p->step_count; s++) {
            if (!reads_positions(&p->steps[s]))
                continue;
            p->steps[s].settings.documents = input + 1;
            layer->inputs |= 1U << input;
            if (p->steps[s].op == &operation_embedding)
                layer->lookup = 0; /* rows of two tables by two indices are not exchanged as rows */
        }
    }
    return 0;
}
