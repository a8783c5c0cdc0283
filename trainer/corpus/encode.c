/* encode.c - the fourth stage of prepare.h: the tokens of the kept documents, part by part. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "trainer/corpus/prepare_internal.h"
#include "trainer/data/chats.h"
#include "trainer/tokens/tokenizer.h"

enum { FLUSH_BYTES = 1 << 20, PIECE_BYTES = 4 << 20 };

struct encode_room {
    struct tokenizer *tokenizer;
    struct token_list tokens;
    struct buffer text, out, masked;
    struct jinja_spans spans;
};

static void close_room(void *opened)
{
    struct encode_room *room = opened;
    if (!room)
        return;
    tokenizer_destroy(room->tokenizer);
    token_list_free(&room->tokens);
    buffer_free(&room->text);
    buffer_free(&room->out);
    buffer_free(&room->masked);
    mem_free(room->spans.span);
    mem_free(room);
}

static void *open_room(void *context, struct muster_error *err)
{
    const struct prepare *p = context;
    struct encode_room *room = mem_calloc(1, sizeof *room);
    if (!room)
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for tokens");
    if (!room || (room->tokenizer = tokenizer_open(p->tokenizer, err)))
        return room;
    close_room(room);
    return NULL;
}

int prepare_tokens_width(const struct prepare *p)
{
    return p->vocabulary <= 1 << 16 ? 2 : 4;
}

static uint64_t tokens_key(const struct prepare *p, int part)
{
    const uint64_t from[] = {p->part[part].key, p->decided, p->fingerprint, (uint64_t)(int64_t)p->end, 2};
    return text_hash(TEXT_HASH_START, from, sizeof from);
}

char *prepare_tokens_path(const struct prepare *p, int part)
{
    return mem_printf("%s/%016llx.tokens", p->work, (unsigned long long)tokens_key(p, part));
}

static bool is_encoded(const char *path, uint64_t key)
{
    struct tokens_header header;
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, &header, sizeof header) == sizeof header && header.magic == TOKENS_MAGIC &&
           header.key == key;
}

static int encode_text(struct encode_room *room, struct muster_error *err)
{
    const char *text = room->text.data;
    room->tokens.count = 0;
    for (size_t left = room->text.length; left;) {
        const size_t piece = tokenizer_cut(room->tokenizer, text, left, PIECE_BYTES);
        if (tokenizer_encode(room->tokenizer, text, piece, &room->tokens, err) < 0)
            return -1;
        text += piece;
        left -= piece;
    }
    return 0;
}

/* A chat is tokenized as training does it: as a whole, with a mask, and its template ends it. */
static int encode_chat(struct encode_room *room, struct muster_error *err)
{
    room->tokens.count = 0;
    return chats_encode(room->tokenizer, room->text.data, room->text.length, &room->spans, &room->tokens,
                        &room->masked, err) < 0
               ? -1
               : 0;
}

static int encode_document(struct encode_room *room, int32_t end, bool held, bool chat, int width,
                           struct muster_error *err)
{
    buffer_clear(&room->masked);
    if ((chat ? encode_chat : encode_text)(room, err) < 0)
        return -1;
    if (end >= 0 && !chat)
        token_list_add(&room->tokens, &end, 1);
    const uint32_t count = (uint32_t)room->tokens.count | (held ? TOKENS_HELD : 0) | (chat ? TOKENS_CHAT : 0);
    const size_t bytes = room->tokens.count * (size_t)width;
    (void)buffer_append(&room->out, &count, sizeof count); /* out remembers a failure */
    char *to = buffer_reserve(&room->out, bytes);
    if (!to || room->tokens.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the tokens of a text of %zu bytes",
                         room->text.length);
    for (size_t i = 0; i < room->tokens.count; i++) {
        const uint32_t token = (uint32_t)room->tokens.tokens[i]; /* shards and machine are little-endian */
        memcpy(to + i * (size_t)width, &token, (size_t)width);
    }
    room->out.length += bytes;
    (void)buffer_append(&room->out, room->masked.data, room->masked.length); /* out remembers a failure */
    return 0;
}

static int flush(struct encode_room *room, int fd, const char *path, size_t above, struct muster_error *err)
{
    if (room->out.length <= above)
        return 0;
    if (io_write_all(fd, room->out.data, room->out.length, path, err) < 0)
        return -1;
    buffer_clear(&room->out);
    return 0;
}

static int encode_documents(struct prepare *p, struct encode_room *room, int part, int fd, const char *path,
                            struct tokens_header *header, struct muster_error *err)
{
    GUARD(guard_part_reader) struct part_reader *reader = prepare_open_part(p, part, err);
    struct part_record record;
    const uint8_t *decision = p->decision + p->part[part].document;
    int found = reader ? 0 : -1;
    for (; reader && (found = part_reader_next(reader, &record, NULL, err)) > 0; decision++) {
        if (*decision & DECISION_DUPLICATE)
            continue;
        if (part_reader_text(reader, &record, &room->text, err) < 0 ||
            (record.chat && part_reader_spans(reader, &record, &room->spans, err) < 0) ||
            encode_document(room, p->end, *decision & DECISION_HELD, record.chat, (int)header->width, err) <
                0 ||
            flush(room, fd, path, FLUSH_BYTES, err) < 0)
            return -1;
        header->documents++;
    }
    return found;
}

static int write_tokens(struct prepare *p, struct encode_room *room, int part, const char *temporary, int fd,
                        struct muster_error *err)
{
    struct tokens_header header = {
        .magic = TOKENS_MAGIC, .key = tokens_key(p, part), .width = (uint64_t)prepare_tokens_width(p)};
    buffer_clear(&room->out);
    (void)buffer_append(&room->out, &header, sizeof header); /* out remembers a failure */
    if (encode_documents(p, room, part, fd, temporary, &header, err) < 0 ||
        flush(room, fd, temporary, 0, err) < 0)
        return -1;
    if (pwrite(fd, &header, sizeof header, 0) != sizeof header || fdatasync(fd) < 0)
        return error_errno(err, "cannot write %s", temporary);
    return 0;
}

static int encode_part(void *context, void *room, int part, struct muster_error *err)
{
    struct prepare *p = context;
    scope_free char *path = prepare_tokens_path(p, part),
                    *temporary = path ? mem_printf("%s.new", path) : NULL;
    if (!temporary)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (is_encoded(path, tokens_key(p, part)))
        return 0; /* an earlier run made it */
    scope_close int fd = io_create_new(temporary, O_WRONLY, 0644);
    if (fd < 0)
        return error_errno(err, "cannot write %s", temporary);
    if (write_tokens(p, room, part, temporary, fd, err) < 0)
        return -1;
    return rename(temporary, path) < 0 ? error_errno(err, "cannot write %s", path) : 0;
}

int prepare_encode(struct prepare *p, struct muster_error *err)
{
    const struct workers_job job = {p->parts, p->threads, encode_part, open_room, close_room, p};
    return workers_run(&job, err);
}
