/* chats.h - chats as tokens: the text of a template, tokenized as a whole; tokens outside of the assistant's
 * turns are no targets. */
#ifndef MUSTER_TRAINER_DATA_CHATS_H
#define MUSTER_TRAINER_DATA_CHATS_H

#include "trainer/chat/chat.h"
#include "trainer/data/token_cache.h"
#include "trainer/tokens/tokenizer.h"

/* The bytes of text that each of `count` tokens stands for, ascending. Blanks that a token takes or puts in
 * front may be in none. false: the tokens do not give the text back. */
bool chats_align(struct tokenizer *tokenizer, const int32_t *tokens, size_t count, const char *text,
                 size_t length, struct jinja_span *out);

/* Adds the tokens of a chat's text, tokenized as a whole, to tokens, and a byte for each to masked: 0 where
 * it is in a span, and a target. 1: the tokens do not give the text back, and its parts were tokenized one by
 * one. */
int chats_encode(struct tokenizer *tokenizer, const char *text, size_t length,
                 const struct jinja_spans *spans, struct token_list *tokens, struct buffer *masked,
                 struct muster_error *err);

/* Adds the tokens of a record, without the end of the document. */
int chats_add(struct chat *chat, struct tokenizer *tokenizer, const json_t *record, const char *text_key,
              struct token_sink *sink, struct muster_error *err);

#endif
