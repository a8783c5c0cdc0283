/* pump_format.c - formats a stream's bytes as lines of the console, with prefixes or as JSON; see
 * pump_internal.h.
 *
 * The lines of one read are collected, so that the queue's lock is taken once for all of them. */
#include <string.h>

#include "launcher/output/pump_internal.h"

enum { BLOCK_LIMIT = 128 * 1024 };

static const char default_time[] = "1970-01-01T00:00:00.000Z";

static int expand_prefix(struct pump_stream *s)
{
    buffer_clear(&s->prefix);
    return s->pattern ? line_prefix(s->pattern, &s->names, &s->prefix) : 0;
}

int pump_format_prepare(struct pump_stream *s, bool json)
{
    s->names.time = default_time;
    if (json) {
        s->lines.states = true;
        s->read_bytes = PUMP_READ_BYTES / 4; /* empty lines become a hundred bytes each */
        return log_record_head(&s->pump->style, s->stream, s->names.rank, s->names.local_rank, &s->head);
    }
    return expand_prefix(s);
}

/* Queues the collected lines. */
static bool put_block(struct pump_stream *s, struct write_queue *outlet, struct output_file *target,
                      struct buffer *block, uint32_t lines, bool starts, bool keep)
{
    struct write_queue_piece piece = {.target = target,
                                      .owner = s,
                                      .prefix = s->prefix.data,
                                      .prefix_length = s->prefix.length,
                                      .data = block->data,
                                      .length = block->length,
                                      .lines = lines,
                                      .starts = starts,
                                      .ends = block->length && block->data[block->length - 1] == '\n',
                                      .keep = keep,
                                      .must = true};
    bool taken = !block->length || write_queue_put(outlet, &piece);
    buffer_clear(block);
    return taken;
}

static void put_blocks(struct pump_stream *s)
{
    struct pump *pump = s->pump;
    if (!put_block(s, s->outlet, s->shown, &pump->block, pump->block_lines, pump->block_starts, !s->file))
        s->dropping = s->middle;
    if (s->matches)
        (void)put_block(s, pump->files, s->matches, &pump->matched, pump->matched_lines, pump->matched_starts,
                        true);
    pump->block_lines = pump->matched_lines = 0;
}

/* One piece in the style of the console; starts: the piece begins its line. */
static void style_piece(struct pump_stream *s, struct buffer *out, const char *data, size_t length,
                        bool starts, bool ends)
{
    if (s->pump->style.format == LOG_FORMAT_JSON) {
        bool partial = !ends && !s->last && data[length - 1] != '\r';
        (void)log_record_worker(&s->head, s->pump->time, data, length, partial, out);
        return;
    }
    if (starts)
        buffer_append(out, s->prefix.data, s->prefix.length);
    buffer_append(out, data, length);
}

static void show_piece(struct pump_stream *s, const char *data, size_t length, bool starts, bool ends)
{
    struct pump *pump = s->pump;
    if (s->dropping && !starts) {
        struct write_queue_piece piece = {.target = s->shown, .length = length, .lines = ends};
        write_queue_drop(s->outlet, &piece);
        return;
    }
    s->dropping = false;
    if (!pump->block.length)
        pump->block_starts = starts || pump->style.format == LOG_FORMAT_JSON;
    pump->block_lines += ends;
    style_piece(s, &pump->block, data, length, starts, ends);
}

static void give_piece(void *context, const char *data, size_t length, bool ends)
{
    struct pump_stream *s = context;
    struct pump *pump = s->pump;
    bool starts = !s->middle;
    s->middle = !ends && (pump->style.format != LOG_FORMAT_JSON || data[length - 1] != '\r');
    if (s->console)
        show_piece(s, data, length, starts, ends);
    if (s->matches) {
        s->matching = log_filter_matches(s->filter, data, length) || (!starts && s->matching);
        if (s->matching) {
            if (!pump->matched.length)
                pump->matched_starts = starts;
            pump->matched_lines += ends;
            style_piece(s, &pump->matched, data, length, starts, ends);
        }
    }
    if (pump->block.length >= BLOCK_LIMIT || pump->matched.length >= BLOCK_LIMIT)
        put_blocks(s);
}

static void begin(struct pump_stream *s, struct line_sink *sink)
{
    *sink = (struct line_sink){.piece = give_piece, .context = s};
    if (!s->timed && s->pump->style.format != LOG_FORMAT_JSON)
        return;
    log_record_time(clock_wall_ns(), s->pump->time);
    s->names.time = s->pump->time;
    if (s->timed)
        (void)expand_prefix(s); /* without memory it is truncated */
}

/* Whole lines for the console alone, as text: the heavy output of many workers, without a call for each
 * line. */
static void show_lines(struct pump_stream *s, const char *data, size_t length)
{
    struct buffer *block = &s->pump->block;
    size_t prefix = s->prefix.length;
    if (!block->length)
        s->pump->block_starts = true;
    while (length) {
        const char *newline = memchr(data, '\n', length);
        size_t line = (size_t)(newline + 1 - data);
        char *out = buffer_reserve(block, prefix + line);
        if (!out) { /* no memory now: as if the queue had no room */
            struct write_queue_piece piece = {.target = s->shown, .length = line, .lines = 1};
            block->failed = false;
            write_queue_drop(s->outlet, &piece);
            data += line;
            length -= line;
            continue;
        }
        if (prefix)
            memcpy(out, s->prefix.data, prefix);
        memcpy(out + prefix, data, line);
        block->length += prefix + line;
        s->pump->block_lines++;
        data += line;
        length -= line;
        if (block->length >= BLOCK_LIMIT)
            put_blocks(s);
    }
}

void pump_format(struct pump_stream *s, const char *data, size_t length)
{
    struct line_sink sink;
    begin(s, &sink);
    if (line_pending(&s->lines) || s->middle) { /* to the end of that line first */
        const char *newline = memchr(data, '\n', length);
        size_t part = newline ? (size_t)(newline + 1 - data) : length;
        line_feed(&s->lines, data, part, &sink);
        data += part;
        length -= part;
    }
    /* How many bytes of data are whole lines for show_lines; in the middle of a line none. */
    bool plain = s->console && !s->matches && s->pump->style.format != LOG_FORMAT_JSON && !s->middle &&
                 !s->dropping && !line_pending(&s->lines);
    const char *last = plain ? memrchr(data, '\n', length) : NULL;
    size_t lines = last ? (size_t)(last + 1 - data) : 0;
    show_lines(s, data, lines);
    line_feed(&s->lines, data + lines, length - lines, &sink);
    put_blocks(s);
}

void pump_format_flush(struct pump_stream *s)
{
    struct line_sink sink;
    begin(s, &sink);
    if (!s->lines.states)
        line_flush(&s->lines, &sink);
    else if (line_state(&s->lines, &sink))
        s->state_at = clock_now(NULL);
    put_blocks(s);
}

void pump_format_end(struct pump_stream *s)
{
    struct line_sink sink;
    s->last = true;
    begin(s, &sink);
    if (s->lines.shown)
        (void)line_state(&s->lines, &sink);
    line_flush(&s->lines, &sink);
    put_blocks(s);
}
