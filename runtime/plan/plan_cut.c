/* plan_cut.c - see plan_cut.h. */
#include "runtime/plan/plan_cut.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/plan/plan_cost.h"

/* ---- names ---- */

/* "h.7" is number 7 after "h."; -1: it has no number. */
static int layer_number(const char *name, size_t *prefix)
{
    size_t length = strlen(name), digits = length;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9')
        digits--;
    *prefix = digits;
    int64_t number;
    return text_int64(name + digits, &number) && number < INT_MAX ? (int)number : -1;
}

static bool follows(const char *before, const char *name)
{
    size_t a, b;
    const int first = layer_number(before, &a), second = layer_number(name, &b);
    return first >= 0 && second == first + 1 && a == b && !strncmp(before, name, a);
}

/* "embedding, h.0 to h.7, head" */
static void list_layers(const struct model *model, char *text, size_t size)
{
    size_t used = 0;
    *text = '\0';
    for (int l = 0; l < model->layer_count && used < size; l++) {
        const int first = l;
        while (l + 1 < model->layer_count && follows(model->layers[l].name, model->layers[l + 1].name))
            l++;
        (void)snprintf(text + used, size - used, "%s%s%s%s", first ? ", " : "", model->layers[first].name,
                       l > first ? " to " : "", l > first ? model->layers[l].name : "");
        used = strlen(text);
    }
}

static int find_layer(const struct model *model, const char *name)
{
    for (int l = 0; l < model->layer_count; l++)
        if (!strcmp(model->layers[l].name, name))
            return l;
    return -1;
}

static int cut_by_name(const struct model *model, const struct plan_cut *cut, int parts, int *first,
                       struct muster_error *err)
{
    int named = 1;
    for (int i = 0; cut->names[i]; i++) {
        char layers[512];
        const int layer = find_layer(model, cut->names[i]);
        list_layers(model, layers, sizeof layers);
        if (layer < 0)
            return error_set(err, MUSTER_E_INVALID, "mesh.cut names %s, and the model's layers are %s",
                             cut->names[i], layers);
        if (layer == 0)
            return error_set(
                err, MUSTER_E_INVALID,
                "mesh.cut names %s, which begins the first stage anyway; name the layers that begin "
                "the others: %s",
                cut->names[i], layers);
        if (i > 0 && layer <= find_layer(model, cut->names[i - 1]))
            return error_set(err, MUSTER_E_INVALID, "mesh.cut is not in the order of layers: %s before %s",
                             cut->names[i - 1], cut->names[i]);
        if (named < parts)
            first[named] = layer;
        named++;
    }
    if (named == parts)
        return 0;
    return cut->chunks > 1 ? error_set(err, MUSTER_E_INVALID,
                                       "mesh.cut makes %d parts, mesh.pipeline %d x mesh.chunks %d are %d",
                                       named, cut->stages, cut->chunks, parts)
                           : error_set(err, MUSTER_E_INVALID, "mesh.cut makes %d stages, mesh.pipeline is %d",
                                       named, cut->stages);
}

/* ---- choice ---- */

/* Fills first[stages] so that the largest sum of `seconds` of a stage is the smallest possible. Among equal
 * cuts the cut with shorter early stages wins, since early stages keep more micro-batches. best[s][l]: the
 * layers from l on, cut into s + 1 stages. */
static void cut_by_time(int layers, int stages, const double *seconds, double *best, int *end, int *first)
{
    for (int s = 0; s < stages; s++)
        for (int l = layers - 1 - s; l >= 0; l--) {
            double sum = 0;
            double *least = &best[s * layers + l];
            *least = -1;
            for (int e = l + 1; e <= layers - s; e++) {
                sum += seconds[e - 1];
                if (s == 0 && e < layers)
                    continue;
                const double rest = s ? best[(s - 1) * layers + e] : 0;
                const double slowest = sum > rest ? sum : rest;
                if (*least < 0 || slowest < *least) {
                    *least = slowest;
                    end[s * layers + l] = e;
                }
            }
        }
    first[0] = 0;
    for (int s = 1; s < stages; s++)
        first[s] = end[(stages - s) * layers + first[s - 1]];
}

/* slowest: filled with the seconds of the slowest part. */
static int cut_by_seconds(int layers, int parts, const double *seconds, int *first, double *slowest,
                          struct muster_error *err)
{
    const size_t cells = (size_t)layers * (size_t)parts;
    scope_free double *best = mem_calloc(cells, sizeof *best);
    scope_free int *end = mem_calloc(cells, sizeof *end);
    if (!best || !end)
        return error_set(err, MUSTER_E_NOMEM, "no memory to cut a model of %d layers", layers);
    cut_by_time(layers, parts, seconds, best, end, first);
    *slowest = best[(size_t)(parts - 1) * (size_t)layers];
    return 0;
}

static int cut_by_choice(const struct model *model, const struct plan_options *options,
                         const struct plan_cut *cut, int parts, int *first, struct muster_error *err)
{
    const int layers = model->layer_count;
    double slowest;
    if (cut->seconds)
        return cut_by_seconds(layers, parts, cut->seconds, first, &slowest, err);
    scope_free double *seconds = mem_calloc((size_t)layers, sizeof *seconds);
    if (!seconds)
        return error_set(err, MUSTER_E_NOMEM, "no memory to cut a model of %d layers", layers);
    return plan_layer_seconds(model, options, seconds, err) < 0
               ? -1
               : cut_by_seconds(layers, parts, seconds, first, &slowest, err);
}

int plan_cut_compare(const struct model *model, const double *seconds, struct plan_slowest *slowest,
                     struct muster_error *err)
{
    int first[PIPE_PARTS + 1];
    double part[PIPE_PARTS] = {0};
    *slowest = (struct plan_slowest){0};
    for (int l = 0; l < model->layer_count; l++) {
        double *mine = &part[model->layers[l].part];
        *mine += seconds[l];
        slowest->now = *mine > slowest->now ? *mine : slowest->now;
    }
    return cut_by_seconds(model->layer_count, model->parts, seconds, first, &slowest->least, err);
}

int plan_cut_text(const struct model *model, struct buffer *out)
{
    for (int l = 1, parts = 1; l < model->layer_count; l++)
        if (model->layers[l].part != model->layers[l - 1].part)
            (void)buffer_printf(out, "%s%s", parts++ > 1 ? ", " : "", model->layers[l].name);
    return out->failed ? -1 : 0;
}

int plan_cut_model(struct model *model, const struct plan_options *options, const struct plan_cut *cut,
                   struct muster_error *err)
{
    int first[PIPE_PARTS + 1] = {0};
    const int most = model->layer_count < PIPE_PARTS ? model->layer_count : PIPE_PARTS;
    const int chunks = cut->chunks > 1 ? cut->chunks : 1;
    if (cut->stages < 1 || cut->stages > most)
        return error_set(err, MUSTER_E_INVALID, "mesh.pipeline %d for a model of %d layers; use 1 to %d",
                         cut->stages, model->layer_count, most);
    const int64_t wanted = (int64_t)chunks * cut->stages;
    const int parts = wanted > most ? most : (int)wanted;
    if (wanted > most)
        return error_set(
            err, MUSTER_E_INVALID,
            "mesh.chunks %d x mesh.pipeline %d are %lld parts of a model of %d layers; use at most "
            "%d parts",
            chunks, cut->stages, (long long)wanted, model->layer_count, most);
    if (cut->names && cut_by_name(model, cut, parts, first, err) < 0)
        return -1;
    for (int s = 0; cut->even && !cut->names && s < parts; s++)
        first[s] = (int)((int64_t)model->layer_count * s / parts);
    if (!cut->names && !cut->even && parts > 1 && cut_by_choice(model, options, cut, parts, first, err) < 0)
        return -1;
    model->parts = parts;
    for (int l = 0, part = 0; l < model->layer_count; l++) {
        while (part + 1 < parts && first[part + 1] <= l)
            part++;
        model->layers[l].part = part;
    }
    return 0;
}
