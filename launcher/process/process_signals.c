/* process_signals.c - see process_signals.h. */
#include "launcher/process/process_signals.h"

#include <stdio.h>

#include "launcher/host/signal_names.h"
#include "proto/base/buffer.h"
#include "proto/base/io.h"

enum { STATUS_LIMIT = 16384 };

bool process_handles(pid_t pid, int number)
{
    char path[64];
    scope_buffer text = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid); /* fits */
    return io_read_file(path, STATUS_LIMIT, &text, NULL) == 0 && text.data &&
           signal_is_caught(text.data, number);
}
