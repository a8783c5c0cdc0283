/* selection.h - some documents of a corpus, one behind the other, as a stream of their own. */
#ifndef MUSTER_TRAINER_DATA_SELECTION_H
#define MUSTER_TRAINER_DATA_SELECTION_H

#include "trainer/data/corpus.h"

struct selection {
    int64_t *document; /* (count) numbers in the corpus, ascending */
    int64_t *start;    /* (count + 1) tokens before each */
    int64_t count;
};

/* Holds documents out by a hash of their first tokens alone, so that another document moves none: about a
 * `share` of them, or, where that are none, the one whose hash is the smallest; never all. A text that grows
 * at its end stays on its side, and equal texts are on the same one. The corpus knows where documents end. */
int selection_split(const struct corpus *corpus, double share, struct selection *rest, struct selection *held,
                    struct muster_error *err);
void selection_free(struct selection *selection); /* accepts NULL and a zeroed one */
int64_t selection_tokens(const struct selection *selection);
/* Tokens from..from + count - 1 of the stream, all of them there; as corpus_read. */
void selection_read(const struct selection *selection, const struct corpus *corpus, int64_t from,
                    int64_t count, int32_t *out);

#endif
