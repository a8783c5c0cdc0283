/* error_file.c - see error_file.h. */
#include "launcher/verdict/error_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"

static inline void guard_json(json_t **value)
{
    json_decref(*value); /* accepts NULL */
}
#define scope_json GUARD(guard_json)

/* --- before the parser --- */

/* Four hexadecimal digits, or -1. */
static int take_code(const char *at)
{
    int code = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    return code;
}

static bool is_high(int code)
{
    return code >= 0xd800 && code < 0xdc00;
}

static bool is_low(int code)
{
    return code >= 0xdc00 && code < 0xe000;
}

/* Python writes half a surrogate pair for a byte of a path that is not UTF-8 (os.fsdecode), which no JSON
 * parser takes: it becomes U+FFFD. at: after the "\u" of text, which ends at end. Returns how many bytes
 * to skip.
 *  */
static size_t mend_escape(char *at, const char *end)
{
    int code = end - at >= 4 ? take_code(at) : -1;
    if (code < 0)
        return 0;
    bool pair = is_high(code) && end - at >= 10 && at[4] == '\\' && at[5] == 'u' && is_low(take_code(at + 6));
    if (pair)
        return 10;
    if (is_high(code) || is_low(code))
        memcpy(at, "fffd", 4);
    return 4;
}

/* One pass over the text: its depth, and lone surrogates. */
static int check_text(char *text, size_t length, struct muster_error *err)
{
    bool inside = false; /* a string */
    int depth = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (inside && c == '\\' && i + 1 < length) {
            i++;
            if (text[i] == 'u')
                i += mend_escape(text + i + 1, text + length);
        } else if (c == '"') {
            inside = !inside;
        } else if (!inside && (c == '{' || c == '[')) {
            if (++depth > ERROR_FILE_DEPTH)
                return error_set(err, MUSTER_E_LIMIT, "it is nested more than %d deep", ERROR_FILE_DEPTH);
        } else if (!inside && (c == '}' || c == ']')) {
            depth--;
        }
    }
    return 0;
}

static json_t *error_file_load(const char *text, size_t length, struct muster_error *err)
{
    if (length > ERROR_FILE_LIMIT) {
        error_set(err, MUSTER_E_LIMIT, "it has %zu bytes, more than %d", length, ERROR_FILE_LIMIT);
        return NULL;
    }
    scope_free char *copy = mem_calloc(length + 1, 1);
    if (!copy) {
        error_set(err, MUSTER_E_NOMEM, "no memory for %zu bytes of JSON", length);
        return NULL;
    }
    memcpy(copy, text, length);
    if (check_text(copy, length, err) < 0)
        return NULL;
    json_error_t why;
    json_t *root = json_loadb(copy, length, JSON_ALLOW_NUL, &why);
    if (root && json_is_object(root) && json_object_get(root, "message"))
        return root;
    if (root)
        error_set(err, MUSTER_E_INVALID, "it has no \"message\"");
    else
        error_set(err, MUSTER_E_INVALID, "it is not JSON (line %d: %s)", why.line, why.text);
    json_decref(root);
    return NULL;
}

/* --- its content --- */

/* The text as lines of a report: control bytes but for newlines become blanks, newlines too where one_line.
 */
static void clean(char *text, bool one_line)
{
    for (char *at = text; *at; at++)
        if (((unsigned char)*at < ' ' && (one_line || *at != '\n')) || *at == 127)
            *at = ' ';
}

static void take_line(const json_t *value, char *out, size_t size)
{
    const char *text = json_string_value(value);
    if (!text)
        return;
    int needed = snprintf(out, size, "%s", text);
    if (needed >= (int)size)
        memcpy(out + size - 4, "...", 4);
    clean(out, true);
}

/* The end of a traceback is its most useful part. */
static void take_traceback(const json_t *value, char *out, size_t size)
{
    const char *text = json_string_value(value);
    if (!text)
        return;
    size_t length = strlen(text);
    while (length && strchr("\n ", text[length - 1]))
        length--;
    if (length >= size) {
        const char *from = text + length - (size - 1), *line = memchr(from, '\n', size - 1);
        from = line ? line + 1 : from;
        length -= (size_t)(from - text);
        text = from;
    }
    memcpy(out, text, length);
    out[length] = '\0';
    clean(out, false);
}

/* Seconds as a number or as text, whole ones or not. */
static void take_time(const json_t *value, struct error_report *out)
{
    double seconds = json_number_value(value);
    const char *text = json_string_value(value);
    if (text && !text_double(text, &seconds))
        return;
    if (!(seconds > 0 && seconds < 9e9)) /* the range of 63 bits of nanoseconds */
        return;
    bool whole = json_is_integer(value) || (text && !strpbrk(text, ".eE"));
    out->timed = true;
    out->wall_ns = (int64_t)(seconds * (double)NS_PER_S);
    out->grain_ns = whole ? NS_PER_S : 0;
}

int error_file_parse(const char *text, size_t length, struct error_report *out, struct muster_error *err)
{
    *out = (struct error_report){0};
    scope_json json_t *root = error_file_load(text, length, err);
    if (!root)
        return -1;
    const json_t *message = json_object_get(root, "message");
    if (json_is_string(message)) {
        take_line(message, out->message, sizeof out->message);
        take_time(json_object_get(root, "timestamp"), out);
        return 0;
    }
    if (!json_is_object(message))
        return error_set(err, MUSTER_E_INVALID, "its \"message\" is neither a text nor an object");
    const json_t *more = json_object_get(message, "extraInfo");
    take_line(json_object_get(message, "message"), out->message, sizeof out->message);
    take_traceback(json_object_get(more, "py_callstack"), out->traceback, sizeof out->traceback);
    take_time(json_object_get(more, "timestamp"), out);
    out->place = json_is_true(json_object_get(more, "place"));
    return 0;
}

/* --- handing on --- */

static int append_json(const char *bytes, size_t length, void *out)
{
    return buffer_append(out, bytes, length);
}

int error_file_with_code(const char *text, size_t length, int exit_code, struct buffer *out,
                         struct muster_error *err)
{
    scope_json json_t *root = error_file_load(text, length, err);
    if (!root)
        return -1;
    json_t *message = json_object_get(root, "message");
    if (json_is_object(message) && exit_code &&
        json_object_set_new(message, "errorCode", json_integer(exit_code)) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write an error file");
    if (json_dump_callback(root, append_json, out, JSON_COMPACT) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write an error file");
    return 0;
}

int error_file_format(const char *message, const char *traceback, int64_t wall_ns, int exit_code,
                      struct buffer *out)
{
    buffer_text(out, "{\"message\": {\"message\": ");
    buffer_json_string(out, message);
    buffer_text(out, ", \"extraInfo\": {\"py_callstack\": ");
    buffer_json_string(out, traceback);
    buffer_printf(out, ", \"timestamp\": \"%lld\"}, \"errorCode\": %d}}", (long long)(wall_ns / NS_PER_S),
                  exit_code);
    return out->failed ? -1 : 0;
}

/* --- their directory --- */

static const char prefix[] = "error_", in_memory[] = "/dev/shm";

/* Whether files made there stay in memory: a folder on a disk costs two journal entries and, where the
 * disk is told of freed blocks, a wait for it. */
static bool is_memory(const char *folder)
{
    struct statfs status;
    return statfs(folder, &status) == 0 && status.f_type == TMPFS_MAGIC && access(folder, W_OK | X_OK) == 0;
}

/* TMPDIR, or the usual folder; NULL: one has to be looked for. */
static const char *wanted_folder(void)
{
    const char *given = getenv("TMPDIR");
    return given && *given ? given : is_memory(in_memory) ? in_memory : NULL;
}

/* By the kernel's caches alone: a look-up that must ask a server is refused, and so is the question
 * for attributes. */
bool error_directory_is_prompt(void)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_CACHED};
    struct statx folder, root;
    const char *wanted = wanted_folder(), *path = wanted ? wanted : "/tmp";
    if (path == in_memory)
        return true;
    scope_close int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how); /* Linux 5.12 */
    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &folder) < 0 ||
        statx(AT_FDCWD, "/", AT_STATX_DONT_SYNC, STATX_TYPE, &root) < 0)
        return false;
    bool on_root = folder.stx_dev_major == root.stx_dev_major && folder.stx_dev_minor == root.stx_dev_minor;
    return on_root || folder.stx_dev_major != 0; /* 0: no device, as of NFS, FUSE and also of tmpfs */
}

char *error_directory_make(struct temporary_folder *temporary)
{
    const char *parent = wanted_folder();
    temporary->warning[0] = '\0';
    if (parent != in_memory) {
        temporary_folder_find(temporary);
        parent = temporary->path;
    }
    scope_free char *path = mem_printf("%s/muster_errors_XXXXXX", parent);
    return path && mkdtemp(path) ? take_pointer(&path) : NULL;
}

char *error_directory_file(const char *directory, uint32_t attempt, int local_rank)
{
    return mem_printf("%s/%s%u_%d.json", directory, prefix, attempt, local_rank);
}

static inline void guard_directory(DIR **directory)
{
    if (*directory)
        (void)closedir(*directory);
}

void error_directory_discard(const char *directory)
{
    if (rmdir(directory) == 0 || errno != ENOTEMPTY)
        return;
    DIR *GUARD(guard_directory) entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (!strncmp(entry->d_name, prefix, sizeof prefix - 1))
            (void)unlinkat(dirfd(entries), entry->d_name, 0); /* files that cannot be removed stay */
    (void)rmdir(directory);
}
