/* measure.h - what the rules look at, measured of one text. Pure but for memory. */
#ifndef MUSTER_TRAINER_CORPUS_MEASURE_H
#define MUSTER_TRAINER_CORPUS_MEASURE_H

#include <stddef.h>

#include "trainer/corpus/rules.h"
#include "trainer/corpus/words.h"

/* Memory that is kept from text to text. Zeroed: empty. */
struct measure_room {
    struct hash_set seen;
};
void measure_room_free(struct measure_room *room); /* accepts NULL */

struct measure_lists {
    const struct hash_set *blocked, *required; /* hashes of words (words_hash); NULL: not measured */
};

/* Fills the values but those of RULE_JSON, RULE_UTF8 and RULE_LANGUAGE, which are NAN. text is UTF-8, words
 * are its words. -1: no memory. */
int measure_text(struct measure_room *room, const struct measure_lists *lists, const char *text,
                 size_t length, const struct words *words, struct measures *out);

#endif
