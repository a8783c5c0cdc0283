/* documents.c - see documents.h. */
#include "launcher/local/pod/documents.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static int add_object(struct documents *documents, const char *file, const struct tree_node *node,
                      struct muster_error *err)
{
    const struct tree_node *metadata = tree_get(node, "metadata");
    const char *kind = tree_text(tree_get(node, "kind")), *version = tree_text(tree_get(node, "apiVersion"));
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

/* A document, or the items of one whose kind is List. */
static int add_document(struct documents *documents, const char *file, const struct tree_node *node,
                        struct muster_error *err)
{
    const char *kind = tree_text(tree_get(node, "kind")), *version = tree_text(tree_get(node, "apiVersion"));
    const struct tree_node *items = tree_get(node, "items");
    if (!kind || !version || strcmp(kind, "List") || strcmp(version, "v1") || !items ||
        items->kind != TREE_LIST)
        return add_object(documents, file, node, err);
    for (size_t i = 0; i < items->count; i++)
        if (add_object(documents, file, items->items[i], err) < 0)
            return -1;
    return 0;
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
        return -1;
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

static int add_folder(struct documents *documents, const char *path, struct muster_error *err)
{
    struct dirent **entries;
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
    mem_free(documents->files);
    mem_free(documents->objects);
    *documents = (struct documents){0};
}
