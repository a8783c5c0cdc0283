/* trainjob_patches.c - see trainjob.h: the changes of a TrainJob to its runtime's JobSet, before its
 * trainer's. */
#include <ctype.h>
#include <string.h>

#include "launcher/local/manifest/trainjob.h"
#include "proto/base/guard.h"

#define ERROR(b, type, job, node, path, ...)                                                                 \
    problems_add((b)->problems, PROBLEM_##type, (job)->object->file, node, path, __VA_ARGS__)

static const struct tree_node *find_job(const struct trainjob *job, const char *name)
{
    const struct tree_node *list = tree_get(job->set_spec, "replicatedJobs");
    for (size_t i = 0; name && list && list->kind == TREE_LIST && i < list->count; i++) {
        const char *other = tree_text(tree_get(list->items[i], "name"));
        if (other && !strcmp(other, name))
            return list->items[i];
    }
    return NULL;
}

static bool has_named(const struct tree_node *list, const char *name)
{
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
        const char *other = tree_text(tree_get(list->items[i], "name"));
        if (other && !strcmp(other, name))
            return true;
    }
    return false;
}

/* Containers of a patch must be the job's; Trainer wants the trainer's variables in spec.trainer. */
static void check_containers(struct building *b, const struct trainjob *job,
                             const struct tree_node *replicated, const struct tree_node *pod,
                             const struct path *path)
{
    static const char *const lists[] = {"containers", "initContainers"};
    const struct tree_node *spec = tree_get(tree_get(replicated, "template"), "spec");
    const struct tree_node *own = tree_get(tree_get(spec, "template"), "spec");
    for (size_t l = 0; l < 2; l++) {
        const struct tree_node *list = tree_get(pod, lists[l]);
        for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
            const char *name = tree_text(tree_get(list->items[i], "name"));
            const struct path *at = PATH_INDEX(PATH_FIELD(path, lists[l]), i);
            if (name && !has_named(tree_get(own, lists[l]), name))
                ERROR(b, INVALID, job, list->items[i], at,
                      "the runtime's job %.63s has no such container '%.63s'",
                      tree_text(tree_get(replicated, "name")), name);
            else if (name && !strcmp(name, "node") && tree_get(list->items[i], "env"))
                ERROR(b, WARNING, job, list->items[i], PATH_FIELD(at, "env"),
                      "applied here, and refused by Trainer's webhook for the container node: its variables "
                      "belong into spec.trainer.env");
        }
    }
}

/* Merges a pod template's patch (metadata, spec) into the job of this name. */
static int patch_pod(struct building *b, struct trainjob *job, const struct tree_node *name,
                     const struct tree_node *pod_template, const struct path *path)
{
    struct patch_memory *m = &b->merged;
    const struct tree_node *replicated = find_job(job, tree_text(name));
    if (!replicated) {
        ERROR(b, INVALID, job, name, path, "the runtime has no replicated job '%.63s'",
              tree_text(name) ? tree_text(name) : "");
        return 0;
    }
    check_containers(b, job, replicated, tree_get(pod_template, "spec"), PATH_FIELD(path, "spec"));
    if (b->problems->fatal || !pod_template)
        return 0;
    const struct tree_node *patch =
        patch_map(m, "template", patch_map(m, "spec", patch_map(m, "template", pod_template)));
    const struct tree_node *merged = patch ? patch_merge(m, replicated, patch) : NULL;
    const struct tree_node *set = merged ? patch_map(m, "replicatedJobs", patch_list(m, merged)) : NULL;
    job->set_spec = set ? patch_merge(m, job->set_spec, set) : NULL;
    return job->set_spec ? 0 : building_no_memory(b);
}

static int apply_patch(struct building *b, struct trainjob *job, const struct tree_node *patch,
                       const struct path *path)
{
    const struct tree_node *template_ = tree_get(tree_get(patch, "trainingRuntimeSpec"), "template");
    const struct tree_node *list = tree_get(tree_get(template_, "spec"), "replicatedJobs");
    const struct path *jobs =
        PATH_FIELD(PATH_FIELD(PATH_FIELD(PATH_FIELD(path, "trainingRuntimeSpec"), "template"), "spec"),
                   "replicatedJobs");
    for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++) {
        const struct tree_node *spec = tree_get(tree_get(list->items[i], "template"), "spec");
        const struct path *at =
            PATH_FIELD(PATH_FIELD(PATH_FIELD(PATH_INDEX(jobs, i), "template"), "spec"), "template");
        if (patch_pod(b, job, tree_get(list->items[i], "name"), tree_get(spec, "template"), at) < 0)
            return -1;
    }
    return 0;
}

/* podTemplateOverrides has metadata and spec, podSpecOverrides the spec's fields themselves; both name jobs.
 */
static int apply_override(struct building *b, struct trainjob *job, const struct tree_node *override,
                          bool flat, const struct path *path)
{
    const struct tree_node *targets = tree_get(override, "targetJobs");
    const struct tree_node *pod = flat ? patch_map(&b->merged, "spec", override) : override;
    if (!pod)
        return building_no_memory(b);
    for (size_t i = 0; targets && targets->kind == TREE_LIST && i < targets->count; i++)
        if (patch_pod(b, job, tree_get(targets->items[i], "name"), pod, path) < 0)
            return -1;
    return 0;
}

int trainjob_patch(struct building *b, struct trainjob *job)
{
    static const char *const lists[] = {"podSpecOverrides", "podTemplateOverrides", "runtimePatches"};
    enum { FLAT, TEMPLATES, PATCHES };
    for (int kind = FLAT; kind <= PATCHES; kind++) {
        const struct tree_node *list = tree_get(job->spec, lists[kind]);
        const struct path *path = PATH_FIELD(PATH_FIELD(NULL, "spec"), lists[kind]);
        if (list && kind != PATCHES)
            ERROR(b, WARNING, job, list, path,
                  "applied as by Trainer 2.0 and 2.1; later ones drop it silently, and have runtimePatches");
        for (size_t i = 0; list && list->kind == TREE_LIST && i < list->count; i++)
            if ((kind == PATCHES
                     ? apply_patch(b, job, list->items[i], PATH_INDEX(path, i))
                     : apply_override(b, job, list->items[i], kind == FLAT, PATH_INDEX(path, i))) < 0)
                return -1;
    }
    return 0;
}

/* --- tune run --- */

static const char runtime_prefix[] = "torchtune-";

bool trainjob_is_tune(const struct trainjob *job)
{
    const struct tree_node *command = tree_get(job->trainer, "command");
    const char *first =
        command && command->kind == TREE_LIST && command->count == 2 ? tree_text(command->items[0]) : NULL;
    const char *second = first ? tree_text(command->items[1]) : NULL;
    return first && second && !strcmp(first, "tune") && !strcmp(second, "run");
}

static bool has_argument(const struct trainjob *job, const char *prefix)
{
    const struct tree_node *args = tree_get(job->trainer, "args");
    for (size_t i = 0; args && args->kind == TREE_LIST && i < args->count; i++) {
        const char *text = tree_text(args->items[i]);
        if (text && !strncmp(text, prefix, strlen(prefix)))
            return true;
    }
    return false;
}

/* "llama3_3/70B" of torchtune-llama3.3-70b. */
static char *model_of(const char *runtime)
{
    size_t skip = strncmp(runtime, runtime_prefix, sizeof runtime_prefix - 1) ? 0 : sizeof runtime_prefix - 1;
    char *model = mem_strdup(runtime + skip);
    char *dash = model ? strchr(model, '-') : NULL;
    for (char *at = model; at && *at; at++)
        *at = dash && at > dash ? (char)toupper((unsigned char)*at) : *at == '.' ? '_' : *at;
    if (dash)
        *dash = '/';
    return model;
}

static int add_paths(const struct tree_node *container, struct text_list *more)
{
    static const char *const kept[] = {
        "output_dir=", "tokenizer.path=", "tokenizer.merges_file=", "checkpointer.checkpoint_dir="};
    const struct tree_node *command = tree_get(container, "command");
    for (size_t i = 0; command && command->kind == TREE_LIST && i < command->count; i++) {
        const char *word = tree_text(command->items[i]);
        for (size_t k = 0; word && k < sizeof kept / sizeof *kept; k++)
            if (!strncmp(word, kept[k], strlen(kept[k])) && text_list_take(more, mem_strdup(word)) < 0)
                return -1;
    }
    return 0;
}

int trainjob_tune(const struct trainjob *job, const struct tree_node *container, int64_t gpus,
                  struct text_list *more)
{
    bool quantized = has_argument(job, "model.quantize_base=True");
    bool lora = quantized || has_argument(job, "model.lora") || has_argument(job, "model.use_dora");
    bool one =
        job->nodes == 1 && (!strcmp(job->processes, "1") || (!strcmp(job->processes, "auto") && gpus == 1));
    const char *adapter = quantized ? "_qlora" : lora ? "_lora" : "_full";
    const char *where = one ? "_single_device" : job->nodes > 1 && !lora ? "_multinode" : "";
    scope_free char *model = model_of(job->runtime_name);
    if (!model ||
        (!one && text_list_take(more, mem_printf("--rdzv_endpoint=%s:%d", job->master, TRAINJOB_PORT)) < 0))
        return -1;
    if (text_list_take(more, mem_printf("%s_finetune_%s", lora ? "lora" : "full",
                                        one ? "single_device" : "distributed")) < 0 ||
        text_list_take(more, mem_strdup("--config")) < 0 ||
        text_list_take(more, mem_printf("%s%s%s", model, adapter, where)) < 0)
        return -1;
    return add_paths(container, more);
}
