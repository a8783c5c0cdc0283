/* adapter_json.c - see adapter_json.h. */
#include "runtime/files/adapter_json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/json/json_text.h"

/* ---- reading ---- */

/* Keys that change nothing here: names, keys that follow from the model (PEFT corrects fan_in_fan_out
 * by the model, too), keys of features that are refused, and keys that are read below. */
static const char *const passed_over[] = {
    "auto_mapping",   "base_model_name_or_path",
    "fan_in_fan_out", "inference_mode",
    "megatron_core",  "init_lora_weights",
    "peft_version",   "qalora_group_size",
    "revision",       "runtime_config",
    "task_type",      "peft_type",
    "target_modules", "r",
    "lora_alpha",     "lora_dropout",
    "use_rslora",     "eva_config", /* the beginning of A */
};

static bool is_passed_over(const char *key)
{
    for (size_t i = 0; i < sizeof passed_over / sizeof *passed_over; i++)
        if (!strcmp(passed_over[i], key))
            return true;
    return false;
}

static bool is_empty(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_object(value) && !json_object_size(value)) ||
           (json_is_array(value) && !json_array_size(value));
}

/* Classifiers are the modules that may be trained whole. */
static bool is_classifier(const char *key, const json_t *value)
{
    static const char *const names[] = {"classifier", "pre_classifier", "score"};
    if (strcmp(key, "modules_to_save") != 0 || !json_is_array(value))
        return false;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *name = json_string_value(json_array_get(value, i));
        size_t n = 0;
        while (n < sizeof names / sizeof *names && name && strcmp(name, names[n]) != 0)
            n++;
        if (!name || n == sizeof names / sizeof *names)
            return false;
    }
    return true;
}

static int refuse_value(const char *name, const char *key, const json_t *value, const char *works,
                        struct muster_error *err)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    (void)error_set(err, MUSTER_E_UNSUPPORTED, "%s: %s is %.100s, which is not supported: %s", name, key,
                    text ? text : "another value", works);
    free(text); /* jansson's, not of mem.h */
    return -1;
}

#define MERGE                                                                                                \
    "merge the adapters into their model (PEFT's merge_and_unload, then save_pretrained) and name that as "  \
    "model.path"

/* The way in which A and B were drawn does not matter, unless the base was changed for it. PEFT changes the
 * base again when it loads such adapters. An unknown name may be of that kind.
 */
static int check_init(const char *name, const json_t *root, struct muster_error *err)
{
    static const char *const plain[] = {"gaussian", "eva", "orthogonal"};
    const json_t *value = json_object_get(root, "init_lora_weights");
    const char *text = json_string_value(value);
    if (!value || json_is_null(value) || json_is_boolean(value))
        return 0;
    for (size_t i = 0; text && i < sizeof plain / sizeof *plain; i++)
        if (!strcasecmp(text, plain[i]))
            return 0;
    return refuse_value(
        name, "init_lora_weights", value,
        "such adapters stand on a changed base: write them as plain ones (PEFT's save_pretrained "
        "with path_initial_model_for_weight_conversion), or " MERGE,
        err);
}

/* Everything that is neither known nor unused. */
static int check_keys(const char *name, const json_t *root, struct muster_error *err)
{
    const char *key, *kind = json_string_value(json_object_get(root, "peft_type"));
    const json_t *value;
    if (!kind || strcmp(kind, "LORA") != 0)
        return error_set(err, MUSTER_E_UNSUPPORTED, "%s: peft_type is %.40s, and LORA alone is supported",
                         name, kind ? kind : "missing");
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        const char *text = json_string_value(value);
        if (is_passed_over(key) || is_empty(value) || is_classifier(key, value) ||
            (!strcmp(key, "bias") && text && !strcmp(text, "none")))
            continue;
        return refuse_value(name, key, value, MERGE, err);
    }
    return check_init(name, root, err);
}

static int adapter_number(const char *name, const json_t *root, const char *key, double fallback, double *out,
                          struct muster_error *err)
{
    const json_t *value = json_object_get(root, key);
    *out = value ? json_number_value(value) : fallback;
    return !value || json_is_number(value)
               ? 0
               : error_set(err, MUSTER_E_INVALID, "%s: %s is no number", name, key);
}

static int take_targets(const char *name, const json_t *root, struct lora *lora, struct muster_error *err)
{
    const json_t *targets = json_object_get(root, "target_modules");
    const char *text = json_string_value(targets);
    if (text && !strcmp(text, LORA_ALL))
        return lora_add_target(lora, text, err);
    if (!json_is_array(targets) || !json_array_size(targets))
        return refuse_value(name, "target_modules", targets ? targets : json_null(),
                            "a list of names of modules, no pattern", err);
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const char *target = json_string_value(json_array_get(targets, i));
        if (!target)
            return error_set(err, MUSTER_E_INVALID, "%s: target_modules has an element that is no text",
                             name);
        if (lora_add_target(lora, target, err) < 0)
            return error_wrap(err, "%s", name);
    }
    return 0;
}

static int take_root(const char *name, const json_t *root, struct lora *lora, struct muster_error *err)
{
    double rank;
    *lora = (struct lora){0};
    if (check_keys(name, root, err) < 0 || adapter_number(name, root, "r", 8, &rank, err) < 0 ||
        adapter_number(name, root, "lora_alpha", 8, &lora->alpha, err) < 0 ||
        adapter_number(name, root, "lora_dropout", 0, &lora->dropout, err) < 0 ||
        take_targets(name, root, lora, err) < 0)
        return -1;
    if (rank != floor(rank))
        return error_set(err, MUSTER_E_INVALID, "%s: r is %g, which is no whole number", name, rank);
    lora->rank = rank >= 1 && rank <= LORA_RANK_LIMIT ? (int)rank : 0;
    const json_t *rslora = json_object_get(root, "use_rslora");
    if (rslora && !json_is_boolean(rslora) && !json_is_null(rslora))
        return error_set(err, MUSTER_E_INVALID, "%s: use_rslora is neither true nor false", name);
    if (json_is_true(rslora)) /* alpha / sqrt(r) in place of alpha / r */
        lora->alpha *= sqrt(rank);
    return lora_check(lora, err) < 0 ? error_wrap(err, "%s", name) : 0;
}

int adapter_json_parse(const char *name, const char *text, size_t length, struct lora *lora,
                       struct muster_error *err)
{
    GUARD(guard_json) json_t *root = json_text_parse(name, text, length, err);
    return root ? take_root(name, root, lora, err) : -1;
}

int adapter_json_read(const char *path, struct lora *lora, struct muster_error *err)
{
    GUARD(guard_json) json_t *root = json_text_read(path, err);
    return root ? take_root(path, root, lora, err) : -1;
}

char *adapter_json_path(const char *folder)
{
    return mem_printf("%s/adapter_config.json", folder);
}

/* ---- writing ---- */

static void put_target(struct buffer *out, const char *name, size_t length, bool first)
{
    (void)buffer_printf(out, "%s\n    \"%.*s\"", first ? "" : ",", (int)length, name);
}

/* Whether an adapter before this one has the same last part. */
static bool was_put(const struct model *model, int before, const char *name, size_t length)
{
    for (int i = 0; i < before; i++) {
        const char *other = model->params[i].adapter == PARAM_LORA_A ? model->params[i].name : NULL;
        const char *end = other ? strstr(other, ".lora_A") : NULL;
        if (end && end - other > (ptrdiff_t)length && end[-(ptrdiff_t)length - 1] == '.' &&
            !strncmp(end - length, name, length))
            return true;
    }
    return false;
}

/* A list of all products is by their names' last parts: PEFT takes the word for all only outside of a list.
 */
static void put_all(struct buffer *out, const struct model *model)
{
    bool first = true;
    for (int i = 0; i < model->param_count; i++) {
        const char *name = model->params[i].name, *end = strstr(name, ".lora_A");
        if (model->params[i].adapter != PARAM_LORA_A || !end)
            continue;
        const char *part = end;
        while (part > name && part[-1] != '.')
            part--;
        if (was_put(model, i, part, (size_t)(end - part)))
            continue;
        put_target(out, part, (size_t)(end - part), first);
        first = false;
    }
}

/* The modules that are trained whole, by the first parts of their names. */
static void put_saved(struct buffer *out, const struct model *model)
{
    const char *before = "";
    size_t length = 0;
    int count = 0;
    for (int i = 0; i < model->param_count; i++) {
        const char *name = model->params[i].name;
        if (model->params[i].adapter != PARAM_SAVED || (length && !strncmp(name, before, length + 1)))
            continue;
        before = name;
        length = strcspn(name, ".");
        (void)buffer_printf(out, "%s\n    \"%.*s\"", count++ ? "," : "[", (int)length, name);
    }
    (void)buffer_text(out, count ? "\n  ]" : "null");
}

static void put_targets(struct buffer *out, const struct model *model, const struct lora *lora)
{
    for (int i = 0; i < lora->target_count; i++)
        if (!strcmp(lora->target[i], LORA_ALL)) {
            put_all(out, model);
            return;
        }
    for (int i = 0; i < lora->target_count; i++)
        put_target(out, lora->target[i], strlen(lora->target[i]), i == 0);
}

int adapter_json_format(const struct architecture *architecture, const struct model *model,
                        const struct lora *lora, const char *base, struct buffer *out,
                        struct muster_error *err)
{
    const bool gpt2 = architecture && !strcmp(architecture_title(architecture), "gpt2");
    (void)buffer_text(out, "{\n  \"alpha_pattern\": {},\n  \"base_model_name_or_path\": ");
    if (base)
        (void)buffer_json_string(out, base);
    else
        (void)buffer_text(out, "null");
    (void)buffer_printf(out,
                        ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n  \"inference_mode\": true,\n"
                        "  \"init_lora_weights\": true,\n  \"layers_pattern\": null,\n"
                        "  \"layers_to_transform\": null,\n  \"lora_alpha\": %.15g,\n"
                        "  \"lora_dropout\": %.15g,\n  \"modules_to_save\": ",
                        gpt2 ? "true" : "false", lora->alpha, lora->dropout);
    put_saved(out, model);
    (void)buffer_printf(out,
                        ",\n  \"peft_type\": \"LORA\",\n  \"r\": %d,\n  \"rank_pattern\": {},\n"
                        "  \"revision\": null,\n  \"target_modules\": [",
                        lora->rank);
    put_targets(out, model, lora);
    return buffer_printf(out,
                         "\n  ],\n  \"task_type\": \"%s\",\n  \"use_dora\": false,\n"
                         "  \"use_rslora\": false\n}\n",
                         architecture_classifies(architecture) ? "SEQ_CLS" : "CAUSAL_LM")
               ? error_set(err, MUSTER_E_NOMEM, "no memory for adapter_config.json")
               : 0;
}
