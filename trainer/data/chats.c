/* chats.c - see chats.h. */
#include "trainer/data/chats.h"

#include <string.h>

#include "proto/base/error.h"

enum { JOINED = 8, GAP = 256 }; /* tokens of a character; bytes of a token whose text is not decoded */

/* ---- which bytes a token stands for ---- */

static bool is_space_byte(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The place in text at or after `at` where piece begins: blanks may be in front of it in either. *bytes: of
 * the piece there. SIZE_MAX: nowhere. */
static size_t place_of_piece(const char *text, size_t length, size_t at, const struct buffer *piece,
                             size_t *bytes)
{
    const char *data = piece->data;
    *bytes = piece->length;
    for (size_t from = at;; from++) {
        if (length - from >= *bytes && !memcmp(text + from, data, *bytes))
            return from;
        if (from == length || !is_space_byte(text[from]))
            break;
    }
    if (*bytes > 1 && data[0] == ' ' && length - at >= *bytes - 1 &&
        !memcmp(text + at, data + 1, *bytes - 1)) {
        (*bytes)--;
        return at;
    }
    return SIZE_MAX;
}

/* Tokens from `from` on that together are a piece of the text at `at`; 0: none. */
static size_t match_tokens(struct tokenizer *tokenizer, const int32_t *tokens, size_t count, const char *text,
                           size_t length, size_t at, struct jinja_span *out)
{
    for (size_t joined = 1; joined <= JOINED && joined <= count; joined++) {
        scope_buffer piece = {0};
        size_t bytes;
        if (tokenizer_decode(tokenizer, tokens, joined, &piece, NULL) < 0)
            return 0;
        if (!piece.length && joined == 1) { /* a blank in front, or a token without a text */
            *out = (struct jinja_span){at, at};
            return 1;
        }
        const size_t from = piece.length ? place_of_piece(text, length, at, &piece, &bytes) : SIZE_MAX;
        if (from == SIZE_MAX)
            continue;
        *out = (struct jinja_span){from, from + bytes};
        return joined;
    }
    return 0;
}

/* After a token without a text: the next token is found later, and the text between is the first one's. */
static size_t skip_gap(struct tokenizer *tokenizer, int32_t token, const char *text, size_t length, size_t at)
{
    scope_buffer piece = {0};
    const size_t room = length - at < GAP ? length - at : GAP;
    if (tokenizer_decode(tokenizer, &token, 1, &piece, NULL) < 0 || !piece.length)
        return SIZE_MAX;
    const char *found = memmem(text + at, room, piece.data, piece.length);
    return found ? (size_t)(found - text) : SIZE_MAX;
}

bool chats_align(struct tokenizer *tokenizer, const int32_t *tokens, size_t count, const char *text,
                 size_t length, struct jinja_span *out)
{
    size_t at = 0;
    for (size_t i = 0; i < count;) {
        size_t taken = match_tokens(tokenizer, tokens + i, count - i, text, length, at, &out[i]);
        if (!taken && i > 0 && out[i - 1].to == out[i - 1].from) {
            const size_t next = skip_gap(tokenizer, tokens[i], text, length, at);
            if (next == SIZE_MAX)
                return false;
            out[i - 1].to = at = next;
            continue;
        }
        if (!taken)
            return false;
        for (size_t k = 1; k < taken; k++)
            out[i + k] = out[i];
        at = out[i].to;
        i += taken;
    }
    while (at < length && is_space_byte(text[at]))
        at++;
    /* a last token without a text has the rest */
    return at == length || (count && out[count - 1].to == out[count - 1].from && length - at < GAP);
}

/* ---- a chat ---- */

static bool in_spans(const struct jinja_spans *spans, size_t *first, struct jinja_span of)
{
    while (*first < spans->count && spans->span[*first].to <= of.from)
        (*first)++;
    return *first < spans->count && spans->span[*first].from < of.to;
}

static int add_flag(struct buffer *masked, bool is_masked, struct muster_error *err)
{
    const char flag = is_masked;
    return buffer_append(masked, &flag, 1) < 0 ? error_set(err, MUSTER_E_NOMEM, "no memory for a chat") : 0;
}

/* Where tokens do not give the text back: the parts inside and outside of the spans one by one. */
static int encode_parts(struct tokenizer *tokenizer, const char *text, size_t length,
                        const struct jinja_spans *spans, struct token_list *tokens, struct buffer *masked,
                        struct muster_error *err)
{
    for (size_t i = 0, at = 0; at < length;) {
        const bool inside = i < spans->count && spans->span[i].from <= at;
        const size_t to = i == spans->count ? length : inside ? spans->span[i].to : spans->span[i].from;
        const size_t before = tokens->count;
        if (to > at && tokenizer_encode(tokenizer, text + at, to - at, tokens, err) < 0)
            return -1;
        for (size_t k = before; k < tokens->count; k++)
            if (add_flag(masked, !inside, err) < 0)
                return -1;
        at = to > at ? to : at;
        i += inside;
    }
    return 1;
}

int chats_encode(struct tokenizer *tokenizer, const char *text, size_t length,
                 const struct jinja_spans *spans, struct token_list *tokens, struct buffer *masked,
                 struct muster_error *err)
{
    const size_t before = tokens->count;
    if (!length)
        return 0;
    if (tokenizer_encode(tokenizer, text, length, tokens, err) < 0)
        return -1;
    const size_t count = tokens->count - before;
    scope_free struct jinja_span *of = mem_calloc(count + 1, sizeof *of);
    if (!of)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a chat of %zu tokens", count);
    if (!chats_align(tokenizer, tokens->tokens + before, count, text, length, of)) {
        tokens->count = before;
        return encode_parts(tokenizer, text, length, spans, tokens, masked, err);
    }
    for (size_t i = 0, first = 0; i < count; i++)
        if (add_flag(masked, !in_spans(spans, &first, of[i]), err) < 0)
            return -1;
    return 0;
}

/* Adds runs of tokens that are all masked, or none is. */
static int add_runs(const struct token_list *tokens, const struct buffer *masked, struct token_sink *sink,
                    struct muster_error *err)
{
    for (size_t from = 0, to; from < tokens->count; from = to) {
        for (to = from + 1; to < tokens->count && masked->data[to] == masked->data[from];)
            to++;
        if (token_sink_add(sink, tokens->tokens + from, to - from, masked->data[from], err) < 0)
            return -1;
    }
    return 0;
}

static int add_chat_text(struct tokenizer *tokenizer, const struct buffer *text,
                         const struct jinja_spans *spans, struct token_sink *sink,
                         struct token_file_chats *counts, struct muster_error *err)
{
    scope_token_list tokens = {0};
    scope_buffer masked = {0};
    const int in_parts = chats_encode(tokenizer, text->data, text->length, spans, &tokens, &masked, err);
    if (in_parts < 0)
        return -1;
    counts->in_parts += (uint64_t)in_parts;
    return add_runs(&tokens, &masked, sink, err);
}

int chats_add(struct chat *chat, struct tokenizer *tokenizer, const json_t *record, const char *text_key,
              struct token_sink *sink, struct muster_error *err)
{
    scope_buffer text = {0};
    struct jinja_spans spans = {0};
    struct chat_counts counts = {0};
    struct token_file_chats added = {0};
    int result = chat_render(chat, record, text_key, &text, &spans, &counts, err);
    if (!result)
        result = add_chat_text(tokenizer, &text, &spans, sink, &added, err);
    mem_free(spans.span);
    added.chats = (uint64_t)counts.chats;
    added.empty_turns = (uint64_t)counts.empty;
    added.unasked = (uint64_t)counts.unasked;
    token_sink_count_chats(sink, &added);
    return result;
}
