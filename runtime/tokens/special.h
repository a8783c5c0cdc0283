/* special.h - which tokens begin and end a document, by the files beside a tokenizer; inside of this folder.
 */
#ifndef MUSTER_RUNTIME_TOKENS_SPECIAL_H
#define MUSTER_RUNTIME_TOKENS_SPECIAL_H

#include "runtime/tokens/tokenizer.h"

/* Fills what special has not from tokenizer_config.json (bos_token, eos_token, unk_token) beside the
 * tokenizer's file, or, for the end of a document, from the names in use. No such file is no error. */
int special_read_beside(const struct tokenizer *tokenizer, struct tokenizer_special *special,
                        struct muster_error *err);

#endif
