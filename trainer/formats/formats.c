/* formats.c - see formats.h: reads files in order, each by the reader of its format. */
#include "trainer/formats/formats.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/knob.h"
#include "runtime/config/train_config_check.h"
#include "trainer/formats/formats_internal.h"
#include "trainer/formats/meant.h"
#include "trainer/formats/stages.h"

/* The first row that recognises a file reads it; the last row reads any file. */
static const struct format {
    bool (*recognise)(const struct tree_node *root);
    int (*read)(struct key_walk *walk, const struct tree_node *root);
} formats[] = {
    {sections_recognise, sections_read},
    {deepspeed_recognise, deepspeed_read},
    {model_recognise, model_read},
    {arguments_recognise, arguments_read},
    {NULL, sections_read}, /* a file without a known section */
};
enum { DEPTH_LIMIT = 3 }; /* files that name files */

struct source {
    struct assign *assign;
    int depth;
};

static int parse_file(struct source *source, const char *name, char *text, size_t length);
static int read_path(struct source *source, const char *path);

/* ---- a file ---- */

/* The end of a comment of Hjson at text[at]; at: there is none. */
static size_t comment_end(const char *text, size_t length, size_t at)
{
    const char kind = at + 1 < length && text[at] == '/' ? text[at + 1] : '\0';
    size_t end = at;
    if (kind == '/') {
        while (end < length && text[end] != '\n')
            end++;
    } else if (kind == '*') {
        for (end += 2; end < length && !(text[end - 1] == '*' && text[end] == '/' && end > at + 2);)
            end++;
        end += end < length;
    }
    return end;
}

/* Replaces comments by blanks, which keeps lines and columns: DeepSpeed reads Hjson. */
static void blank_comments(char *text, size_t length)
{
    size_t at = 0;
    bool quoted = false;
    while (at < length && text[at] && strchr(" \t\r\n", text[at]))
        at++;
    if (at == length || (text[at] != '{' && text[at] != '/'))
        return; /* YAML, whose paths may have slashes */
    while (at < length) {
        const size_t end = quoted ? at : comment_end(text, length, at);
        for (size_t i = at; i < end; i++)
            text[i] = text[i] == '\n' ? '\n' : ' ';
        if (end > at) {
            at = end;
            continue;
        }
        if (text[at] == '"')
            quoted = !quoted;
        at += quoted && text[at] == '\\' ? 2 : 1;
    }
}

/* A ConfigMap of Kubernetes: each value is a file. */
static int read_config_map(struct source *source, const char *name, const struct tree_node *root)
{
    const struct tree_node *data = tree_get(root, "data");
    if (!data || data->kind != TREE_MAP || !data->count)
        return error_set(source->assign->err, MUSTER_E_INVALID,
                         "%s: the ConfigMap has no files: data is missing or empty", name);
    for (size_t i = 0; i < data->count; i++) {
        const struct tree_node *file = data->entries[i].value;
        scope_free char *inner = mem_printf("%s/%s", name, data->entries[i].key);
        scope_free char *text = file->text ? mem_strdup(file->text) : NULL;
        if (file->text && (!inner || !text))
            return assign_no_memory(source->assign);
        if (file->kind != TREE_TEXT)
            return error_set(source->assign->err, MUSTER_E_INVALID,
                             "%s:%d:%d: %s found where the text of the file %s is expected", name, file->line,
                             file->column, tree_kind_name(file->kind), data->entries[i].key);
        if (parse_file(source, inner, text, strlen(text)) < 0)
            return -1;
    }
    return 0;
}

static int refuse_manifest(struct source *source, const char *name, const struct tree_node *root)
{
    const struct tree_node *kind = tree_get(root, "kind");
    return error_set(
        source->assign->err, MUSTER_E_INVALID,
        "%s:%d:%d: this is a manifest of Kubernetes (%.60s), not a configuration; `muster local -f` "
        "runs PyTorchJobs, and a ConfigMap's files can be read here",
        name, kind->line, kind->column, kind->text ? kind->text : "of no kind");
}

static int read_manifest(struct source *source, const char *name, const struct tree_node *root)
{
    const struct tree_node *kind = tree_get(root, "kind");
    return kind->text && !strcmp(kind->text, "ConfigMap") ? read_config_map(source, name, root)
                                                          : refuse_manifest(source, name, root);
}

/* Opens a file that walk->file names: at the given path, or next to walk->file. */
static int open_named_file(struct key_walk *walk, const char *path, const struct tree_node *node)
{
    struct source *source = walk->context;
    char where[KEY_PLACE];
    const char *slash = strrchr(walk->file, '/');
    struct stat info;
    scope_free char *sibling =
        slash && *path != '/' ? mem_printf("%.*s/%s", (int)(slash - walk->file), walk->file, path) : NULL;
    if (source->depth == DEPTH_LIMIT)
        return error_set(walk->assign->err, MUSTER_E_LIMIT, "%s: more than %d files that name each other",
                         key_place(walk, node->line, node->column, where), DEPTH_LIMIT);
    if (stat(path, &info) < 0 && sibling && !stat(sibling, &info))
        path = sibling;
    source->depth++;
    const int result = read_path(source, path);
    source->depth--;
    return result < 0 ? error_wrap(walk->assign->err, "%s", key_place(walk, node->line, node->column, where))
                      : 0;
}

static int read_root(struct source *source, const char *name, const struct tree_node *root)
{
    scope_buffer ignored = {0};
    struct key_walk walk = {.assign = source->assign,
                            .file = name,
                            .root = root,
                            .open = open_named_file,
                            .context = source,
                            .ignored = &ignored};
    int at = 0;
    while (formats[at].recognise && !formats[at].recognise(root))
        at++;
    if (formats[at].read(&walk, root) < 0)
        return -1;
    return ignored.length ? assign_note(source->assign, "%s: no effect here: %s", name, ignored.data) : 0;
}

static int read_tree(struct source *source, const char *name, const struct tree *tree)
{
    const struct tree_node *root = tree->document_count ? tree->documents[0] : NULL;
    struct muster_error *err = source->assign->err;
    if (!root)
        return 0;
    if (tree_get(root, "kind") && tree_get(root, "apiVersion"))
        return tree->document_count > 1 ? refuse_manifest(source, name, root)
                                        : read_manifest(source, name, root);
    if (tree->document_count > 1)
        return error_set(err, MUSTER_E_INVALID,
                         "%s:%d:%d: the configuration must be one document; this file has %zu", name,
                         tree->documents[1]->line, tree->documents[1]->column, tree->document_count);
    if (root->kind != TREE_MAP)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s:%d:%d: the file is not a mapping with the sections training, model, data, logging", name,
            root->line, root->column);
    if (foreign_tags(name, root, err) < 0 || foreign_tree(name, root, err) < 0)
        return -1;
    return read_root(source, name, root);
}

static int parse_file(struct source *source, const char *name, char *text, size_t length)
{
    struct tree tree;
    if (foreign_text(name, text, length, source->assign->err) < 0)
        return -1;
    blank_comments(text, length);
    if (tree_parse(name, text, length, &tree, source->assign->err) < 0)
        return -1;
    const int result = read_tree(source, name, &tree);
    tree_free(&tree);
    return result;
}

/* ---- paths ---- */

static int is_configuration(const struct dirent *entry)
{
    static const char *const endings[] = {".json", ".yaml", ".yml"};
    const char *dot = strrchr(entry->d_name, '.');
    for (int i = 0; i < 3; i++)
        if (dot && dot != entry->d_name && !strcmp(dot, endings[i]))
            return 1;
    return 0;
}

static int read_folder(struct source *source, const char *path)
{
    struct dirent **entries = NULL;
    if (foreign_folder(path, source->assign->err) < 0)
        return -1;
    const int count = scandir(path, &entries, is_configuration, alphasort);
    int result = 0;
    if (count < 0)
        return error_errno(source->assign->err, "%s: cannot read the folder", path);
    if (count == 0)
        result = error_set(source->assign->err, MUSTER_E_INVALID,
                           "%s: the folder has no .json, .yaml or .yml file", path);
    else if (count > FORMATS_FILES_LIMIT)
        result = error_set(source->assign->err, MUSTER_E_LIMIT, "%s: the folder has %d files; at most %d",
                           path, count, FORMATS_FILES_LIMIT);
    for (int i = 0; i < count; i++) {
        scope_free char *file = mem_printf("%s/%s", path, entries[i]->d_name);
        if (!result)
            result = file ? read_path(source, file) : assign_no_memory(source->assign);
        free(entries[i]); /* allocated by scandir */
    }
    free(entries);
    return result;
}

static int read_path(struct source *source, const char *text_of_path)
{
    scope_buffer text = {0};
    scope_free char *path = NULL;
    struct stat info;
    if (knob_path(text_of_path, &path, source->assign->err) < 0)
        return -1;
    if (!stat(path, &info) && S_ISDIR(info.st_mode))
        return source->depth ? error_set(source->assign->err, MUSTER_E_INVALID, "%s is a folder", path)
                             : read_folder(source, path);
    if (io_read_file(path, TREE_BYTES_LIMIT, &text, source->assign->err) < 0)
        return -1;
    return text.data ? parse_file(source, path, text.data, text.length) : 0;
}

/* ---- options of the command line ---- */

bool formats_option(const char *name)
{
    scope_free char *key = mem_strdup(name);
    for (char *c = key; c && *c; c++)
        *c = *c == '-' ? '_' : *c;
    const char *inner = key ? arguments_inner(key) : NULL;
    return inner && !strchr(inner, '.') && key_find(&arguments_keys, inner);
}

const char *formats_nearest_option(const char *name)
{
    return key_nearest(&arguments_keys, "", arguments_inner(name));
}

static int read_option(struct source *source, const char *option)
{
    const char *equals = strchr(option, '=');
    scope_buffer ignored = {0};
    scope_free char *name = equals ? mem_strndup(option, (size_t)(equals - option)) : mem_strdup(option);
    scope_free char *shown = name ? mem_printf("--%s", name) : NULL;
    if (!shown)
        return assign_no_memory(source->assign);
    struct key_walk walk = {.assign = source->assign,
                            .file = shown,
                            .is_option = true,
                            .open = open_named_file,
                            .context = source,
                            .ignored = &ignored};
    if (arguments_option(&walk, name, equals ? equals + 1 : NULL) < 0)
        return -1;
    return ignored.length ? assign_note(source->assign, "%s has no effect here", shown) : 0;
}

/* ---- a request ---- */

static int read_all(struct source *source, const struct formats_request *request)
{
    for (int i = 0; i < request->path_count; i++)
        if (read_path(source, request->paths[i]) < 0)
            return -1;
    for (int i = 0; i < request->option_count; i++)
        if (read_option(source, request->options[i]) < 0)
            return -1;
    return 0;
}

/* A --set of steps, tokens or epochs replaces the other lengths of files. */
static int settle_length(struct assign *assign)
{
    static const char *const lengths[] = {"training.steps", "training.tokens", "training.epochs"};
    enum { COUNT = sizeof lengths / sizeof *lengths };
    bool any = false; /* the check refuses several lengths */
    for (int i = 0; i < COUNT; i++)
        any |= assign_overridden(assign, lengths[i]);
    for (int i = 0; any && i < COUNT; i++)
        if (!assign_overridden(assign, lengths[i]) && assign_reset(assign, lengths[i]) < 0)
            return -1;
    return 0;
}

static int check_settings(const char *name, const struct train_config *config, struct muster_error *err)
{
    return stages_count(config) ? stages_check(name, config, err)
                                : train_config_check(name, config, TRAIN_ALL, err);
}

/* Applies --set, rules and checks. name: put before errors about several keys; NULL: none. */
static int settle(struct assign *assign, bool unchecked, const char *name)
{
    scope_free char *prefix = mem_printf("%s%s", name ? name : "", name ? ": " : "");
    if (!prefix)
        return assign_no_memory(assign);
    for (int i = 0; i < assign->override_count; i++)
        if ((stage_is_override(assign->overrides[i]) ? stage_override : assign_override_text)(
                assign, assign->overrides[i]) < 0)
            return -1;
    if (settle_length(assign) < 0 || finish_settings(assign) < 0 ||
        (!unchecked && check_settings(prefix, assign->config, assign->err) < 0))
        return -1;
    return finish_checked(assign);
}

static int settings_begin(struct formats_settings *settings, const struct formats_request *request,
                          struct assign *assign, struct muster_error *err)
{
    *settings = (struct formats_settings){0};
    *assign = (struct assign){.config = &settings->config,
                              .meant = setting_meant,
                              .places = settings->places,
                              .notes = &settings->notes,
                              .overrides = request->overrides,
                              .override_count = request->override_count,
                              .world_size = request->world_size > 0 ? request->world_size : 1,
                              .err = err};
    return knob_defaults(train_config_table(), &settings->config, err);
}

static int settings_end(struct formats_settings *settings, struct assign *assign, int result)
{
    assign_free(assign);
    if (result < 0) {
        struct buffer notes = settings->notes;
        settings->notes = (struct buffer){0};
        formats_free(settings);
        settings->notes = notes;
    }
    return result;
}

int formats_read(const struct formats_request *request, struct formats_settings *settings,
                 struct muster_error *err)
{
    struct assign assign;
    struct source source = {.assign = &assign};
    int result = settings_begin(settings, request, &assign, err);
    if (!result)
        result = read_all(&source, request);
    if (!result)
        result = settle(&assign, request->unchecked, request->path_count == 1 ? request->paths[0] : NULL);
    return settings_end(settings, &assign, result);
}

int formats_parse(const char *name, const char *text, size_t length, char *const *overrides,
                  int override_count, int world_size, struct formats_settings *settings,
                  struct muster_error *err)
{
    const struct formats_request request = {
        .overrides = overrides, .override_count = override_count, .world_size = world_size};
    struct assign assign;
    struct source source = {.assign = &assign};
    scope_free char *copy = mem_calloc(length + 1, 1);
    if (copy && length)
        memcpy(copy, text, length);
    int result = settings_begin(settings, &request, &assign, err);
    if (!result)
        result = copy ? parse_file(&source, name, copy, length) : assign_no_memory(&assign);
    if (!result)
        result = settle(&assign, false, name);
    return settings_end(settings, &assign, result);
}

int formats_check(struct formats_settings *settings, struct muster_error *err)
{
    static char stand_in[] = "data";
    struct train_config *c = &settings->config;
    char *path = c->path;
    if ((!path || !*path) && !(c->data_sources && c->data_sources[0]))
        c->path = stand_in; /* only this error is left out */
    const int result = check_settings("", c, err);
    c->path = path;
    return result;
}

void formats_free(struct formats_settings *settings)
{
    if (!settings)
        return;
    train_config_free(&settings->config);
    for (int i = 0; i < TRAIN_CONFIG_KEYS; i++) {
        mem_free(settings->places[i]);
        settings->places[i] = NULL;
    }
    buffer_free(&settings->notes);
}
