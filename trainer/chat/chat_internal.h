/* chat_internal.h - private header: a record as turns, and where the turns of the assistant are. */
#ifndef MUSTER_TRAINER_CHAT_CHAT_INTERNAL_H
#define MUSTER_TRAINER_CHAT_CHAT_INTERNAL_H

#include "trainer/chat/chat.h"

/* ---- record.c ---- */

enum { RECORD_TURNS = 10000 };

struct record {
    struct jinja_list *turns;
    struct jinja_value tools;           /* none: none */
    const struct jinja_dict *variables; /* chat_template_kwargs; NULL: none */
    bool *trained;                      /* (turns) of the assistant, and not left out by weight or train */
    size_t prompt; /* turns before the completion, of which everything is trained on; SIZE_MAX: no such */
    int64_t empty;
};
/* All memory is in the arena, texts are in json. */
int record_read(struct jinja_arena *arena, const json_t *json, const char *text_key, struct record *out,
                struct muster_error *err);

/* ---- mask.c ---- */

struct rendering {
    const struct jinja *source;
    struct jinja_arena *arena;
    struct jinja_dict *variables; /* messages and add_generation_prompt are replaced */
    int64_t now_s;
};
/* Adds the text of the first `turns` turns. spans may be NULL. */
int rendering_render(const struct rendering *r, const struct jinja_list *list, size_t turns, bool asks,
                     struct jinja_spans *spans, struct buffer *out, struct muster_error *err);
/* Finds the parts to train on in text, the rendering of the whole record. */
int mask_find(const struct rendering *r, const struct record *record, const struct buffer *text,
              const struct jinja_spans *marked, struct jinja_spans *spans, struct muster_error *err);

#endif
