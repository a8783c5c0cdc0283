/* signal_names.c - see signal_names.h. */
#include "launcher/host/signal_names.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rendezvous/failure/failure.h"

static bool is_named(int number, const char *name, size_t length)
{
    char scratch[16];
    const char *full = failure_signal_name(number, scratch, sizeof scratch);
    if (full == scratch) /* it has no name */
        return false;
    return (strlen(full) == length && !strncasecmp(full, name, length)) ||
           (strlen(full) == length + 3 && !strncasecmp(full + 3, name, length));
}

static int find(const char *name, size_t length)
{
    for (int number = 1; number <= SIGNALS_LIMIT; number++)
        if (length && is_named(number, name, length))
            return number;
    return 0;
}

signal_bits signal_names_parse(const char *text, struct buffer *unknown)
{
    signal_bits bits = 0;
    for (;;) {
        size_t whole = strcspn(text, ","), length = whole;
        const char *name = text;
        while (length && isspace((unsigned char)*name)) {
            name++;
            length--;
        }
        while (length && isspace((unsigned char)name[length - 1]))
            length--;
        int number = find(name, length);
        if (number && number != SIGKILL && number != SIGSTOP && number != SIGCHLD)
            bits |= signal_bit(number);
        else if (length)
            buffer_printf(unknown, "%s%.*s", unknown->length ? "," : "", (int)length, name);
        if (!text[whole])
            return bits;
        text += whole + 1;
    }
}

bool signal_is_caught(const char *status, int number)
{
    static const char key[] = "\nSigCgt:";
    const char *line = strstr(status, key);
    return line && strtoull(line + sizeof key - 1, NULL, 16) & signal_bit(number);
}

bool signal_is_swallowed(const char *command, const char *status, int number)
{
    static const char *const shells[] = {"sh", "bash", "dash", "ash", "busybox", "ksh", "zsh"};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(command, shells[i]))
            return !signal_is_caught(status, number);
    return false;
}
