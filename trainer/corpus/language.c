/* language.c - see language.h. */
#include "trainer/corpus/language.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/library.h"

enum { LOOKED_AT = 4096, SHORTEST = 80, DATABASE_LIMIT = 1 << 20 }; /* bytes of a text; of fpdb.conf */

/* As declared in its textcat.h, which is not needed to build this. */
struct textcat_calls {
    void *(*init)(const char *database, const char *prefix);
    char *(*classify)(void *handle, const char *text, size_t length);
    void (*done)(void *handle);
};
static const struct library_function functions[] = {
    {"special_textcat_Init", offsetof(struct textcat_calls, init), false, NULL},
    {"textcat_Classify", offsetof(struct textcat_calls, classify), false, NULL},
    {"textcat_Done", offsetof(struct textcat_calls, done), false, NULL},
};
static const struct library textcat = {"libexttextcat-2.0.so.0", "--languages needs libexttextcat-2.0-0",
                                       functions, sizeof functions / sizeof *functions};

struct language {
    struct textcat_calls calls;
    void *handle;
    char *kept; /* ",en,de," */
};

static bool is_kept(const struct language *l, const char *name, size_t length)
{
    for (const char *at = l->kept; (at = strchr(at, ',')) && at[1]; at++)
        if (!strncmp(at + 1, name, length) && (at[1 + length] == ',' || at[1 + length] == '-'))
            return true;
    return false;
}

/* A line of the database is "en.lm en--utf8"; the language is the part before "--". */
static bool is_known(const char *database, const char *name, size_t length)
{
    for (const char *line = database; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *code = line + strcspn(line, " \t\n");
        code += strspn(code, " \t");
        if (*line != '#' && !strncmp(code, name, length) && (code[length] == '-' || code[length] == '\n'))
            return true;
    }
    return false;
}

static int check_kept(const char *kept, const char *folder, const char *database, struct muster_error *err)
{
    for (const char *at = kept; *at; at += strspn(at, ",")) {
        const size_t length = strcspn(at, ",");
        if (!length || !is_known(database, at, length))
            return error_set(err, MUSTER_E_INVALID, "--languages: '%.*s' is no language of %s/fpdb.conf",
                             (int)length, at, folder);
        at += length;
    }
    return 0;
}

struct language *language_open(const char *kept, const char *folder, struct muster_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the library reads its files by static state */
    scope_buffer database = {0};
    scope_free char *path = mem_printf("%s/fpdb.conf", folder), *prefix = mem_printf("%s/", folder);
    GUARD(guard_language) struct language *l = mem_calloc(1, sizeof *l);
    if (!path || !prefix || !l || !(l->kept = mem_printf(",%s,", kept))) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for --languages");
        return NULL;
    }
    if (io_read_file(path, DATABASE_LIMIT, &database, err) < 0) {
        (void)error_wrap(err, "--languages needs the n-grams of libexttextcat-data (--language_data)");
        return NULL;
    }
    if (check_kept(kept, folder, database.data ? database.data : "", err) < 0)
        return NULL;
    (void)pthread_mutex_lock(&lock); /* cannot fail: initialized, and not held */
    if (!library_load(&textcat, &l->calls, NULL, err) && !(l->handle = l->calls.init(path, prefix)))
        (void)error_set(err, MUSTER_E_INVALID, "%s: libexttextcat cannot read it, or a file that it names",
                        path);
    (void)pthread_mutex_unlock(&lock);
    return l->handle ? take_pointer(&l) : NULL;
}

void language_close(struct language *l)
{
    if (!l)
        return;
    if (l->handle)
        l->calls.done(l->handle);
    mem_free(l->kept);
    mem_free(l);
}

/* The answer is "[en--utf8][sco--utf8]", the likely ones, or SHORT or UNKNOWN. */
double language_measure(struct language *l, const char *text, size_t length)
{
    if (length > LOOKED_AT) {
        length = LOOKED_AT;
        while (length && ((unsigned char)text[length] & 0xC0) == 0x80)
            length--;
    }
    if (length < SHORTEST)
        return (double)NAN;
    const char *answer = l->calls.classify(l->handle, text, length);
    if (!answer || *answer != '[')
        return answer && !strcmp(answer, "SHORT") ? (double)NAN : 0;
    for (; *answer == '['; answer += strcspn(answer, "]") + 1)
        if (is_kept(l, answer + 1, strcspn(answer + 1, "-]")))
            return 1;
    return 0;
}
