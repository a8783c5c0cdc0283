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

int stop_notice_format_regroup(uint32_t round, int64_t answer_ns, const char *reason, struct buffer *out)
{
    buffer_printf(out, "{\"coming\": \"regroup\", \"round\": %u, \"answer_s\": %.3f, \"reason\": ",
                  (unsigned)round, (double)answer_ns / (double)NS_PER_S);
    return put_reason(reason, out) < 0 ? -1 : buffer_text(out, "}\n");
}

int stop_notice_format_place(const struct membership_world *world, int local_rank, int local_world_size,
                             struct buffer *out)
{
    buffer_printf(
        out,
        "{\"coming\": \"place\", \"round\": %u, \"restarts\": %lld, \"rank\": %d, \"world_size\": %d, "
        "\"local_rank\": %d, \"local_world_size\": %d, \"node\": %d, \"nodes\": %d, \"master_addr\": ",
        (unsigned)world->id.round, (long long)world->restart_count, world->rank_base + local_rank,
        world->world_size, local_rank, local_world_size, world->group_rank, world->group_world_size);
    if (buffer_json_bytes(out, world->master_addr, strlen(world->master_addr)) < 0)
        return -1;
    return buffer_printf(out, ", \"master_port\": %u}\n", (unsigned)world->master_port);
}

static void take_word(struct stop_notice_listener *listener)
{
    const struct {
        const char *word;
        bool *told;
    } words[] = {{"ready", &listener->listens}, {"regroup", &listener->regroups},
                 {"moves", &listener->moves},   {"resize", &listener->resizes},
                 {"grows", &listener->grows},   {"held", &listener->held},
                 {"lost", &listener->lost}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        *words[i].told |= listener->length == (int)strlen(words[i].word) &&
                          !memcmp(listener->line, words[i].word, (size_t)listener->length);
}

void stop_notice_take(struct stop_notice_listener *listener, const char *bytes, size_t length)
{
    const int room = (int)sizeof listener->line;
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] == '\n') {
            take_word(listener);
            listener->length = 0;
        } else if (listener->length < room) {
            listener->line[listener->length++] = bytes[i];
        } else {
            listener->length = room + 1;
        }
    }
}
