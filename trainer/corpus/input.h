/* input.h - the documents of a file of the input. */
#ifndef MUSTER_TRAINER_CORPUS_INPUT_H
#define MUSTER_TRAINER_CORPUS_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "trainer/chat/chat.h"

/* ---- documents: a text, whole or cut at lines of a separator, or lines of JSON; one is held at a time ----
 */

struct split_options {
    /* Reads the next bytes, as stream_read does. */
    ssize_t (*read)(void *context, char *out, size_t size, struct muster_error *err);
    void *context;
    const char *name;      /* name of the file, for errors */
    bool lines;            /* lines of JSON */
    const char *key;       /* key of the text in a line */
    struct chat *chat;     /* makes texts of chats; NULL: a chat is an error */
    const char *separator; /* line that ends a document of a text; "": none */
    size_t limit; /* bytes of a document; a longer text is cut. A line of JSON may have 8 times as many */
};

/* Memory of the document of a record. Zeroed: empty. */
struct record_room {
    struct buffer text;
    struct jinja_spans spans;
};
void record_room_free(struct record_room *room); /* accepts a zeroed room */

struct split {
    struct split_options options;
    struct buffer held; /* bytes read; bytes before `at` belong to earlier documents */
    size_t at, scanned;
    bool begun; /* a byte order mark at the start has been skipped */
    bool ended;
    int64_t line; /* number of the last line of JSON */
    struct record_room room;
};

struct split_document {
    const char *text; /* (length) owned by split, valid until the next call */
    size_t length;
    size_t bytes; /* bytes of the file, separator included */
    bool broken;  /* the line is no JSON object with a text under the key */
    const struct jinja_spans
        *spans; /* of a chat: the parts that are trained on, valid as text is; NULL: no chat */
};

/* The document of a record of JSON, a line's or a table's: *out has the text under the key, or of a chat by
 * its template. broken: there is none. name: of the record, for errors. */
struct record_options {
    const char *key;
    struct chat *chat; /* NULL: a chat is an error */
};
int record_document(const struct record_options *options, const json_t *record, struct record_room *room,
                    struct split_document *out, struct muster_error *err);

void split_open(struct split *split, const struct split_options *options);
/* 1: *out is the next document; 0: there are no more; -1: an error. */
int split_next(struct split *split, struct split_document *out, struct muster_error *err);
void split_close(struct split *split); /* accepts NULL and a zeroed struct */

#endif
