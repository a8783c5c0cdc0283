/* page.c - see page.h: the sections of a page, and its runs. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/pages/labels.h"
#include "runtime/pages/page_internal.h"

static const struct section_row {
    const char *key;
    enum tree_kind kind;
    bool optional;
} section_rows[SECTIONS] = {
    [MODEL_TYPE] = {"model_type", TREE_TEXT, false},
    [CLASSIFIER] = {"classifier", TREE_TEXT, true},
    [BASE] = {"base", TREE_TEXT, true},
    [DRAWN] = {"drawn", TREE_LIST, true},
    [SAVED] = {"saved", TREE_LIST, true},
    [UNREAD] = {"unread", TREE_LIST, true},
    [ADAPTERS] = {"adapters", TREE_LIST, false},
    [ORDER] = {"order", TREE_LIST, true},
    [DROPOUT] = {"dropout", TREE_LIST, true},
    [ONLY] = {"only", TREE_MAP, true},
    [VALUES] = {"values", TREE_LIST, false},
    [POSITIONS] = {"positions", TREE_TEXT, false},
    [LAYERS] = {"layers", TREE_TEXT, false},
    [EMBEDDING] = {"embedding", TREE_LIST, false},
    [NAMES] = {"names", TREE_TEXT, false},
    [BLOCK] = {"block", TREE_LIST, false},
    [HEAD] = {"head", TREE_LIST, false},
};

/* ---- errors ---- */

int page_fail(struct page_run *run, const char *format, ...)
{
    char text[600];
    va_list arguments;
    if (run->error.code)
        return -1;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments); /* cut: still an error */
    va_end(arguments);
    return error_set(&run->error, run->writer.error.code ? run->writer.error.code : MUSTER_E_INVALID,
                     "%s:%d: %s", run->page, run->node ? run->node->line : 1, text);
}

int page_refuse(struct page_run *run, const char *key, const json_t *value, const char *works)
{
    if (run->error.code)
        return -1;
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    (void)error_set(&run->error, MUSTER_E_UNSUPPORTED, "%s: %s is %.200s, which is not supported: %s",
                    run->config_name, key, text ? text : "another value", works);
    free(text); /* jansson's, not of mem.h */
    return -1;
}

int page_refuse_kind(struct page_run *run, const char *key, const char *kind)
{
    if (run->error.code)
        return -1;
    return kind ? error_set(&run->error, MUSTER_E_INVALID, "%s: %s is no %s", run->config_name, key, kind)
                : error_set(&run->error, MUSTER_E_INVALID, "%s: %s is missing", run->config_name, key);
}

/* ---- config.json ---- */

/* Whether a value is among the texts between "|" in `list`: "silu | swish", "false". */
static bool is_among(const json_t *value, const char *list)
{
    char text[MODEL_NAME_LIMIT] = "";
    if (json_is_string(value))
        (void)snprintf(text, sizeof text, "%s", json_string_value(value)); /* cut: no name is so long */
    else if (json_is_boolean(value))
        (void)snprintf(text, sizeof text, "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_number(value))
        (void)snprintf(text, sizeof text, "%.17g", json_number_value(value));
    for (const char *p = list; *text && *p;) {
        p += strspn(p, " |");
        const size_t length = strcspn(p, " |");
        if (length == strlen(text) && !strncmp(p, text, length))
            return true;
        p += length;
    }
    return false;
}

static int check_only(struct page_run *run, const struct tree_node *only)
{
    for (size_t i = 0; only && i < only->count; i++) {
        const struct tree_entry *entry = &only->entries[i];
        const json_t *value = page_key(run, entry->key);
        run->node = entry->value;
        if (!entry->value->text)
            return page_fail(run, "the values of %s are a text", entry->key);
        char works[160];
        (void)snprintf(works, sizeof works,
                       strcmp(entry->value->text, "null") ? "%s is" : "it has to be absent",
                       entry->value->text); /* cut: still a list */
        if (value && !is_among(value, entry->value->text))
            return page_refuse(run, entry->key, value, works);
    }
    return 0;
}

static int read_dropout(struct page_run *run, const struct tree_node *keys, double *most)
{
    for (size_t i = 0; keys && i < keys->count; i++) {
        const char *key = tree_text(keys->items[i]);
        run->node = keys->items[i];
        const json_t *value = key ? page_key(run, key) : NULL;
        if (!key)
            return page_fail(run, "a key of dropout is a text");
        if (value && !json_is_number(value))
            return page_refuse_kind(run, key, "number");
        *most = value && json_number_value(value) > *most ? json_number_value(value) : *most;
    }
    return 0;
}

/* ---- a run ---- */

static int statements(struct page_run *run, const struct tree_node *list)
{
    for (size_t i = 0; i < list->count; i++) {
        run->node = list->items[i];
        if (run->ended)
            return page_fail(run, "logits or classes is the last statement");
        if (page_statement(run, list->items[i]) < 0)
            return -1;
    }
    return 0;
}

static int whole_section(struct page_run *run, const struct page *page, enum section section, int64_t most,
                         int *out)
{
    struct page_value value;
    int64_t number;
    if (page_expression(run, page->section[section], &value) < 0 ||
        page_whole(run, &value, section_rows[section].key, 1, most, &number) < 0)
        return -1;
    *out = (int)number;
    return 0;
}

/* Begins a layer whose x is the result of the layer before. */
static int open_layer(struct page_run *run, const char *name, const char *prefix, int before)
{
    struct writer *w = &run->writer;
    const int layer = program_layer(w, "%s", name);
    program_prefix(w, prefix);
    if (before >= 0) {
        const int x = program_input(w, before);
        const struct page_value value = {.kind = PAGE_ROWS, .number = x, .layer = w->model->layer_count};
        if (!w->error.code && page_set(run, "x", &value) < 0)
            return -1;
    }
    return w->error.code ? page_fail(run, "%s", w->error.text) : layer;
}

/* Closes a layer with x. */
static int close_layer(struct page_run *run)
{
    const struct page_value *x = page_variable(run, "x");
    struct writer *w = &run->writer;
    if (!x || x->kind != PAGE_ROWS || x->layer != w->model->layer_count)
        return page_fail(run, "the statements before give x no rows of this layer");
    program_result(w, (int)x->number);
    return w->error.code ? page_fail(run, "%s", w->error.text) : 0;
}

static int block_name(struct page_run *run, const struct page *page, int index, char name[MODEL_NAME_LIMIT])
{
    const char *pattern = page->section[NAMES]->text, *hole = strstr(pattern, "{}");
    run->node = page->section[NAMES];
    if (!hole)
        return page_fail(run, "the name of a block has {} where its number is");
    const int length =
        snprintf(name, MODEL_NAME_LIMIT, "%.*s%d%s", (int)(hole - pattern), pattern, index, hole + 2);
    return length >= MODEL_NAME_LIMIT - 1 ? page_fail(run, "the name of a block is too long") : 0;
}

static int write_blocks(struct page_run *run, const struct page *page, int layers, int *last)
{
    for (int i = 0; i < layers; i++) {
        char name[MODEL_NAME_LIMIT], prefix[MODEL_NAME_LIMIT + 1];
        run->layer = i;
        if (block_name(run, page, i, name) < 0)
            return -1;
        (void)snprintf(prefix, sizeof prefix, "%s.", name);
        if ((*last = open_layer(run, name, prefix, *last)) < 0 || statements(run, page->section[BLOCK]) < 0 ||
            close_layer(run) < 0)
            return -1;
    }
    run->layer = -1;
    return 0;
}

static int write_layers(struct page_run *run, const struct page *page, int layers)
{
    struct writer *w = &run->writer;
    run->tokens = writer_input(w, "tokens", DTYPE_I32, true, 1);
    if (!page->section[CLASSIFIER])
        run->targets = writer_input(w, "targets", DTYPE_I32, true, 1);
    int last = open_layer(run, "embedding", "", -1);
    if (last < 0 || statements(run, page->section[EMBEDDING]) < 0 || close_layer(run) < 0)
        return -1;
    if (page->section[CLASSIFIER]) { /* after the types, which are the embedding's */
        run->lengths = writer_input(w, "lengths", DTYPE_I32, false, 1);
        run->labels = writer_input(w, "labels", DTYPE_I32, false, 1);
    }
    if (write_blocks(run, page, layers, &last) < 0 || open_layer(run, "head", "", last) < 0 ||
        statements(run, page->section[HEAD]) < 0)
        return -1;
    return run->ended && run->table >= 0
               ? 0
               : page_fail(run, "the head does not end in logits or classes, or there is no embedding");
}

/* Frequencies that grow with the sequence serve sequences beyond the model's own positions. */
static int longest(const struct page_run *run, int positions)
{
    double most = positions;
    for (int i = 0; i < run->rope_count; i++)
        if (run->ropes[i].kind == ROTARY_DYNAMIC && run->ropes[i].factor * positions > most)
            most = run->ropes[i].factor * positions;
    return most < (1 << 24) ? (int)most : 1 << 24;
}

static struct model *run_page(struct page_run *run, const struct page *page, const struct lora *lora)
{
    static const char *const metadata[] = {"linear_layout", "out_in", NULL};
    int layers, positions;
    if (check_only(run, page->section[ONLY]) < 0 || statements(run, page->section[VALUES]) < 0 ||
        whole_section(run, page, LAYERS, 1024, &layers) < 0 ||
        whole_section(run, page, POSITIONS, 1 << 24, &positions) < 0)
        return NULL;
    run->writer = writer_begin("%s-%d", page->section[MODEL_TYPE]->text, layers);
    writer_adapt(&run->writer, lora, "");
    const int result = run->writer.error.code ? page_fail(run, "%s", run->writer.error.text)
                                              : write_layers(run, page, layers);
    for (int i = 0; lora && result >= 0 && i < run->writer.model->param_count; i++)
        if (page_saves(page, run->writer.model->params[i].name))
            run->writer.model->params[i].adapter = PARAM_SAVED;
    struct model *model = writer_finish(&run->writer, result < 0 ? NULL : &run->error);
    if (result < 0) {
        model_destroy(model);
        return NULL;
    }
    if (model) {
        model->max_positions = longest(run, positions);
        (void)snprintf(model->name, sizeof model->name, "%s-%dx%lld", page->section[MODEL_TYPE]->text, layers,
                       (long long)model->params[run->table].dim[1]); /* cut: for people */
        model->metadata = metadata;
    }
    return model;
}

static struct page_run *new_run(const struct page *page, struct muster_error *err)
{
    struct page_run *run = mem_calloc(1, sizeof *run);
    if (!run) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a page");
        return NULL;
    }
    run->page = page->name;
    run->config_name = page->config_name;
    run->config = page->config;
    run->of = page;
    run->layer = run->table = -1;
    run->types = run->targets = run->lengths = run->labels = -1;
    return run;
}

struct model *page_model(const struct page *page, const struct lora *lora, struct muster_error *err)
{
    scope_free struct page_run *run = new_run(page, err);
    struct model *model = run ? run_page(run, page, lora) : NULL;
    if (run && !model && err)
        *err = run->error;
    return model;
}

/* ---- reading ---- */

static int find_sections(struct page *page, struct muster_error *err)
{
    if (page->tree.document_count != 1 || page->tree.documents[0]->kind != TREE_MAP)
        return error_set(err, MUSTER_E_INVALID, "%s:1: a page is one map of keys", page->name);
    const struct tree_node *root = page->tree.documents[0];
    for (size_t i = 0; i < root->count; i++) {
        const struct tree_entry *entry = &root->entries[i];
        int s = 0;
        while (s < SECTIONS && strcmp(section_rows[s].key, entry->key) != 0)
            s++;
        if (s == SECTIONS)
            return error_set(err, MUSTER_E_INVALID, "%s:%d: a page has no key %s", page->name, entry->line,
                             entry->key);
        if (entry->value->kind != section_rows[s].kind &&
            !(section_rows[s].kind == TREE_TEXT && entry->value->kind == TREE_INT))
            return error_set(err, MUSTER_E_INVALID, "%s:%d: %s is %s, where %s is expected", page->name,
                             entry->line, entry->key, tree_kind_name(entry->value->kind),
                             tree_kind_name(section_rows[s].kind));
        page->section[s] = entry->value;
    }
    for (int s = 0; s < SECTIONS; s++)
        if (!page->section[s] && !section_rows[s].optional)
            return error_set(err, MUSTER_E_INVALID, "%s:1: %s is missing", page->name, section_rows[s].key);
    return 0;
}

static int check_model_type(const struct page *page, struct muster_error *err)
{
    const char *wanted = page->section[MODEL_TYPE]->text;
    const char *found = json_string_value(json_object_get(page->config, "model_type"));
    if (found && !strcmp(wanted, found))
        return 0;
    return error_set(err, MUSTER_E_UNSUPPORTED, "%s: model_type is %s, and %s:%d is a page of %s",
                     page->config_name, found ? found : "missing", page->name,
                     page->section[MODEL_TYPE]->line, wanted);
}

/* One run tells what else the page says of this model, and whether it fits. */
static int try_run(struct page *page, struct muster_error *err)
{
    scope_free struct page_run *run = new_run(page, err);
    if (!run)
        return -1;
    GUARD(guard_model) struct model *model = run_page(run, page, NULL);
    if (!model || read_dropout(run, page->section[DROPOUT], &page->dropout) < 0) {
        if (err)
            *err = run->error;
        return -1;
    }
    memcpy(page->tied, run->tied, sizeof page->tied);
    if (*run->tied)
        memcpy(page->tied_to, run->table_name, sizeof page->tied_to);
    page->layers = model->layer_count - 2;
    const struct layer_desc *head = &model->layers[model->layer_count - 1];
    for (int i = 0, n = 0; i < head->param_count && n < HEAD_PARAMS; i++)
        if (strcmp(model->params[head->param[i]].name, page->tied_to) != 0)
            memcpy(page->head[n++], model->params[head->param[i]].name, MODEL_NAME_LIMIT);
    return 0;
}

static int note_change(struct page *page, int result, struct muster_error *err)
{
    page->changed = page->changed || result == 0;
    return result < 0 ? error_set(err, MUSTER_E_NOMEM, "no memory for %s", page->config_name) : 0;
}

static int set_class(struct page *page, struct muster_error *err)
{
    const struct tree_node *name = page->section[CLASSIFIER];
    return name ? note_change(page, labels_set_class(page->config, name->text), err) : 0;
}

struct page *page_open(const char *name, bool own, const char *text, size_t length, const char *config_name,
                       json_t *config, struct muster_error *err)
{
    GUARD(guard_page) struct page *page = mem_calloc(1, sizeof *page);
    if (!page) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a page");
        return NULL;
    }
    atomic_init(&page->references, 1);
    page->own = own;
    page->config = json_deep_copy(config); /* labels may be set */
    page->name = mem_strdup(name);
    page->config_name = mem_strdup(config_name);
    if (!page->name || !page->config_name || !page->config) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a page");
        return NULL;
    }
    if (tree_parse(name, text, length, &page->tree, err) < 0 || find_sections(page, err) < 0 ||
        check_model_type(page, err) < 0 || set_class(page, err) < 0 || try_run(page, err) < 0)
        return NULL;
    return take_pointer(&page);
}

struct page *page_retain(struct page *page)
{
    if (page)
        atomic_fetch_add(&page->references, 1);
    return page;
}

void page_release(struct page *page)
{
    if (!page || atomic_fetch_sub(&page->references, 1) > 1)
        return;
    tree_free(&page->tree);
    json_decref(page->config);
    mem_free(page->name);
    mem_free(page->config_name);
    mem_free(page);
}

int page_set_labels(struct page *page, const char *const *names, int count, struct muster_error *err)
{
    return note_change(page, labels_set(page->config, names, count), err) < 0 ? -1 : try_run(page, err);
}
