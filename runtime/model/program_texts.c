/* program_texts.c - the operations on texts of different lengths as a page writes them. See program.h. */
#include "proto/base/error.h"
#include "runtime/model/program_internal.h"

/* The input has one i32 a sample, which becomes the length of the sample. */
static bool take_lengths(struct writer *w, const struct operation *op, int input)
{
    if (!program_integers(w, op, input, true))
        return false;
    w->model->inputs[input].lengths = true;
    return true;
}

int program_mean(struct writer *w, int in, int lengths)
{
    const struct operation *op = &operation_mean;
    if (!program_step_fits(w, op, &in, 1) || !take_lengths(w, op, lengths))
        return -1;
    return program_step_add(w, op, &(struct operation_settings){.input = lengths}, &in, 1, -1, -1,
                            w->program->values[in].width, NULL);
}

int program_first(struct writer *w, int in)
{
    const struct operation *op = &operation_first;
    if (!program_step_fits(w, op, &in, 1))
        return -1;
    return program_step_add(w, op, &(struct operation_settings){0}, &in, 1, -1, -1,
                            w->program->values[in].width, NULL);
}

int program_within(struct writer *w, int attention, int lengths)
{
    if (!program_is_open(w))
        return -1;
    struct program *p = w->program;
    const int at = attention >= 0 && attention < p->value_count ? p->values[attention].step : -1;
    struct program_step *step = at >= 0 ? &p->steps[at] : NULL;
    if (!step || step->out != attention ||
        (step->op != &operation_attention && step->op != &operation_attention_packed))
        return writer_fail(w, MUSTER_E_INVALID, "value %d is no attention, and sees no positions", attention);
    if (!take_lengths(w, step->op, lengths))
        return -1;
    step->settings.input = lengths;
    step->settings.by_length = true;
    return attention;
}

static bool sees_behind(const struct program_step *step)
{
    const bool attends = step->op == &operation_attention || step->op == &operation_attention_packed;
    return attends && !step->settings.causal && !step->settings.by_length;
}

bool program_ends_with_lengths(const struct model *model)
{
    bool lengths = false, ends = true;
    for (int i = 0; i < model->input_count; i++)
        lengths |= model->inputs[i].lengths;
    for (int l = 0; l < model->layer_count && lengths; l++) {
        const struct program *p = model->layers[l].config;
        if (model->layers[l].ops != &program_ops)
            return false;
        for (int s = 0; s < p->step_count; s++) {
            const struct program_step *step = &p->steps[s];
            ends = ends && !sees_behind(step) && (!step->op->loss || p->values[step->in[0]].sample);
        }
    }
    return lengths && ends;
}
