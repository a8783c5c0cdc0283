/* documents.h - texts as tokens. A document is a whole file, or a record of a file: a line of JSON, an
 * element of a JSON array, a row of a table. A byte order mark is no part of a text. */
#ifndef MUSTER_TRAINER_DATA_DOCUMENTS_H
#define MUSTER_TRAINER_DATA_DOCUMENTS_H

#include "trainer/columns/columns.h"
#include "trainer/data/mapping.h"
#include "trainer/data/token_cache.h"
#include "trainer/data/walk.h"
#include "trainer/tokens/tokenizer.h"

struct documents_options {
    struct tokenizer *tokenizer;
    const char *text_key; /* key of a record's text */
    struct chat *chat;    /* template of chats; NULL: chats are refused */
    int32_t end;          /* token added after each document; TOKEN_NONE: none */
    /* Called with the number of bytes read, every few megabytes and at a file's end; may be NULL. */
    void (*read)(void *context, int64_t bytes);
    void *context;
};
/* A record without text_key may be a chat (chat.h). Keys of another record: the prompt is read, the
 * completion is trained on. Each is tokenized separately. */
#define DOCUMENTS_PROMPT     "prompt"
#define DOCUMENTS_COMPLETION "completion"

/* Adds the documents of one file. Errors name the file and the line. */
int documents_read(const struct documents_options *options, const struct walk_file *file,
                   struct token_sink *sink, struct muster_error *err);

/* ---- the records of arrays and tables, for training and for muster-train prepare ---- */

struct documents_records {
    const char *text_key, *setting; /* key or column of the text, and the setting that names it */
    bool pairs, chats;              /* prompts with completions, and turns of chats are records, too */
    /* Takes a record: an object or a text. bytes: of the file; 0: not known. */
    int (*take)(void *context, const json_t *record, int64_t bytes, struct muster_error *err);
    void *context;
};

bool documents_are_records(enum walk_kind kind); /* an array, or a table of any kind */
/* Gives all records of a file, whose unpacked bytes are text. A table without a column of a record is refused
 * with the names of its columns. Errors, take's too, name the file and the line or the row. */
int documents_records(const struct documents_records *records, const struct walk_file *file,
                      const struct mapping *text, struct muster_error *err);

/* Opens a table of columns; text: the file. Errors name a table without any of the names (ended by NULL). */
struct columns *documents_open_columns(const struct walk_file *file, const struct mapping *text,
                                       const char *const *names, struct muster_error *err);

/* Whether a line of JSON lines is empty: only blanks, tabs, carriage returns and NUL bytes. Pure. */
bool documents_is_blank(const char *line, size_t length);

/* Adds the document of a line of JSON. Pure but for the tokenizer. */
int documents_add_line(const struct documents_options *options, const char *line, size_t length,
                       struct token_sink *sink, struct muster_error *err);

#endif
