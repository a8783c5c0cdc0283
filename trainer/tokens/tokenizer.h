/* tokenizer.h - text to token ids and back, one interface for every kind of tokenizer.
 *
 * Kinds: bytes (token ids are the bytes), Hugging Face's byte-level BPE (tokenizer.json; GPT-2's pair of
 * encoder.json and vocab.bpe), sentencepiece (a .model file, by libsentencepiece). Ids are those of
 * `tokenizers` and sentencepiece for the same text, without the special tokens that they put around a text.
 */
#ifndef MUSTER_TRAINER_TOKENS_TOKENIZER_H
#define MUSTER_TRAINER_TOKENS_TOKENIZER_H

#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "trainer/tokens/token_list.h"

enum { TOKEN_NONE = -1 };
enum { TOKENIZER_TEXT_LIMIT = 1 << 30 }; /* bytes of one text: sentencepiece counts in int */

/* Ids with a meaning; TOKEN_NONE where the tokenizer has none. */
struct tokenizer_special {
    int32_t bos, eos, unk;
};

/* From one thread at a time: it keeps the words that it has seen. */
struct tokenizer;

/* name: "bytes", or the path of a tokenizer.json, of a sentencepiece .model, of a vocab.bpe or merges.txt
 * with its encoder.json or vocab.json beside it, or of a folder that has one of these. Errors:
 * MUSTER_E_NOT_FOUND, MUSTER_E_INVALID with the place, MUSTER_E_UNSUPPORTED with the part of the file that is
 * not supported. */
struct tokenizer *tokenizer_open(const char *name, struct muster_error *err);
/* That of a model's folder; bytes where model_path is NULL, "" or a file. A folder without a tokenizer:
 * bytes, unless its config.json has a larger vocabulary than a model of bytes has, which is MUSTER_E_INVALID.
 */
struct tokenizer *tokenizer_open_of_model(const char *model_path, struct muster_error *err);
void tokenizer_destroy(struct tokenizer *tokenizer); /* accepts NULL */
GUARD_DEFINE(tokenizer, struct tokenizer *, tokenizer_destroy);

const char *tokenizer_kind(const struct tokenizer *tokenizer); /* "bytes", "byte-level BPE", ... */
/* The file that it was read from; NULL: none. */
const char *tokenizer_path(const struct tokenizer *tokenizer);
/* One more than the largest id. */
int64_t tokenizer_vocabulary(const struct tokenizer *tokenizer);
struct tokenizer_special tokenizer_special(const struct tokenizer *tokenizer);
/* The id of a token by its text ("<|endoftext|>"); TOKEN_NONE. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text);
/* Equal for equal ids of every text. */
uint64_t tokenizer_fingerprint(const struct tokenizer *tokenizer);

/* Where a long text may be cut, so that the ids of both parts together are those of the whole: at most `most`
 * bytes, or more where the tokenizer knows no such place in them; length where it ends before. */
size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t length, size_t most);
/* Adds the ids of length bytes to out. Bytes that are no UTF-8 are kept by the byte-level kinds, and are
 * U+FFFD to sentencepiece. */
int tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t length, struct token_list *out,
                     struct muster_error *err);
/* Adds the text of the ids to out; an id outside of the vocabulary is an error. */
int tokenizer_decode(struct tokenizer *tokenizer, const int32_t *tokens, size_t count, struct buffer *out,
                     struct muster_error *err);
/* Writes its files into folder, under the names that Hugging Face's folders have (tokenizer.json,
 * tokenizer.model, vocab.json and merges.txt), so that tokenizer_open finds them there. Bytes have none. */
int tokenizer_copy(const struct tokenizer *tokenizer, const char *folder, struct muster_error *err);

#endif
