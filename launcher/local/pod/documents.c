/* documents.c - see documents.h. */
#include "launcher/local/pod/documents.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/local/pod/placeholder.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

static int no_memory(struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory");
}

static const char *or_else(const char *text, const char *otherwise)
{
    return text && *text ? text : otherwise;
}

/* The kind of a list's items; kind NULL: they name their own. */
struct list_kind {
    const char *kind, *version;
};

static int add_object(struct documents *documents, const char *file, const struct tree_node *node,
                      const struct list_kind *of, struct muster_error *err)
{
    const struct tree_node *metadata = tree_get(node, "metadata");
    const char *kind = of ? of->kind : tree_text(tree_get(node, "kind")),
               *version = of ? of->version : tree_text(tree_get(node, "apiVersion"));
    if (node->kind != TREE_MAP)
        return error_set(err, MUSTER_E_INVALID, "%s:%d:%d: %s is not a Kubernetes object", file, node->line,
                         node->column, tree_kind_name(node->kind));
    if (!kind || !version)
        return error_set(err, MUSTER_E_INVALID,
                         "%s:%d:%d: an object needs apiVersion and kind; this one has no %s", file,
                         node->line, node->column, kind ? "apiVersion" : "kind");
    void *longer = mem_realloc(documents->objects, documents->object_count + 1, sizeof *documents->objects);
    if (!longer)
        return no_memory(err);
    documents->objects = longer;
    documents->objects[documents->object_count++] =
        (struct document_object){file,
                                 node,
                                 version,
                                 kind,
                                 or_else(tree_text(tree_get(metadata, "name")), ""),
                                 or_else(tree_text(tree_get(metadata, "namespace")), "default")};
    return 0;
}

/* An item of a list of one kind, as the API server writes it, has neither kind nor apiVersion. */
static int add_item(struct documents *documents, const char *file, const struct tree_node *node,
                    const struct list_kind *of, struct muster_error *err)
{
    bool typed = tree_get(node, "kind") && tree_get(node, "apiVersion");
    if (typed || !of->kind)
        return add_object(documents, file, node, NULL, err);
    return add_object(documents, file, node, of, err);
}

/* A document, or the items of a document of kind List, PyTorchJobList, ... */
static int add_document(struct documents *documents, const char *file, const struct tree_node *node,
                        struct muster_error *err)
{
    const char *kind = tree_text(tree_get(node, "kind")), *version = tree_text(tree_get(node, "apiVersion"));
    const struct tree_node *items = tree_get(node, "items");
    size_t length = kind ? strlen(kind) : 0;
    bool list =
        version && length >= 4 && !strcmp(kind + length - 4, "List") && items && items->kind == TREE_LIST;
    struct list_kind of = {NULL, version};
    if (!list)
        return add_object(documents, file, node, NULL, err);
    if (length > 4) {
        void *longer = mem_realloc(documents->kinds, documents->kind_count + 1, sizeof *documents->kinds);
        char *single = mem_strndup(kind, length - 4);
        if (longer)
            documents->kinds = longer;
        if (!longer || !single) {
            mem_free(single);
            return no_memory(err);
        }
        of.kind = documents->kinds[documents->kind_count++] = single;
    }
    for (size_t i = 0; i < items->count; i++)
        if (add_item(documents, file, items->items[i], &of, err) < 0)
            return -1;
    return 0;
}

/* The text of the line that err names ("FILE:LINE:COLUMN: why"), in fresh memory; NULL: it names none. */
static char *failed_line(const char *name, const char *text, const struct muster_error *err, int *line)
{
    size_t length = strlen(name);
    bool placed = !strncmp(err->text, name, length) && err->text[length] == ':';
    *line = placed ? (int)strtol(err->text + length + 1, NULL, 10) : 0;
    for (int i = 1; i < *line && text; i++) {
        const char *end = strchr(text, '\n');
        text = end ? end + 1 : NULL;
    }
    return *line > 0 && text ? mem_strndup(text, strcspn(text, "\n")) : NULL;
}

/* A template that was not rendered is the usual reason why a file is no YAML. */
static int explain_template(const char *name, const char *text, size_t length, struct muster_error *err)
{
    int line, first;
    scope_free char *copy = mem_strndup(text, length);
    scope_free char *there = copy ? failed_line(name, copy, err, &line) : NULL;
    struct placeholder found = placeholder_in_text(there);
    if (!copy)
        return -1;
    if (found.kind == PLACEHOLDER_SHELL || found.kind == PLACEHOLDER_PARENS ||
        found.kind == PLACEHOLDER_MARK) {
        /* a shell's own, perhaps */
        const struct muster_error why = *err;
        return error_set(err, MUSTER_E_INVALID, "%.300s; was %s to be substituted? %s", why.text, found.text,
                         placeholder_advice(found.kind));
    }
    if (found.kind == PLACEHOLDER_NONE) {
        found = placeholder_in_file(copy, strlen(copy), &first);
        line = first;
    }
    if (found.kind == PLACEHOLDER_NONE)
        return -1;
    return error_set(err, MUSTER_E_INVALID, "%s:%d: %s was not substituted: %s", name, line, found.text,
                     placeholder_advice(found.kind));
}

int documents_add_text(struct documents *documents, const char *name, const char *text, size_t length,
                       struct muster_error *err)
{
    struct document_file file = {0};
    if (documents->file_count == DOCUMENTS_FILES_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "more than %d files were given", DOCUMENTS_FILES_LIMIT);
    void *longer = mem_realloc(documents->files, documents->file_count + 1, sizeof *documents->files);
    if (!longer)
        return no_memory(err);
    documents->files = longer;
    if (tree_parse(name, text, length, &file.tree, err) < 0)
        return err->code == MUSTER_E_INVALID ? explain_template(name, text, length, err) : -1;
    file.name = mem_strdup(name);
    if (!file.name) {
        tree_free(&file.tree);
        return no_memory(err);
    }
    documents->files[documents->file_count++] = file;
    for (size_t i = 0; i < file.tree.document_count; i++)
        if (add_document(documents, file.name, file.tree.documents[i], err) < 0)
            return -1;
    return 0;
}

/* --- files --- */

static int add_stdin(struct documents *documents, struct muster_error *err)
{
    scope_buffer text = {.limit = TREE_BYTES_LIMIT + 4096};
    for (;;) {
        char *room = buffer_reserve(&text, 4096);
        if (!room)
            return error_set(err, MUSTER_E_LIMIT, "the standard input is larger than %d bytes",
                             TREE_BYTES_LIMIT);
        ssize_t got = TEMP_FAILURE_RETRY(read(STDIN_FILENO, room, 4096));
        if (got < 0)
            return error_errno(err, "cannot read the standard input");
        if (got == 0)
            return documents_add_text(documents, "stdin", text.data, text.length, err);
        text.length += (size_t)got;
    }
}

static int add_file(struct documents *documents, const char *path, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(path, TREE_BYTES_LIMIT, &text, err) < 0)
        return -1;
    return documents_add_text(documents, path, text.data ? text.data : "", text.length, err);
}

static int is_manifest(const struct dirent *entry)
{
    static const char *const suffixes[] = {".yaml", ".yml", ".json"};
    const char *dot = strrchr(entry->d_name, '.');
    for (size_t i = 0; dot && i < sizeof suffixes / sizeof *suffixes; i++)
        if (!strcmp(dot, suffixes[i]))
            return 1;
    return 0;
}

static bool has_file(const char *folder, const char *name)
{
    scope_free char *path = mem_printf("%s/%s", folder, name);
    return path && access(path, F_OK) == 0;
}

static int add_folder(struct documents *documents, const char *path, struct muster_error *err)
{
    struct dirent **entries;
    if (has_file(path, "Chart.yaml"))
        return error_set(err, MUSTER_E_INVALID, "%s is a Helm chart: %s", path,
                         placeholder_advice(PLACEHOLDER_HELM));
    int count = scandir(path, &entries, is_manifest, alphasort), result = 0;
    if (count < 0)
        return error_errno(err, "cannot read the folder %s", path);
    if (count == 0)
        result = error_set(err, MUSTER_E_NOT_FOUND, "%s: the folder has no .yaml, .yml or .json files", path);
    for (int i = 0; i < count; i++) {
        scope_free char *file =
            mem_printf("%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", entries[i]->d_name);
        if (!result)
            result = file ? add_file(documents, file, err) : no_memory(err);
        free(entries[i]); /* scandir's own */
    }
    free(entries);
    return result;
}

int documents_add_path(struct documents *documents, const char *path, struct muster_error *err)
{
    struct stat status;
    if (!strcmp(path, "-"))
        return add_stdin(documents, err);
    if (!*path)
        return error_set(err, MUSTER_E_INVALID, "a file name is empty");
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return add_folder(documents, path, err);
    return add_file(documents, path, err);
}

const struct document_object *documents_find(const struct documents *documents, const char *kind,
                                             const char *namespace_, const char *name)
{
    for (size_t i = 0; i < documents->object_count; i++) {
        const struct document_object *object = &documents->objects[i];
        if (!strcmp(object->kind, kind) && !strcmp(object->api_version, "v1") &&
            !strcmp(object->name, name) && !strcmp(object->namespace_, namespace_))
            return object;
    }
    return NULL;
}

void documents_free(struct documents *documents)
{
    if (!documents)
        return;
    for (size_t i = 0; i < documents->file_count; i++) {
        mem_free(documents->files[i].name);
        tree_free(&documents->files[i].tree);
    }
    for (size_t i = 0; i < documents->kind_count; i++)
        mem_free(documents->kinds[i]);
    mem_free(documents->kinds);
    mem_free(documents->files);
    mem_free(documents->objects);
    *documents = (struct documents){0};
}
