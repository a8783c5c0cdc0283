/* api_model_check.c - errors of a model as a whole; see api_model.h. */
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/api/api_model.h"
#include "runtime/model/program_internal.h"

static int check_layers(const struct model *model, struct muster_error *err)
{
    const char *name = model->name;
    for (int l = 0; l < model->layer_count; l++) {
        const struct program *p = model->layers[l].config;
        bool last = l == model->layer_count - 1, read = false;
        if (last && p->result >= 0)
            return error_set(err, MUSTER_E_INVALID,
                             "%s has no loss: its last layer must end with cross_entropy or squared_error",
                             name);
        if (!last && p->result < 0)
            return error_set(err, MUSTER_E_INVALID, "%s: layer %s comes after the loss, which ends a model",
                             name, model->layers[l + 1].name);
        for (int after = l + 1; after < model->layer_count; after++)
            for (int i = 0; i < model->layers[after].source_count; i++)
                read |= model->layers[after].source[i] == l;
        if (!last && !read)
            return error_set(err, MUSTER_E_INVALID, "%s: the result of layer %s is read by no later layer",
                             name, model->layers[l].name);
    }
    return 0;
}

static int check_parameters(const struct model *model, struct muster_error *err)
{
    bool trains = false;
    scope_free bool *used = mem_calloc((size_t)model->param_count, sizeof *used);
    if (!used)
        return error_set(err, MUSTER_E_NOMEM, "no memory to check %s", model->name);
    for (int l = 0; l < model->layer_count; l++) {
        const struct program *p = model->layers[l].config;
        for (int s = 0; s < p->step_count; s++)
            for (int i = 0; i < OPERATION_PARAMS; i++)
                if (p->steps[s].param[i] >= 0)
                    used[model->layers[l].param[p->steps[s].param[i]]] = true;
    }
    for (int i = 0; i < model->param_count; i++) {
        if (!used[i])
            return error_set(err, MUSTER_E_INVALID, "%s: parameter %s is used by no operation", model->name,
                             model->params[i].name);
        trains |= model->params[i].trainable && !model->params[i].statistic;
    }
    if (!trains)
        return error_set(err, MUSTER_E_INVALID, "%s: all %d parameters are frozen: there is nothing to train",
                         model->name, model->param_count);
    return 0;
}

static int check_inputs(const struct model *model, struct muster_error *err)
{
    const struct operation *reader[BATCH_INPUTS] = {0}, *loss[BATCH_INPUTS] = {0};
    for (int l = 0; l < model->layer_count; l++) {
        const struct program *p = model->layers[l].config;
        for (int s = 0; s < p->step_count; s++) {
            const struct operation *op = p->steps[s].op;
            if (op->batch || p->steps[s].settings.by_length)
                (op->loss ? loss : reader)[p->steps[s].settings.input] = op;
        }
    }
    for (int i = 0; i < model->input_count; i++) {
        if (!reader[i] && !loss[i])
            return error_set(err, MUSTER_E_INVALID, "%s: input %s is read by no operation", model->name,
                             model->inputs[i].name);
        if (reader[i] && loss[i])
            return error_set(err, MUSTER_E_INVALID,
                             "%s: input %s is read by %s and by %s, where %s stands for no "
                             "target; declare an input for each",
                             model->name, model->inputs[i].name, reader[i]->name, loss[i]->name,
                             model->inputs[i].dtype == DTYPE_I32 ? "-1" : "NaN");
    }
    return 0;
}

int api_model_check_page(const struct model *model, struct muster_error *err)
{
    if (check_layers(model, err) < 0 || check_parameters(model, err) < 0)
        return -1;
    return check_inputs(model, err);
}
