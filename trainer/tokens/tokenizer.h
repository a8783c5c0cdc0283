/* tokenizer.h - text to token ids and back: one interface for every kind of tokenizer.
 *
 * Kinds: bytes (token ids are the bytes), BPE and WordPiece (tokenizer.json; GPT-2's pair of encoder.json and
 * vocab.bpe; files of tiktoken, tekken.json; vocab.txt), sentencepiece (a .model file, by libsentencepiece).
 * For the same text, `tokenizers`, tiktoken, mistral_common and sentencepiece give the same ids, apart from
 * the special tokens that they put around a text.
 */
#ifndef MUSTER_TRAINER_TOKENS_TOKENIZER_H
#define MUSTER_TRAINER_TOKENS_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/include/muster_error.h"

/* ---- a growable list of token ids that remembers its first failure, as struct buffer does ---- */

struct token_list {
    int32_t *tokens;
    size_t count, capacity;
    bool failed; /* no memory; later additions do nothing */
};

/* Room for `more` tokens at the end; NULL after a failure. The caller adds the number written to count. */
static inline int32_t *token_list_reserve(struct token_list *list, size_t more)
{
    if (list->failed)
        return NULL;
    if (list->capacity - list->count < more) {
        const size_t wanted = (list->count + more) * 2 + 64;
        int32_t *grown = (int32_t *)mem_realloc(list->tokens, wanted, sizeof *grown);
        if (!grown) {
            list->failed = true;
            return NULL;
        }
        list->tokens = grown;
        list->capacity = wanted;
    }
    return list->tokens + list->count;
}

static inline void token_list_add(struct token_list *list, const int32_t *tokens, size_t count)
{
    int32_t *to = token_list_reserve(list, count);
    if (to && count) {
        memcpy(to, tokens, count * sizeof *to);
        list->count += count;
    }
}

/* Accepts NULL. */
static inline void token_list_free(struct token_list *list)
{
    if (list) {
        mem_free(list->tokens);
        memset(list, 0, sizeof *list);
    }
}

#define scope_token_list __attribute__((cleanup(token_list_free))) struct token_list

/* ---- the tokenizer ---- */

enum { TOKEN_NONE = -1 };
enum { TOKENIZER_TEXT_LIMIT = 1 << 30 }; /* bytes of one text: sentencepiece counts in int */

/* Ids with a meaning; TOKEN_NONE where the tokenizer has none. */
struct tokenizer_special {
    int32_t bos, eos, unk, pad;
    int32_t cls, sep, mask; /* BERT's: they begin, separate and end a text, and hide a token */
};
#define TOKENIZER_NO_SPECIAL                                                                                 \
    ((struct tokenizer_special){TOKEN_NONE, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE,      \
                                TOKEN_NONE})

/* Used by one thread at a time, as it caches words. */
struct tokenizer;

/* name: "bytes", or the path of a tokenizer.json, of a sentencepiece .model, of a vocab.bpe or merges.txt
 * with its encoder.json or vocab.json next to it, of a .tiktoken, a tekken.json or a vocab.txt, or of a
 * folder with such a file. Errors: MUSTER_E_NOT_FOUND, MUSTER_E_INVALID with the place, MUSTER_E_UNSUPPORTED
 * with the part of the file that is not supported. */
struct tokenizer *tokenizer_open(const char *name, struct muster_error *err);
/* Opens the tokenizer of a model's folder. model_path NULL, "" or a file: the tokenizer of bytes. A folder
 * without a tokenizer gives bytes too, or MUSTER_E_INVALID where its config.json has more than 1,024 tokens.
 */
struct tokenizer *tokenizer_open_of_model(const char *model_path, struct muster_error *err);
void tokenizer_destroy(struct tokenizer *tokenizer); /* accepts NULL */
GUARD_DEFINE(tokenizer, struct tokenizer *, tokenizer_destroy);

const char *tokenizer_kind(const struct tokenizer *tokenizer); /* "bytes", "byte-level BPE", ... */
/* The file of the tokenizer; NULL: it has no file. */
const char *tokenizer_path(const struct tokenizer *tokenizer);
/* One more than the largest id. */
int64_t tokenizer_vocabulary(const struct tokenizer *tokenizer);
struct tokenizer_special tokenizer_special(const struct tokenizer *tokenizer);
/* The id of the token with this text ("<|endoftext|>"); TOKEN_NONE: there is no such token. */
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text);
/* Bytes of a text that this token stands for, 0 for the tokens that begin and end a document; -1: the text of
 * a token of this kind depends on its neighbours. */
int64_t tokenizer_bytes(struct tokenizer *tokenizer, int32_t token);
/* Two tokenizers with the same fingerprint give the same ids for every text. */
uint64_t tokenizer_fingerprint(const struct tokenizer *tokenizer);

/* Where a long text may be cut, so that the ids of both parts together are the ids of the whole. The place is
 * at most `most` bytes from the start, or the first place after them; length where there is none. */
size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t length, size_t most);
/* Adds the ids of length bytes to out. Byte-level kinds keep bytes that are no UTF-8, and
 * expressions see them as U+FFFD; sentencepiece reads them as U+FFFD. */
int tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t length, struct token_list *out,
                     struct muster_error *err);
/* Adds the text of the ids to out, as the file's decoder makes it; an id outside of the vocabulary is an
 * error.
 */
int tokenizer_decode(struct tokenizer *tokenizer, const int32_t *tokens, size_t count, struct buffer *out,
                     struct muster_error *err);
/* Copies the tokenizer's files into folder, so that tokenizer_open finds them there. The copies have the
 * names of Hugging Face's folders: tokenizer.json, tokenizer.model, vocab.json and merges.txt. The tokenizer
 * of bytes has no files. */
int tokenizer_copy(const struct tokenizer *tokenizer, const char *folder, struct muster_error *err);

#endif
