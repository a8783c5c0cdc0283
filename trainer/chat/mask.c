/* mask.c - where the turns of the assistant are in the text of a chat: by the template's generation blocks,
 * else by rendering parts of the chat. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/chat/chat_internal.h"

/* A content that no chat has. */
#define MARK "\x01\x02\x01"

int rendering_render(const struct rendering *r, const struct jinja_list *list, size_t turns, bool asks,
                     struct jinja_spans *spans, struct buffer *out, struct muster_error *err)
{
    struct jinja_list *part = jinja_list_create(r->arena);
    bool room = part != NULL;
    for (size_t i = 0; room && i < turns; i++)
        room = jinja_list_add(r->arena, part, list->item[i]);
    room = room &&
           jinja_dict_set(r->arena, r->variables, jinja_string("messages", 8),
                          (struct jinja_value){.kind = JINJA_LIST, .list = part}) &&
           jinja_dict_set(r->arena, r->variables, jinja_string("add_generation_prompt", 21),
                          (struct jinja_value){.kind = JINJA_BOOL, .truth = asks});
    const struct jinja_input input = {r->variables, r->now_s, spans};
    return room ? jinja_render(r->source, r->arena, &input, out, err)
                : error_set(err, MUSTER_E_NOMEM, "no memory for a chat");
}

/* ---- a turn, by rendering the chat up to it ---- */

static size_t alike(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t same = 0;
    while (same < a_length && same < b_length && a[same] == b[same])
        same++;
    return same;
}

/* The length of a part of the chat, if text begins with it; -1: it does not, or cannot be rendered. partly:
 * its length, or that of its beginning that text has. */
static int64_t begins_with(const struct rendering *r, const struct record *record, size_t turns, bool asks,
                           bool partly, const struct buffer *text)
{
    scope_buffer part = {0};
    if (rendering_render(r, record->turns, turns, asks, NULL, &part, NULL) < 0)
        return -1;
    const size_t same = alike(part.data, part.length, text->data, text->length);
    return partly || same == part.length ? (int64_t)same : -1;
}

/* A copy of a dict with another value under a key; NULL: no memory. */
static struct jinja_dict *with_key(struct jinja_arena *arena, const struct jinja_dict *dict, const char *key,
                                   struct jinja_value value)
{
    struct jinja_dict *copy = jinja_dict_create(arena);
    bool room = copy != NULL;
    for (size_t i = 0; room && i < dict->count; i++)
        room = jinja_dict_set(arena, copy, dict->entry[i].key, dict->entry[i].value);
    return room && jinja_dict_set(arena, copy, jinja_string(key, strlen(key)), value) ? copy : NULL;
}

/* A turn with the mark as its content, or as the name of its last call. NULL: no memory, or no call. */
static struct jinja_dict *marked_turn(struct jinja_arena *arena, const struct jinja_dict *turn, bool by_call)
{
    const struct jinja_value mark = jinja_string(MARK, sizeof MARK - 1),
                             *calls = jinja_dict_find(turn, "tool_calls");
    struct jinja_list *others = jinja_list_create(arena);
    if (!by_call || !others)
        return others ? with_key(arena, turn, "content", mark) : NULL;
    if (!calls || calls->kind != JINJA_LIST || !calls->list->count)
        return NULL;
    const struct jinja_value *last = &calls->list->item[calls->list->count - 1],
                             *function =
                                 last->kind == JINJA_DICT ? jinja_dict_find(last->dict, "function") : NULL;
    if (last->kind != JINJA_DICT || (function && function->kind != JINJA_DICT))
        return NULL;
    struct jinja_dict *named = with_key(arena, function ? function->dict : last->dict, "name", mark),
                      *call = named && function
                                  ? with_key(arena, last->dict, "function",
                                             (struct jinja_value){.kind = JINJA_DICT, .dict = named})
                                  : named;
    bool room = call != NULL;
    for (size_t i = 0; room && i < calls->list->count; i++)
        room = jinja_list_add(arena, others,
                              i + 1 == calls->list->count
                                  ? (struct jinja_value){.kind = JINJA_DICT, .dict = call}
                                  : calls->list->item[i]);
    return room
               ? with_key(arena, turn, "tool_calls", (struct jinja_value){.kind = JINJA_LIST, .list = others})
               : NULL;
}

/* The first `turns` turns, with turn `at` marked; 1: the mark is not in the text. */
static int render_marked(const struct rendering *r, const struct record *record, size_t turns, size_t at,
                         bool by_call, bool asks, struct buffer *out, struct muster_error *err)
{
    struct jinja_list *list = jinja_list_create(r->arena);
    struct jinja_dict *marked = marked_turn(r->arena, record->turns->item[at].dict, by_call);
    bool room = list && marked;
    for (size_t i = 0; room && i < turns; i++)
        room = jinja_list_add(r->arena, list,
                              i == at ? (struct jinja_value){.kind = JINJA_DICT, .dict = marked}
                                      : record->turns->item[i]);
    if (!room)
        return error_set(err, MUSTER_E_INVALID, "a turn has neither a content nor a call that can be found");
    if (rendering_render(r, list, turns, asks, NULL, out, err) < 0)
        return -1;
    return !memmem(out->data, out->length, MARK, sizeof MARK - 1);
}

/* The end of the marked text in a: both texts end alike. */
static size_t end_of_mark(const struct buffer *a, const struct buffer *marked)
{
    size_t to = a->length, other = marked->length;
    while (to > 0 && other > 0 && a->data[to - 1] == marked->data[other - 1]) {
        to--;
        other--;
    }
    return to;
}

/* Where turn `at` ends, by another content of it: there its text goes on as it does where the chat ends with
 * this turn. asks: with the beginning of the next turn. */
static int find_end(const struct rendering *r, const struct record *record, size_t at, bool asks,
                    const struct buffer *text, size_t *end, struct muster_error *err)
{
    scope_buffer part = {0};
    int found = 1;
    if (rendering_render(r, record->turns, at + 1, asks, NULL, &part, err) < 0)
        return -1;
    for (int by_call = 0; found > 0 && by_call < 2; by_call++) {
        scope_buffer marked = {0}, part_marked = {0};
        found = render_marked(r, record, record->turns->count, at, by_call, false, &marked, err);
        if (!found)
            found = render_marked(r, record, at + 1, at, by_call, asks, &part_marked, err);
        if (found)
            continue;
        const size_t to = end_of_mark(text, &marked), alone = end_of_mark(&part, &part_marked);
        *end = to + alike(part.data + alone, part.length - alone, text->data + to, text->length - to);
    }
    return found ? -1 : 0;
}

/* from, to: places of text; -1: not known. */
static int find_turn(const struct rendering *r, const struct record *record, size_t at,
                     const struct buffer *text, struct jinja_span *out, struct muster_error *err)
{
    /* what asks for a turn may have more than the turn, such as the beginning of a thought */
    const int64_t before = begins_with(r, record, at, false, false, text),
                  to = begins_with(r, record, at + 1, false, false, text),
                  asked = begins_with(r, record, at, true, before >= 0, text),
                  from = asked >= before ? asked : before;
    *out = (struct jinja_span){from >= 0 ? (size_t)from : 0, to >= 0 ? (size_t)to : 0};
    if ((from >= 0 || at == 0 || !find_end(r, record, at - 1, true, text, &out->from, err)) &&
        (to >= (int64_t)out->from || !find_end(r, record, at, false, text, &out->to, err)) &&
        out->to >= out->from)
        return 0;
    if (err && !err->code)
        (void)error_set(err, MUSTER_E_INVALID, "its end is in front of its beginning");
    return error_wrap(err,
                      "turn %zu is not found in the text: put {%% generation %%} blocks around the "
                      "assistant's turns in a copy of the template, and name it in data.chat_template",
                      at + 1);
}

/* ---- all turns ---- */

/* A prompt and a completion: all text that follows the prompt. */
static int find_completion(const struct rendering *r, const struct record *record, const struct buffer *text,
                           struct jinja_spans *spans, struct muster_error *err)
{
    const int64_t before = begins_with(r, record, record->prompt, false, false, text),
                  asked = begins_with(r, record, record->prompt, true, before >= 0, text),
                  from = asked >= before ? asked : before;
    if (from < 0)
        return error_set(err, MUSTER_E_INVALID,
                         "the text of prompt and completion does not begin with the "
                         "text of the prompt: write both as messages");
    return jinja_spans_add(spans, (struct jinja_span){(size_t)from, text->length}, err);
}

static size_t count_assistant(const struct record *record)
{
    size_t count = 0;
    for (size_t i = 0; i < record->turns->count; i++) {
        const struct jinja_value *role = jinja_dict_find(record->turns->item[i].dict, "role");
        count += role && role->kind == JINJA_STRING && role->text.length == 9 &&
                 !memcmp(role->text.data, "assistant", 9);
    }
    return count;
}

/* The generation blocks; block i is the assistant's turn i, of which some are left out. */
static int take_marked(const struct record *record, const struct jinja_spans *marked,
                       struct jinja_spans *spans, struct muster_error *err)
{
    size_t trained = 0, number = 0;
    const size_t turns = count_assistant(record);
    for (size_t i = 0; i < record->turns->count; i++)
        trained += record->trained[i];
    if (trained < turns && marked->count != turns)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "weight or train leaves out turns, and the template has %zu generation blocks for "
                         "%zu turns of the assistant",
                         marked->count, turns);
    for (size_t i = 0; i < marked->count && trained == turns; i++)
        if (jinja_spans_add(spans, marked->span[i], err) < 0)
            return -1;
    for (size_t i = 0; i < record->turns->count && trained < turns; i++) {
        const struct jinja_value *role = jinja_dict_find(record->turns->item[i].dict, "role");
        const bool assistant = role && role->kind == JINJA_STRING && role->text.length == 9 &&
                               !memcmp(role->text.data, "assistant", 9);
        if (assistant && record->trained[i] && jinja_spans_add(spans, marked->span[number], err) < 0)
            return -1;
        number += assistant;
    }
    return 0;
}

int mask_find(const struct rendering *r, const struct record *record, const struct buffer *text,
              const struct jinja_spans *marked, struct jinja_spans *spans, struct muster_error *err)
{
    if (record->prompt != SIZE_MAX)
        return find_completion(r, record, text, spans, err);
    if (jinja_marks(r->source))
        return take_marked(record, marked, spans, err);
    for (size_t i = 0; i < record->turns->count; i++) {
        struct jinja_span span;
        if (!record->trained[i])
            continue;
        if (find_turn(r, record, i, text, &span, err) < 0)
            return -1;
        if (span.to > span.from && jinja_spans_add(spans, span, err) < 0)
            return -1;
    }
    return 0;
}
