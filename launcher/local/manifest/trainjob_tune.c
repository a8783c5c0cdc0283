/* trainjob_tune.c - see trainjob.h: what Trainer's torchtune plugin adds to a command. */
#include <ctype.h>
#include <string.h>

#include "launcher/local/manifest/trainjob.h"
#include "proto/base/guard.h"

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
