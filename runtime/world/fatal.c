/* fatal.c - errors that a restart does not mend: reported to the launcher and printed by one rank. The mark
 * is a line in the pipe of heartbeats (launcher/docs/heartbeat.md), the text goes into the worker's error
 * file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "proto/env_names.h"
#include "runtime/world/heartbeat.h"
#include "runtime/world/world.h"

/* In the shape of PyTorch's @record, which torchrun reads too. The report does without it where it cannot be
 * written. */
static void write_error_file(const struct muster_error *error)
{
    const char *path = getenv(ENV_ERROR_FILE);
    scope_buffer text = {0};
    if (!path || !*path)
        return;
    scope_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    buffer_text(&text, "{\"message\": {\"message\": ");
    (void)buffer_json_string(&text, error->text); /* the buffer remembers a failure */
    buffer_printf(&text, ", \"extraInfo\": {\"py_callstack\": \"\", \"timestamp\": \"%lld\"}}}\n",
                  (long long)(clock_wall_ns() / NS_PER_S));
    if (!text.failed)
        (void)io_write_all(fd, text.data, text.length, path, NULL); /* see above */
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

/* Of all ranks with the same error the first one. Where the store has gone, every rank. */
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
    (void)heartbeat_write("fatal\n", NULL); /* a launcher that does not read it restarts the job */
    write_error_file(error);
    return prints_it(world, error);
}
