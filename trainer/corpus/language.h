/* language.h - the language of a text by n-grams of characters, by libexttextcat, which is loaded where it is
 * asked for. */
#ifndef MUSTER_TRAINER_CORPUS_LANGUAGE_H
#define MUSTER_TRAINER_CORPUS_LANGUAGE_H

#include <stddef.h>

#include "proto/base/guard.h"
#include "proto/include/muster_error.h"

/* From one thread at a time. */
struct language;

/* kept: "en,de", codes of the lines of folder/fpdb.conf. Errors: the library is missing, with its package;
 * the folder has no such languages, which are listed. */
struct language *language_open(const char *kept, const char *folder, struct muster_error *err);
void language_close(struct language *language); /* accepts NULL */
GUARD_DEFINE(language, struct language *, language_close);
/* 1: a text in one of the languages; 0: in others; NAN: too short to judge. */
double language_measure(struct language *language, const char *text, size_t length);

#endif
