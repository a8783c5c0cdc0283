/* documents.h - texts as tokens: a file is a document, or each of its records is (lines of JSON, an array of
 * JSON, the rows of a table). A byte order mark is no part of a text. */
#ifndef MUSTER_TRAINER_DATA_DOCUMENTS_H
#define MUSTER_TRAINER_DATA_DOCUMENTS_H

#include "trainer/data/token_sink.h"
#include "trainer/data/walk.h"
#include "trainer/tokens/tokenizer.h"

struct documents_options {
    struct tokenizer *tokenizer;
    const char *text_key; /* of a line whose text is trained on */
    int32_t end;          /* token behind every document; TOKEN_NONE: nothing */
    /* Gets the number of bytes that were read, every few megabytes and at a file's end; may be NULL. */
    void (*read)(void *context, int64_t bytes);
    void *context;
};
/* A line without text_key has these: the prompt is read, and the completion is trained on. Each is tokenized
 * by itself. */
#define DOCUMENTS_PROMPT     "prompt"
#define DOCUMENTS_COMPLETION "completion"

/* Adds the documents of one file. Errors name the file and the line. */
int documents_read(const struct documents_options *options, const struct walk_file *file,
                   struct token_sink *sink, struct muster_error *err);

/* The tokens of one line of JSON, without the end of the document. Pure but for the tokenizer. */
int documents_add_line(const struct documents_options *options, const char *line, size_t length,
                       struct token_sink *sink, struct muster_error *err);

#endif
