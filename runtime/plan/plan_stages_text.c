/* plan_stages_text.c - the stages of a plan for people and as JSON: layers, bytes, busy and idle time. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "runtime/plan/plan_stages.h"

static int predict_stages(const struct model *model, const struct plan *plan, struct plan_stages_cost *cost,
                          struct muster_error *err)
{
    struct plan_stages stages = {0};
    if (plan_stages_build(model, &plan->options, &stages, err) < 0)
        return -1;
    const int result = plan_stages_run(model, &stages, NULL, cost, err);
    plan_stages_free(&stages);
    return result;
}

/* The layers of a stage: "h.0 to h.2, h.6 to h.8". */
static const char *layers_of(const struct model *model, struct mesh mesh, int stage, char *text, size_t size)
{
    size_t used = 0;
    *text = '\0';
    for (int l = 0, last; l < model->layer_count && used < size; l = last + 1) {
        for (last = l;
             last + 1 < model->layer_count && model->layers[last + 1].part == model->layers[l].part;)
            last++;
        if (plan_stage_of(mesh, model->layers[l].part) != stage)
            continue;
        (void)snprintf(text + used, size - used, "%s%s to %s", used ? ", " : "", model->layers[l].name,
                       model->layers[last].name);
        used = strlen(text);
    }
    return text;
}

/* (p - 1) / (v*m + p - 1): stages of v parts, equal times and free transfers. */
static double formula_idle(const struct plan *plan)
{
    const double before = plan->options.mesh.side[SIDE_PIPELINE] - 1;
    return before / ((double)plan->options.chunks * plan->options.micro_batches + before);
}

int plan_stages_text(const struct model *model, const struct plan *plan, struct buffer *out)
{
    struct muster_error err = {0};
    struct plan_stages_cost cost;
    if (predict_stages(model, plan, &cost, &err) < 0) {
        (void)buffer_printf(out, "stages: %s\n", err.text);
        return out->failed || err.code == MUSTER_E_NOMEM ? -1 : 0;
    }
    (void)buffer_printf(out, "stages, with the times of an ordinary core (nothing waits for ever)\n");
    for (int s = 0; s < plan->options.mesh.side[SIDE_PIPELINE]; s++) {
        const struct plan_stage_cost *stage = &cost.stage[s];
        char bytes[32], layers[512];
        (void)buffer_printf(out, "  %3d  %s: %s a rank, busy %.3g ms, idle %.3g ms (%.1f%%)\n", s,
                            layers_of(model, plan->options.mesh, s, layers, sizeof layers),
                            text_format_bytes(bytes, sizeof bytes, stage->bytes), stage->busy_s * 1e3,
                            (cost.step_s - stage->busy_s) * 1e3, stage->idle * 100);
    }
    (void)buffer_printf(out, "  idle share %.1f%%; (p-1)/(%sm+p-1) is %.1f%%\n", cost.idle * 100,
                        plan->options.chunks > 1 ? "v*" : "", formula_idle(plan) * 100);
    return out->failed ? -1 : 0;
}

int plan_stages_json(const struct model *model, const struct plan *plan, struct buffer *out)
{
    struct muster_error err = {0};
    struct plan_stages_cost cost;
    if (predict_stages(model, plan, &cost, &err) < 0) {
        (void)buffer_text(out, " \"stages\": null, \"stages_error\": ");
        (void)buffer_json_string(out, err.text);
        (void)buffer_text(out, ",\n");
        return out->failed || err.code == MUSTER_E_NOMEM ? -1 : 0;
    }
    (void)buffer_text(out, " \"stages\": [");
    for (int s = 0; s < plan->options.mesh.side[SIDE_PIPELINE]; s++) {
        int first = -1, last = 0;
        for (int l = 0; l < model->layer_count; l++)
            if (plan_stage_of(plan->options.mesh, model->layers[l].part) == s) {
                first = first < 0 ? l : first;
                last = l;
            }
        char layers[512];
        (void)buffer_printf(out, "%s{\"first\": ", s ? ",\n  " : "");
        (void)buffer_json_string(out, model->layers[first].name);
        (void)buffer_text(out, ", \"last\": ");
        (void)buffer_json_string(out, model->layers[last].name);
        (void)buffer_text(out, ", \"layers\": ");
        (void)buffer_json_string(out, layers_of(model, plan->options.mesh, s, layers, sizeof layers));
        (void)buffer_printf(out, ", \"bytes\": %" PRId64 ", \"busy_s\": %.9g, \"idle\": %.9g}",
                            cost.stage[s].bytes, cost.stage[s].busy_s, cost.stage[s].idle);
    }
    (void)buffer_printf(out, "],\n \"step_s\": %.9g, \"idle\": %.9g,\n", cost.step_s, cost.idle);
    return out->failed ? -1 : 0;
}
