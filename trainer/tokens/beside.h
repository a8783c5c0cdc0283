/* beside.h - the files next to a tokenizer's own, as Hugging Face's folders have them: tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json; inside of this folder. */
#ifndef MUSTER_TRAINER_TOKENS_BESIDE_H
#define MUSTER_TRAINER_TOKENS_BESIDE_H

#include <jansson.h>

#include "trainer/tokens/kinds.h"

/* NULL: that file is not there. */
struct beside {
    json_t *config, *map, *added;
};

/* Of the folder of the tokenizer's file at path; free it in any case. MUSTER_E_INVALID: a file is no JSON
 * object. */
int beside_read(struct beside *beside, const char *path, struct muster_error *err);
void beside_free(struct beside *beside);

/* tokenizer_class without an end "Fast"; the buffer stays empty where none is named. */
int beside_class(const struct beside *beside, struct buffer *out, struct muster_error *err);
/* A flag of tokenizer_config.json. */
bool beside_flag(const struct beside *beside, const char *key, bool otherwise);

/* Gives the tokenizer what these files add to it (added_tokens_decoder of tokenizer_config.json, else
 * added_tokens.json; then special tokens by their names, with a new id where none has been given); *hash
 * changes with what was new. path is for errors. */
int beside_add_tokens(const struct beside *beside, const char *path, const struct tokenizer_opened *tokenizer,
                      uint64_t *hash, struct muster_error *err);

/* Fills what special has not: bos_token, eos_token, unk_token, or, for the end of a document, a name in use.
 */
void beside_special(const struct beside *beside, const struct tokenizer_opened *tokenizer,
                    struct tokenizer_special *special);

#endif
