/* stop_notice.c - see stop_notice.h. */
#include "launcher/policy/stop_notice.h"

#include <string.h>

enum { REASON_LIMIT = 400 }; /* bytes in JSON; the part before it is shorter than 250 */

const char *stop_notice_change_name(enum membership_change change)
{
    static const char *const names[] = {
#define CHANGE_NAME(symbol, name, meaning) [symbol] = (name),
        MEMBERSHIP_CHANGES(CHANGE_NAME)
#undef CHANGE_NAME
    };
    return (unsigned)change < MEMBERSHIP_CHANGE_COUNT ? names[change] : "";
}

/* As much of the beginning as fits, whole characters only. */
static int put_reason(const char *text, struct buffer *out)
{
    for (size_t length = strlen(text);; length -= 1 + length / 8) {
        scope_buffer quoted = {0};
        while (length && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
        if (buffer_json_bytes(&quoted, text, length) < 0)
            return -1;
        if (quoted.length <= REASON_LIMIT)
            return buffer_append(out, quoted.data, quoted.length);
    }
}

int stop_notice_format(const struct stop_notice *notice, struct instant now, struct buffer *out)
{
    buffer_printf(out, "{\"coming\": \"%s\", \"round\": %u, \"nodes\": %d, \"next_nodes\": ",
                  stop_notice_change_name(notice->change), (unsigned)notice->round, notice->nodes);
    if (notice->next_nodes || notice->change == MEMBERSHIP_CHANGE_END)
        buffer_printf(out, "%d", notice->next_nodes);
    else
        buffer_text(out, "null");
    buffer_printf(out, ", \"deadline_s\": %.3f, \"deadline_monotonic_ns\": %lld, \"reason\": ",
                  (double)instant_diff_ns(notice->deadline, now) / (double)NS_PER_S,
                  (long long)notice->deadline.ns);
    if (put_reason(notice->reason, out) < 0)
        return -1;
    return buffer_text(out, "}\n");
}

void stop_notice_take(struct stop_notice_listener *listener, const char *bytes, size_t length)
{
    static const char word[] = "ready";
    const int end = (int)sizeof word - 1;
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] == '\n') {
            listener->listens = listener->listens || listener->matched == end;
            listener->matched = 0;
        } else if (listener->matched >= 0 && listener->matched < end && bytes[i] == word[listener->matched]) {
            listener->matched++;
        } else {
            listener->matched = -1;
        }
    }
}
