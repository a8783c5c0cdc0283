/* text.c - see text.h. */
#include "proto/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/base/error.h"

bool text_int64(const char *text, int64_t *out)
{
    if (!*text || isspace((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || *end || end == text)
        return false;
    *out = value;
    return true;
}

bool text_double(const char *text, double *out)
{
    /* no program of ours calls setlocale, so strtod reads a point; hexadecimal, inf and nan are refused */
    if (!*text || isspace((unsigned char)*text) || strpbrk(text, "xXnN"))
        return false;
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (*end || end == text || !isfinite(value))
        return false;
    *out = value;
    return true;
}

void text_trim(char *text)
{
    static const char blanks[] = " \t\r\n\v\f";
    const char *begin = text + strspn(text, blanks);
    size_t length = strlen(begin);
    while (length && strchr(blanks, begin[length - 1]))
        length--;
    memmove(text, begin, length);
    text[length] = 0;
}

bool text_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"1", "true", "yes", "y", "on", "t"};
    static const char *const no[] = {"0", "false", "no", "n", "off", "f"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        bool is_yes = !strcasecmp(text, yes[i]);
        if (is_yes || !strcasecmp(text, no[i])) {
            *out = is_yes;
            return true;
        }
    }
    return false;
}

bool text_bytes(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)*text))
        return false;
    long long value = strtoll(text, &end, 10);
    if (errno)
        return false;
    int shift = 0;
    switch (toupper((unsigned char)*end)) {
    case 'K':
        shift = 10;
        break;
    case 'M':
        shift = 20;
        break;
    case 'G':
        shift = 30;
        break;
    case 'T':
        shift = 40;
        break;
    }
    if (shift)
        end++;
    if (shift && *end == 'i')
        end++;
    if (*end == 'B' || *end == 'b')
        end++;
    if (*end || value > (INT64_MAX >> shift))
        return false;
    *out = (int64_t)value << shift;
    return true;
}

static char folded(char c)
{
    return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

enum { NAME_LIMIT = 64 };

/* Damerau's distance with adjacent transpositions. */
size_t text_distance(const char *a, const char *b)
{
    size_t n = strnlen(a, NAME_LIMIT), m = strnlen(b, NAME_LIMIT);
    size_t row[3][NAME_LIMIT + 1];
    for (size_t j = 0; j <= m; j++)
        row[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            char x = folded(a[i - 1]), y = folded(b[j - 1]);
            size_t best = last[j - 1] + (x != y);
            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && x == folded(b[j - 2]) && folded(a[i - 2]) == y && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[n % 3][m];
}

size_t text_byte_order_mark(const char *text, size_t length)
{
    return length >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
}

const char *text_nearest(const char *text, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t best_distance = strlen(text) / 2 + 1;
    for (size_t i = 0; i < count; i++) {
        size_t d = text_distance(text, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}

int64_t text_row(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, name, length) || (line[length] != ':' && line[length] != ' '))
            continue;
        const char *value = line + length + 1;
        value += strspn(value, " \t");
        if (!isdigit((unsigned char)*value))
            return -1;
        long long number = strtoll(value, NULL, 10); /* too large a one becomes the largest */
        bool kib = memmem(line, strcspn(line, "\n"), "kB", 2);
        return kib && number <= INT64_MAX / 1024 ? number * 1024 : number;
    }
    return -1;
}

uint64_t text_hash(uint64_t hash, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

bool text_append(char *out, size_t size, const char *format, ...)
{
    size_t used = strlen(out), left = size - used;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(out + used, left, format, arguments);
    va_end(arguments);
    return length >= 0 && (size_t)length < left;
}

const char *text_format_bytes(char *out, size_t size, int64_t bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t unit = 0;
    while ((value >= 1000 || value <= -1000) && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(out, size, unit == 0 ? "%.0f %s" : value < 10 ? "%.2f %s" : "%.1f %s", value, units[unit]);
    return out;
}

/* ---- addresses ---- */

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/* "": of all others. */
static const struct {
    const char *scheme, *is, *advice;
} kinds[] = {
    {"file", "an address and no path", "write the path alone, without file://"},
    {"hf", "a repository of the Hugging Face hub", "download it (hf download) and name the folder"},
    {"http", "an address of the web", "download it and name the file or folder"},
    {"https", "an address of the web", "download it and name the file or folder"},
    {"ftp", "an address of the web", "download it and name the file or folder"},
    {"hdfs", "an address of HDFS",
     "mount it and name the folder (checkpoints: or copy each by training.checkpoint_command)"},
    {"", "an address and no path of a file system",
     "mount the bucket (mountpoint-s3, gcsfuse, blobfuse2, rclone mount) and name the folder (checkpoints: "
     "or copy each by "
     "training.checkpoint_command)"},
};

size_t text_scheme_length(const char *text)
{
    const size_t length =
        strspn(text, letters)
            ? strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-")
            : 0;
    return length && !strncmp(text + length, "://", 3) ? length : 0;
}

int text_refuse_scheme(const char *where, const char *path, struct muster_error *err)
{
    const size_t length = path ? text_scheme_length(path) : 0;
    size_t i = 0;
    if (!length)
        return 0;
    while (*kinds[i].scheme &&
           (strlen(kinds[i].scheme) != length || strncasecmp(kinds[i].scheme, path, length) != 0))
        i++; /* the last row fits every scheme */
    return error_set(err, MUSTER_E_INVALID, "%s%s%.160s is %s, and folders and files are meant: %s",
                     where ? where : "", where ? ": " : "", path, kinds[i].is, kinds[i].advice);
}

void text_make_plain(char *text, const char *kept)
{
    for (; *text; text++)
        if (((unsigned char)*text < ' ' || *text == 0x7f) && *text != '\t' && !(kept && strchr(kept, *text)))
            *text = '?';
}
