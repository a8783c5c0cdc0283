/* param_patterns.c - see param_patterns.h. */
#include "runtime/model/param_patterns.h"

#include <fnmatch.h>

#include "proto/base/error.h"

enum { DECAYS = 0, DECAYS_NOT = 1 };

static int match_each(struct model *model, char *const *patterns, void (*take)(struct param_desc *param),
                      struct muster_error *err)
{
    for (; patterns && *patterns; patterns++) {
        int found = 0;
        for (int i = 0; i < model->param_count; i++)
            if (!model->params[i].statistic && !fnmatch(*patterns, model->params[i].name, 0)) {
                take(&model->params[i]);
                found++;
            }
        if (!found)
            return error_set(err, MUSTER_E_INVALID,
                             "'%s' matches no parameter of %s; their names are like %s", *patterns,
                             model->name, model->params[model->param_count / 2].name);
    }
    return 0;
}

static void freeze(struct param_desc *param)
{
    param->trainable = false;
}

int param_patterns_freeze(struct model *model, char *const *patterns, struct muster_error *err)
{
    if (match_each(model, patterns, freeze, err) < 0)
        return -1;
    for (int i = 0; i < model->param_count; i++)
        if (model->params[i].trainable && !model->params[i].statistic)
            return 0;
    return error_set(err, MUSTER_E_INVALID, "all %d parameters of %s are frozen: there is nothing to train",
                     model->param_count, model->name);
}

static void spare(struct param_desc *param)
{
    param->parameter_class = DECAYS_NOT;
}

int param_patterns_decay(struct model *model, enum param_decay decay, char *const *spared,
                         struct muster_error *err)
{
    for (int i = 0; i < model->param_count; i++)
        model->params[i].parameter_class =
            !model->params[i].spared && (decay == PARAM_DECAY_ALL || model->params[i].ndim >= 2) ? DECAYS
                                                                                                 : DECAYS_NOT;
    return match_each(model, spared, spare, err);
}
