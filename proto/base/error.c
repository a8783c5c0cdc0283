/* error.c - see error.h. */
#include "proto/base/error.h"

#include "proto/base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void cut(struct muster_error *err, int wanted)
{
    text_make_plain(err->text, "\n");
    if (wanted >= (int)sizeof err->text)
        memcpy(err->text + sizeof err->text - 4, "...", 4);
}

static void fill(struct muster_error *err, int code, const char *format, va_list args)
{
    err->code = code;
    cut(err, vsnprintf(err->text, sizeof err->text, format, args));
}

int error_set(struct muster_error *err, enum muster_error_code code, const char *format, ...)
{
    if (!err)
        return -1;
    int kept = errno;
    va_list args;
    va_start(args, format);
    fill(err, code, format, args);
    va_end(args);
    errno = kept;
    return -1;
}

/* The file is not there, the path itself is wrong, or the system could not do it now. */
static enum muster_error_code code_of_errno(int number)
{
    switch (number) {
    case ENOMEM:
        return MUSTER_E_NOMEM;
    case ENOENT:
    case ENOTDIR:
        return MUSTER_E_NOT_FOUND;
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
        return MUSTER_E_INVALID;
    case ENOSPC:
    case EDQUOT:
        return MUSTER_E_FULL;
    default:
        return MUSTER_E_IO;
    }
}

int error_errno(struct muster_error *err, const char *format, ...)
{
    if (!err)
        return -1;
    int kept = errno;
    int code = code_of_errno(kept);
    va_list args;
    va_start(args, format);
    fill(err, code, format, args);
    va_end(args);
    char reason[128];
    const char *text = strerror_r(kept, reason, sizeof reason);
    size_t used = strlen(err->text);
    cut(err, (int)used + snprintf(err->text + used, sizeof err->text - used, ": %s", text));
    errno = kept;
    return -1;
}

int error_wrap(struct muster_error *err, const char *format, ...)
{
    if (!err)
        return -1;
    int kept = errno;
    char inner[MUSTER_ERROR_TEXT];
    memcpy(inner, err->text, sizeof inner);
    va_list args;
    va_start(args, format);
    fill(err, err->code, format, args);
    va_end(args);
    size_t used = strlen(err->text);
    cut(err, (int)used + snprintf(err->text + used, sizeof err->text - used, ": %s", inner));
    errno = kept;
    return -1;
}

void error_clear(struct muster_error *err)
{
    if (err)
        *err = (struct muster_error){0};
}

const char *error_name(int code)
{
    switch (code) {
#define NAME(value, name, meaning)                                                                           \
    case value:                                                                                              \
        return name;
        MUSTER_ERROR_CODES(NAME)
#undef NAME
    default:
        return "unknown";
    }
}
