/* chat.h - records of chats as texts, by a model's template, with the parts that the assistant wrote.
 *
 * A record has its turns under `messages`, `conversations` or the text key: objects of role and content, or
 * of from and value (ShareGPT). Others are instruction, input and output (Alpaca), and prompt and completion
 * as lists of turns. Next to them there may be system, history, tools and chat_template_kwargs. */
#ifndef MUSTER_TRAINER_CHAT_CHAT_H
#define MUSTER_TRAINER_CHAT_CHAT_H

#include "trainer/chat/jinja.h"

#define CHAT_AUTO   "auto"   /* the template in the folder of the tokenizer */
#define CHAT_CHATML "chatml" /* <|im_start|>role ... <|im_end|> */

struct chat_options {
    const char *template_name; /* CHAT_AUTO, CHAT_CHATML, or a file; NULL: CHAT_AUTO */
    const char *folder;        /* folder with chat_template.jinja, tokenizer_config.json; NULL: none */
    const char *variables;     /* a JSON object of further variables; NULL or "": none */
    bool all;                  /* all tokens are trained on */
    const char *date;          /* the day for strftime_now: YYYY-MM-DD; NULL: CHAT_DATE */
};
#define CHAT_DATE "2024-07-26"

struct chat;

/* Reads the template, and compiles it with the first chat: a folder's template that cannot be compiled is no
 * error for plain texts. */
struct chat *chat_open(const struct chat_options *options, struct muster_error *err);
void chat_destroy(struct chat *chat); /* accepts NULL */
GUARD_DEFINE(chat, struct chat *, chat_destroy);
/* The template's file or name; NULL: there is none. */
const char *chat_name(const struct chat *chat);
/* Two with the same give the same texts. */
uint64_t chat_fingerprint(const struct chat *chat);

/* Whether a record has turns. Pure. */
bool chat_is(const json_t *record, const char *text_key);

/* Counts of chats and of their turns. */
struct chat_counts {
    int64_t chats;
    int64_t empty;   /* turns of the assistant without a text and without a call */
    int64_t unasked; /* chats without a turn of the assistant that is trained on */
};

/* Adds the text of a record to out, and the parts that are trained on to spans, in their order. Counts are
 * added. MUSTER_E_NOT_FOUND: there is no template. Used by one thread at a time. */
int chat_render(struct chat *chat, const json_t *record, const char *text_key, struct buffer *out,
                struct jinja_spans *spans, struct chat_counts *counts, struct muster_error *err);

#endif
