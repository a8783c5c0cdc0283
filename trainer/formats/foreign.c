/* foreign.c - see formats_internal.h. */
#include "trainer/formats/formats_internal.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

#define TITAN                                                                                                \
    "mesh.pipeline is its pipeline_parallel_degree, training.strategy and training.replicas its "            \
    "data_parallel_shard_degree and data_parallel_replicate_degree; no model is split by tensor, context "   \
    "or "                                                                                                    \
    "expert; "
#define VALUES "give its values as keys of training, model and data (muster-train --help), or by --set"

/* ---- by keys ---- */

/* A program's file has all of the keys; "a.b": b in the mapping a; "a[]": a is a list. */
static const struct {
    const char *keys[3];
    const char *file, *advice;
} by_keys[] = {
    {{"compute_environment", "distributed_type"},
     "a configuration of Hugging Face accelerate",
     "`muster run --accelerate-config=FILE` reads it; muster-train takes the file of DeepSpeed that it "
     "names"},
    {{"base_model", "datasets[]"}, "a configuration of axolotl", VALUES},
    {{"base_model", "adapter"}, "a configuration of axolotl", VALUES},
    {{"finetuning_type"}, "a configuration of LLaMA-Factory", VALUES},
    {{"dataset_dir", "template"}, "a configuration of LLaMA-Factory", VALUES},
    {{"model._component_"}, "a configuration of torchtune", VALUES},
    {{"tokenizer._component_"}, "a configuration of torchtune", VALUES},
    {{"trainer", "exp_manager"}, "a configuration of NeMo", VALUES},
    {{"model", "trainer.strategy._target_"}, "a configuration of NeMo", VALUES},
    {{"job", "training.local_batch_size"}, "a configuration of torchtitan", TITAN VALUES},
    {{"job", "metrics", "parallelism"}, "a configuration of torchtitan", TITAN VALUES},
    {{"max_duration", "train_loader"}, "a configuration of LLM Foundry (Composer)", VALUES},
    {{"trainer", "fit"}, "a configuration of Lightning's command line", VALUES},
    {{"trainer.accelerator", "model.class_path"}, "a configuration of Lightning's command line", VALUES},
    {{"dataset", "distributed_training", "optimization"}, "a configuration of fairseq", VALUES},
    {{"defaults[]", "hydra"},
     "a configuration of Hydra",
     "let its own program put it together, and give the result"},
    {{"peft_type"}, "adapter_config.json of PEFT", "lora.path is its folder"},
    {{"_from_model_config"}, "generation_config.json of a model", "model.path is its folder"},
    {{"weight_map"}, "the index of a model's shards", "model.path is its folder"},
    {{"added_tokens[]", "model.type"}, "a tokenizer", "data.tokenizer is its path"},
    {{"tokenizer_class"}, "tokenizer_config.json of a tokenizer", "data.tokenizer is its folder"},
    {{"best_model_checkpoint", "log_history[]"},
     "trainer_state.json of the Trainer",
     "its checkpoints are not read: model.path takes the parameters in their folder"},
};

static const struct tree_node *foreign_key(const struct tree_node *node, const char *path)
{
    char part[64];
    while (node && *path) {
        const size_t length = strcspn(path, ".[");
        if (length >= sizeof part)
            return NULL;
        memcpy(part, path, length);
        part[length] = '\0';
        node = tree_get(node, part);
        path += length;
        if (*path == '[')
            return node && node->kind == TREE_LIST ? node : NULL;
        path += *path == '.';
    }
    return node;
}

int foreign_tree(const char *name, const struct tree_node *root, struct muster_error *err)
{
    for (size_t i = 0; i < sizeof by_keys / sizeof *by_keys; i++) {
        const struct tree_node *last = NULL;
        bool all = true;
        for (int k = 0; k < 3 && by_keys[i].keys[k]; k++) {
            last = foreign_key(root, by_keys[i].keys[k]);
            all = all && last;
        }
        if (!all)
            continue;
        return error_set(err, MUSTER_E_UNSUPPORTED, "%s:%d:%d: this is %s, which is not read here: %s", name,
                         last->line, last->column, by_keys[i].file, by_keys[i].advice);
    }
    return 0;
}

int foreign_tags(const char *name, const struct tree_node *node, struct muster_error *err)
{
    if (node->tagged)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s:%d:%d: a value has a tag, as !env or !!python/tuple, and tags are not applied here: write "
            "the value itself",
            name, node->line, node->column);
    for (size_t i = 0; i < node->count; i++)
        if (foreign_tags(name, node->kind == TREE_MAP ? node->entries[i].value : node->items[i], err) < 0)
            return -1;
    return 0;
}

/* ---- by names ---- */

/* Files of parameters, next to which a folder's .json files are Hugging Face's. */
static const struct {
    const char *file, *what, *advice;
} by_names[] = {
    {"model.safetensors", "a model", "model.path, or --model of eval, generate and quantize"},
    {"model.safetensors.index.json", "a model", "model.path, or --model of eval, generate and quantize"},
    {"pytorch_model.bin", "a model", "model.path, or --model of eval, generate and quantize"},
    {"adapter_model.safetensors", "adapters of PEFT", "lora.path, next to model.path of its base"},
};

int foreign_folder(const char *folder, struct muster_error *err)
{
    for (size_t i = 0; i < sizeof by_names / sizeof *by_names; i++) {
        scope_free char *path = mem_printf("%s/%s", folder, by_names[i].file);
        if (!path)
            return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", folder);
        if (access(path, F_OK) == 0)
            return error_set(err, MUSTER_E_INVALID,
                             "%s is a folder of %s, not of configurations: name it by %s", folder,
                             by_names[i].what, by_names[i].advice);
    }
    return 0;
}

/* ---- by text ---- */

struct text_lines {
    const char *at, *end;
};

/* The next line that is neither empty nor a remark, trimmed; NULL: there is none. */
static const char *next_line(struct text_lines *lines, size_t *length)
{
    while (lines->at < lines->end) {
        const char *line = lines->at;
        const char *end = memchr(line, '\n', (size_t)(lines->end - line));
        lines->at = end ? end + 1 : lines->end;
        end = end ? end : lines->end;
        while (line < end && isspace((unsigned char)*line))
            line++;
        while (end > line && isspace((unsigned char)end[-1]))
            end--;
        if (line < end && *line != '#') {
            *length = (size_t)(end - line);
            return line;
        }
    }
    return NULL;
}

static bool line_begins(const char *line, size_t length, const char *word)
{
    return length >= strlen(word) && !memcmp(line, word, strlen(word));
}

/* "[training]", "[[data]]" */
static bool is_table(const char *line, size_t length)
{
    if (length < 3 || line[0] != '[' || line[length - 1] != ']')
        return false;
    for (size_t i = 1; i + 1 < length; i++)
        if (!isalnum((unsigned char)line[i]) && !strchr("_-.[]", line[i]))
            return false;
    return isalpha((unsigned char)line[line[1] == '[' ? 2 : 1]) != 0;
}

/* "name = value", with no colon before. */
static bool is_assignment(const char *line, size_t length)
{
    size_t at = 0;
    while (at < length && (isalnum((unsigned char)line[at]) || strchr("_.-", line[at])))
        at++;
    const size_t name = at;
    while (at < length && line[at] == ' ')
        at++;
    return name && at < length && line[at] == '=' && !(at + 1 < length && line[at + 1] == '=');
}

/* "worker-1 slots=4" */
static bool is_host(const char *line, size_t length)
{
    const char *blank = memchr(line, ' ', length);
    while (blank && blank < line + length && *blank == ' ')
        blank++;
    return blank && line_begins(blank, (size_t)(line + length - blank), "slots=");
}

static int refuse_text(const char *name, const char *what, const char *advice, struct muster_error *err)
{
    return error_set(err, MUSTER_E_UNSUPPORTED, "%s: this is %s, which is not read here: %s", name, what,
                     advice);
}

/* Whether a table's name belongs to torchtitan alone. */
static bool is_of_torchtitan(const char *line, size_t length)
{
    static const char *const tables[] = {"[job]", "[profiling]", "[metrics]", "[parallelism]",
                                         "[lr_scheduler]"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (length == strlen(tables[i]) && line_begins(line, length, tables[i]))
            return true;
    return false;
}

int foreign_text(const char *name, const char *text, size_t length, struct muster_error *err)
{
    static const char *const python[] = {"import ", "from ", "def ", "\"\"\"", "class "};
    struct text_lines lines = {text, text + length};
    size_t first_length = 0, second_length = 0;
    const size_t dot = strlen(name);
    const bool script = dot > 3 && (!strcmp(name + dot - 3, ".py") || !strcmp(name + dot - 3, ".sh"));
    if (length >= 4 && (!memcmp(text, "PK\3\4", 4) || !memcmp(text, "GGUF", 4)))
        return refuse_text(name, "a file of parameters", "model.path takes files of torch.save, and folders",
                           err);
    if (memchr(text, '\0', length < 512 ? length : 512))
        return refuse_text(name, "no text",
                           "a configuration is YAML or JSON in UTF-8; model.path takes files of parameters",
                           err);
    const char *first = next_line(&lines, &first_length), *second = next_line(&lines, &second_length);
    if (!first)
        return 0;
    bool program = script || line_begins(text, length, "#!");
    for (size_t i = 0; i < sizeof python / sizeof *python; i++)
        program |= line_begins(first, first_length, python[i]) && !memchr(first, ':', first_length);
    if (program)
        return refuse_text(name, "a program",
                           "`muster run FILE` starts it; muster-train takes a configuration", err);
    if (is_host(first, first_length))
        return refuse_text(name, "a hostfile of DeepSpeed or MPI", "`muster run --hostfile=FILE` takes it",
                           err);
    if (is_table(first, first_length) &&
        (!second || is_assignment(second, second_length) || is_table(second, second_length))) {
        bool titan = false;
        for (const char *line = first; line; line = next_line(&lines, &first_length))
            titan |= is_of_torchtitan(line, first_length);
        return refuse_text(name, titan ? "a configuration of torchtitan (TOML)" : "TOML",
                           titan ? TITAN VALUES : VALUES, err);
    }
    if (is_assignment(first, first_length) && (!second || is_assignment(second, second_length)))
        return refuse_text(name, "lines of name = value (TOML, or a script's settings)",
                           "YAML has name: value, and " VALUES, err);
    return 0;
}
