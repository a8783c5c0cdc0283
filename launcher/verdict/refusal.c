/* refusal.c - see refusal.h. */
#include "launcher/verdict/refusal.h"

#include <stdlib.h>

#include "launcher/verdict/failure_files.h"
#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/env_names.h"

static const int64_t patience_ns = 2 * NS_PER_S;

void startup_failure_write(const char *shown, const struct run_config *config, const char *message,
                           int exit_code, struct buffer *complaints)
{
    struct muster_error err = {0};
    scope_buffer sentence = {0};
    if (config->command == COMMAND_ENV || config->dry_run)
        return;
    buffer_printf(&sentence, "%s: %s; exit code %d", shown, message, exit_code);
    struct failure_files files = {
        .sentence = sentence.data,
        .termination_log = config->termination_log,
        .termination_log_asked = config->termination_log_asked,
        .error_file = getenv(ENV_ERROR_FILE),
        .traceback = sentence.data,
        .exit_code = exit_code,
        .wall_ns = clock_wall_ns(),
    };
    if (!sentence.failed && failure_files_write(&files, patience_ns, complaints, &err) < 0)
        buffer_printf(complaints, "%s\n", err.text);
}
