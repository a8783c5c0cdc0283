/* documents.h - the files of -f and the objects in them, as kubectl reads them: several documents in a
 * file, lists of objects, folders, the standard input. */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_DOCUMENTS_H
#define MUSTER_LAUNCHER_LOCAL_POD_DOCUMENTS_H

#include <stddef.h>

#include "proto/include/muster_error.h"
#include "proto/tree/tree.h"

enum { DOCUMENTS_FILES_LIMIT = 1000 };

struct document_object {
    const char *file;
    const struct tree_node *node;
    const char *api_version, *kind;
    const char *name, *namespace_; /* "" and "default" where not given */
};

struct document_file {
    char *name;
    struct tree tree;
};

struct documents {
    struct document_file *files; /* unordered while files are added */
    size_t file_count;
    struct document_object *objects;
    size_t object_count;
    char **kinds; /* kinds of items that do not name their own */
    size_t kind_count;
};

/* Adds the objects of one text; every document must be an object with a kind. */
int documents_add_text(struct documents *documents, const char *name, const char *text, size_t length,
                       struct muster_error *err);
/* Adds a file, the *.yaml, *.yml and *.json files of a folder, or the standard input ("-"). */
int documents_add_path(struct documents *documents, const char *path, struct muster_error *err);
/* The object of this kind, namespace and name, or NULL. */
const struct document_object *documents_find(const struct documents *documents, const char *kind,
                                             const char *namespace_, const char *name);
void documents_free(struct documents *documents);

#endif
