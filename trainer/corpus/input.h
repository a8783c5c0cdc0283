/* split.h - the documents of a file: a text as a whole or cut at lines of a separator, or the lines of JSON.
 * Holds one document at a time. */
#ifndef MUSTER_TRAINER_CORPUS_SPLIT_H
#define MUSTER_TRAINER_CORPUS_SPLIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

struct split_options {
    /* The next bytes, as stream_read. */
    ssize_t (*read)(void *context, char *out, size_t size, struct muster_error *err);
    void *context;
    const char *name;      /* of the file, for errors */
    bool lines;            /* of JSON */
    const char *key;       /* of the text in them */
    const char *separator; /* ""; of a text: none */
    size_t limit; /* bytes of a document; a longer text is cut, a line of JSON may have 8 times as many */
};

struct split {
    struct split_options options;
    struct buffer held; /* bytes from `at` on are not given out */
    size_t at, scanned;
    bool begun; /* the mark in front, if there is one, is behind us */
    bool ended;
    int64_t line; /* of JSON, the last one read */
    struct buffer text;
};

struct split_document {
    const char *text; /* (length) the split's, until the next call */
    size_t length;
    size_t bytes; /* of the file, separator included */
    bool broken;  /* a line that is no JSON object with a text under the key */
};

void split_open(struct split *split, const struct split_options *options);
/* 1: *out is the next document; 0: there are no more; -1: an error. */
int split_next(struct split *split, struct split_document *out, struct muster_error *err);
void split_close(struct split *split); /* accepts NULL and a zeroed one */

#endif
