/* heartbeat.c - see heartbeat.h. */
#include "launcher/policy/heartbeat.h"

#include <string.h>

static void saved_take(struct worker_saved *saved, const char *line, size_t length);

static bool saved_is_line(const char *line, size_t length);

enum { DIGITS_LIMIT = 18 }; /* below 10^18 nothing overflows */

void heartbeat_init(struct heartbeat *beat)
{
    *beat = (struct heartbeat){.step = -1};
}

static const char fatal_word[] = "fatal", mark_word[] = "mark/", imported[] = "mark/1 imported";
enum { WORD = sizeof fatal_word - 1, IN_MESSAGE };

static void begin_line(struct heartbeat *beat)
{
    beat->line.value = beat->line.length = beat->line.matched = 0;
    beat->line.negative = false;
    beat->line.bytes = 0;
}

static void end_line(struct heartbeat *beat, struct instant now)
{
    const size_t bytes = beat->line.bytes, kept = bytes < FIGURES_LINE ? bytes : FIGURES_LINE;
    const bool figures = figures_is_line(beat->line.text, kept), saved = saved_is_line(beat->line.text, kept);
    if (figures && bytes <= FIGURES_LINE)
        figures_take(&beat->figures, beat->line.text, bytes);
    if (saved)
        saved_take(&beat->saved, beat->line.text, kept); /* its text may be cut */
    const bool mark =
        kept >= sizeof mark_word - 1 && !memcmp(beat->line.text, mark_word, sizeof mark_word - 1);
    if (mark && kept == sizeof imported - 1 && !memcmp(beat->line.text, imported, kept) && !beat->imported.ns)
        beat->imported = now;
    if (figures || saved || mark) {
        begin_line(beat);
        return;
    }
    const bool number = beat->line.length > 0, fatal = beat->line.matched >= WORD;
    beat->armed = !(number && beat->line.negative) && !fatal;
    beat->fatal |= fatal;
    if (number && !beat->line.negative) {
        beat->step = beat->line.value;
        if (!beat->first.ns) {
            beat->first = now;
            beat->first_step = beat->step;
        }
    }
    beat->last = now;
    begin_line(beat);
}

static void take_byte(struct heartbeat *beat, char c)
{
    /* The word "fatal", a blank, the message. */
    const int matched = beat->line.matched;
    const size_t used = strlen(beat->message);
    if (matched == IN_MESSAGE && used < sizeof beat->message - 1)
        beat->message[used] = (char)((unsigned char)c < ' ' || c == 127 ? ' ' : c);
    else if (matched == WORD && c == ' ' && !beat->fatal)
        beat->line.matched = IN_MESSAGE;
    else if (matched >= 0 && matched < WORD && c == fatal_word[matched])
        beat->line.matched++;
    else if (matched != IN_MESSAGE)
        beat->line.matched = -1;
    if (beat->line.bytes < FIGURES_LINE)
        beat->line.text[beat->line.bytes] = c;
    if (beat->line.bytes <= FIGURES_LINE)
        beat->line.bytes++;
    if (c == '-' && !beat->line.length && !beat->line.negative) {
        beat->line.negative = true;
    } else if (c >= '0' && c <= '9' && beat->line.length >= 0 && beat->line.length < DIGITS_LIMIT) {
        beat->line.value = beat->line.value * 10 + (c - '0');
        beat->line.length++;
    } else {
        beat->line.length = -1;
    }
}

void heartbeat_take(struct heartbeat *beat, const char *bytes, size_t length, struct instant now)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] == '\n')
            end_line(beat, now);
        else
            take_byte(beat, bytes[i]);
    }
}

static bool is_watched(const struct heartbeat *beat)
{
    return beat->armed && !beat->over;
}

struct instant heartbeats_deadline(const struct heartbeat *beats, int count, int64_t timeout_ns)
{
    struct instant first = INSTANT_NEVER;
    for (int i = 0; timeout_ns > 0 && i < count; i++)
        if (is_watched(&beats[i]))
            first = instant_min(first, instant_add(beats[i].last, timeout_ns));
    return first;
}

static bool is_behind(const struct heartbeat *a, const struct heartbeat *b)
{
    return a->step != b->step ? a->step < b->step : a->last.ns < b->last.ns;
}

int heartbeats_stalled(struct heartbeat *beats, int count, int64_t timeout_ns, struct instant now)
{
    int behind = -1;
    if (!instant_reached(now, heartbeats_deadline(beats, count, timeout_ns)))
        return -1;
    for (int i = 0; i < count; i++) {
        beats[i].stalled =
            is_watched(&beats[i]) && instant_reached(now, instant_add(beats[i].last, timeout_ns / 2));
        if (beats[i].stalled && (behind < 0 || is_behind(&beats[i], &beats[behind])))
            behind = i;
    }
    return behind;
}

/* The lowest reported step above `after`; after itself if there is none. */
static int64_t next_step(const struct heartbeat *beats, int count, int64_t after)
{
    int64_t next = after;
    for (int i = 0; i < count; i++)
        if (beats[i].step > after && (next == after || beats[i].step < next))
            next = beats[i].step;
    return next;
}

static void format_ranks(const struct heartbeat *beats, int count, int rank_base, int64_t step,
                         struct buffer *out)
{
    int ranges = 0, with_step = 0;
    for (int i = 0; i < count; i++)
        with_step += beats[i].step == step;
    buffer_text(out, with_step > 1 ? "ranks" : "rank");
    for (int i = 0; i < count; i++) {
        int last = i;
        if (beats[i].step != step)
            continue;
        while (last + 1 < count && beats[last + 1].step == step)
            last++;
        buffer_printf(out, last > i ? "%s %d-%d" : "%s %d", ranges++ ? "," : "", rank_base + i,
                      rank_base + last);
        i = last;
    }
}

int heartbeats_format(const struct heartbeat *beats, int count, int rank_base, struct buffer *out)
{
    enum { STEPS_SHOWN = 8 };
    int64_t step = next_step(beats, count, -1);
    bool silent = false;
    for (int i = 0; i < count; i++)
        silent = silent || beats[i].step < 0;
    if (step < 0)
        return 0;
    for (int shown = 0;; shown++) {
        if (shown == STEPS_SHOWN) {
            buffer_text(out, "; ...");
            return out->failed ? -1 : 0;
        }
        buffer_printf(out, "%sstep %lld: ", shown ? "; " : "", (long long)step);
        format_ranks(beats, count, rank_base, step, out);
        int64_t next = next_step(beats, count, step);
        if (next == step)
            break;
        step = next;
    }
    if (silent) {
        buffer_text(out, "; no step: ");
        format_ranks(beats, count, rank_base, -1, out);
    }
    return out->failed ? -1 : 0;
}

/* --- saved states --- */

static const char mark[] = "checkpoint/", saved_mark[] = "checkpoint/1 saved ",
                  failed_mark[] = "checkpoint/1 failed ";

/* Whether a line is about a checkpoint, good or bad: then it is no heartbeat. */
static bool saved_is_line(const char *line, size_t length)
{
    return length >= sizeof mark - 1 && !memcmp(line, mark, sizeof mark - 1);
}

static bool begins(const char *line, size_t length, const char *with, size_t *at)
{
    *at = strlen(with);
    return length > *at && !memcmp(line, with, *at);
}

/* "checkpoint/1 saved STEP TEXT" or "checkpoint/1 failed STEP TEXT". A line of another version or that is not
 * of this form changes nothing. line is not terminated. */
static void saved_take(struct worker_saved *saved, const char *line, size_t length)
{
    enum { DIGITS = 18 };
    struct worker_saved found = {.there = true};
    size_t at, first, used = 0;
    found.good = begins(line, length, saved_mark, &at);
    if (!found.good && !begins(line, length, failed_mark, &at))
        return;
    for (first = at; at < length && at - first < DIGITS && line[at] >= '0' && line[at] <= '9'; at++)
        found.step = found.step * 10 + (line[at] - '0');
    if (at == first || at == length || line[at] != ' ')
        return;
    for (at++; at < length && used < sizeof found.text - 1; at++)
        found.text[used++] = (char)((unsigned char)line[at] < ' ' || line[at] == 127 ? ' ' : line[at]);
    if (used)
        *saved = found;
}
