/* problems.h - all errors and oddities of a manifest, each with the field's path and its place in the
 * file: a user wants all of them at once. */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_PROBLEMS_H
#define MUSTER_LAUNCHER_LOCAL_POD_PROBLEMS_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/buffer.h"
#include "proto/tree/tree.h"

/* A field's path, built on the stack from the root down: spec.pytorchReplicaSpecs[Master].replicas. */
struct path {
    const struct path *up; /* NULL: the root */
    const char *name;      /* NULL: an index */
    size_t index;
    bool key; /* a map's key, shown in brackets as Kubernetes does */
};

#define PATH_FIELD(up, field)  (&(const struct path){up, field, 0, false})
#define PATH_KEY(up, field)    (&(const struct path){up, field, 0, true})
#define PATH_INDEX(up, number) (&(const struct path){up, NULL, number, false})

/* As in the API server's messages, and others without one there. */
enum problem_type {
    PROBLEM_INVALID,
    PROBLEM_REQUIRED,
    PROBLEM_FORBIDDEN,
    PROBLEM_NOT_SUPPORTED,
    PROBLEM_WARNING, /* a cluster would accept it */
    PROBLEM_NOTE,    /* not emulated: without a place, so that it is reported once */
};

enum { PROBLEMS_LIMIT = 200 }; /* further ones are counted */

struct problem {
    enum problem_type type;
    char *field; /* "" for the object as a whole */
    char *text;  /* the whole line: "job.yaml:3:5: spec.x: Forbidden: why" */
};

struct problems {
    struct problem *list;
    size_t count, left_out;
    size_t errors; /* neither warnings nor notes; also errors that were left out */
    size_t fatal;  /* errors with which no pods can be made, with or without validation */
    bool failed;   /* no memory: the list is not complete */
};

/* file and the place of at (NULL: none) come before the path (NULL: none) and the text. An equal line is
 * not repeated. */
void problems_add(struct problems *problems, enum problem_type type, const char *file,
                  const struct tree_node *at, const struct path *path, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* The latest is fatal. */
void problems_fatal(struct problems *problems);
/* A path as a message shows it, appended. */
void problems_path(const struct path *path, struct buffer *out);
void problems_free(struct problems *problems);

#endif
