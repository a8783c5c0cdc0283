/* fatal.c - errors that a restart does not mend: reported to the launcher by a line in the pipe of heartbeats
 * (launcher/docs/heartbeat.md), and printed by one rank. */
#include "runtime/include/muster_world.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/text.h"
#include "runtime/world/world.h"
#include "runtime/world/world_internal.h"

/* One line: "fatal TEXT". A launcher that does not read it restarts the job. */
static void report_it(const struct muster_error *error)
{
    char line[sizeof "fatal \n" + MUSTER_ERROR_TEXT];
    (void)snprintf(line, sizeof line, "fatal %s", error->text); /* fits */
    for (char *at = line; *at; at++)
        *at = *at == '\n' ? ' ' : *at;
    (void)text_append(line, sizeof line, "\n"); /* fits */
    (void)heartbeat_write(line, NULL);          /* see above */
}

/* The error without what agree.c puts before that of another rank. */
static const char *own_text(const struct muster_error *error)
{
    static const char between[] = " cannot go on: ";
    const char *at = error->text;
    while (!strncmp(at, "rank ", 5)) {
        const char *digits = at + 5, *end = digits + strspn(digits, "0123456789");
        if (end == digits || strncmp(end, between, sizeof between - 1) != 0)
            break;
        at = end + sizeof between - 1;
    }
    return at;
}

/* Whether this rank prints the error: the first of all ranks with the same error. Every rank prints where the
 * store has gone. */
static int prints_it(struct muster_world *world, const struct muster_error *error)
{
    const struct kv_store *store = world ? world_store(world) : NULL;
    const char *text = own_text(error);
    char key[40];
    int64_t count = 0;
    if (!store)
        return 1;
    (void)snprintf(key, sizeof key, "fatal/%016llx",
                   (unsigned long long)text_hash(TEXT_HASH_START, text, strlen(text))); /* fits */
    return store->add(store->ctx, key, 1, &count, NULL) || count == 1;
}

int muster_fatal(struct muster_world *world, const struct muster_error *error)
{
    report_it(error);
    return prints_it(world, error);
}

void muster_fatal_meet(struct muster_world *world, int64_t wait_ns)
{
    static const char count_key[] = "failed/count", all_key[] = "failed/all";
    const struct kv_store *store = world ? world_store(world) : NULL;
    scope_buffer all = {0};
    int64_t count = 0;
    if (!store || store->add(store->ctx, count_key, 1, &count, NULL)) /* then there is none to wait for */
        return;
    if (count == muster_world_size(world))
        (void)store->set(store->ctx, all_key, "1", 1, NULL); /* the others wait in vain, for a while */
    else if (wait_ns > 0)
        (void)store->get(store->ctx, all_key, &all, wait_ns, NULL); /* as above */
}
