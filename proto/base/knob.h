/* knob.h - the knob table: one row a setting, read by every function of settings.
 *
 * A program declares an options struct and a static table of rows with the position of each value in the
 * struct. The command-line parser, the YAML reader, --help, `muster env` and the documentation's tables are
 * functions of the table. */
#ifndef MUSTER_PROTO_BASE_KNOB_H
#define MUSTER_PROTO_BASE_KNOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum knob_type {
    KNOB_BOOL,   /* bool */
    KNOB_INT,    /* int64_t, min..max */
    KNOB_DOUBLE, /* double, min..max */
    KNOB_BYTES,  /* int64_t, min..max, suffixes K M G T */
    KNOB_TEXT,   /* char *, owned by the options struct (mem_free) */
    KNOB_CHOICE, /* int, an index into choices */
    KNOB_LIST,   /* char **, NULL-terminated and owned, NULL while empty; every setting adds one text */
};

/* What a text names. */
enum knob_text {
    KNOB_WORDS,           /* no file; kept as it is written */
    KNOB_FILE,            /* a file or folder, kept as it is written; an address (s3://...) is an error */
    KNOB_PATH,            /* a file or folder, kept as knob_path has it; in a list also after a number
                             ("0.7 ~/texts"). Its owner refuses addresses */
    KNOB_PATH_OR_ADDRESS, /* a path; an address is kept as it is written, and its owner checks it */
};

enum knob_source {
    KNOB_FROM_DEFAULT,
    KNOB_FROM_ENVIRONMENT,
    KNOB_FROM_FILE,
    KNOB_FROM_FLAG,
    KNOB_FROM_RULE, /* computed, e.g. from the host name */
};

struct knob {
    const char *name; /* "nproc-per-node" for flags, "training.steps" for files; dash and underscore are equal
                         in flags */
    char letter;      /* short flag, 0 for none */
    const char *env;  /* environment variable that gives the default, NULL for none */
    enum knob_type type;
    size_t offset;       /* offset of the value in the options struct */
    const char *initial; /* the default as text; NULL: zero, false or NULL */
    const char
        *implied;     /* value of a flag without "=VALUE", which then takes no argument; NULL: it takes one */
    double min, max;  /* for numbers; both 0: no bound */
    const char *unit; /* "s", "bytes"; NULL for none */
    const char *const *choices; /* NULL-terminated, for KNOB_CHOICE */
    const char *section;        /* heading in --help */
    const char *help;           /* one line; the effect of the setting */
    enum knob_text text;        /* of KNOB_TEXT and KNOB_LIST */
    const char *refused; /* not NULL: known but not honoured; the text names the alternative, and setting it
                            is an error */
};

#define KNOB_OFFSET(type, member) offsetof(struct type, member)

/* The row of --help, which every program has: a bool at this offset, listed in this section. */
#define KNOB_HELP_ROW(offset_, section_)                                                                     \
    {                                                                                                        \
        .name = "help", .letter = 'h', .type = KNOB_BOOL, .offset = (offset_), .section = (section_),        \
        .help = "Prints this and exits."                                                                     \
    }
/* Width of the help text of every program. */
enum { KNOB_HELP_COLUMNS = 110 };

struct knob_table {
    const struct knob *knobs;
    size_t count;
};

/* Turns a user's text for a file or folder into the path to open: a shell is not always there to do it,
 * in a file, in --flag=~/x, in the args of a container. "~" and "~/x" begin with home (NULL or "": an error);
 * another user's "~name" is refused, and so is text that another program would have replaced: "$HOME/x",
 * "${VAR}",
 * "$(VAR)", "{{ x }}", Python's None. Pure. *out: the caller's (mem_free). */
int knob_path_with_home(const char *text, const char *home, char **out, struct muster_error *err);
/* The same with the variable HOME. */
int knob_path(const char *text, char **out, struct muster_error *err);

/* Sets every value to its default. Text values are fresh copies. */
int knob_defaults(const struct knob_table *table, void *options, struct muster_error *err);
/* Frees the text values and sets them to NULL. */
void knob_free(const struct knob_table *table, void *options);

/* Sets one value from text. sources (may be NULL) has table->count entries. where names the place in errors,
 * e.g.
 * "--max-restarts" or "job.yaml:12:9". Errors name the value, the range and the unit. */
int knob_set(const struct knob_table *table, void *options, uint8_t *sources, const struct knob *knob,
             const char *text, enum knob_source source, const char *where, struct muster_error *err);
/* Reads env rows through get (getenv in programs, a fake in tests). */
int knob_read_environment(const struct knob_table *table, void *options, uint8_t *sources,
                          const char *(*get)(void *context, const char *name), void *context,
                          struct muster_error *err);

/* The row of exactly this name (dash and underscore equal), else of the unique row that begins with it
 * when prefixes is set. NULL if there is none or more than one; ambiguous (may be NULL) distinguishes the
 * two. */
const struct knob *knob_find(const struct knob_table *table, const char *name, size_t length, bool prefixes,
                             bool *ambiguous);
const struct knob *knob_find_letter(const struct knob_table *table, char letter);
/* The nearest known name, or NULL: for "unknown flag --x; did you mean --y?". */
const char *knob_nearest(const struct knob_table *table, const char *name);

/* The value as text, appended. */
int knob_format(const struct knob *knob, const void *options, struct buffer *out);
/* The value as JSON, appended: true, false, a number, a string, a list of strings, or null for a text that is
 * not set. */
int knob_format_json(const struct knob *knob, const void *options, struct buffer *out);
/* The row's help text, its choices and its default, appended. */
void knob_describe(const struct knob *knob, struct buffer *out);
/* Columns of a line in a document of Markdown. */
#define KNOB_MARKDOWN_COLUMNS 120
/* The rows as lists of Markdown, one for each section. An item has the name, the variable and knob_describe's
 * text. */
int knob_markdown(const struct knob_table *table, struct buffer *out);
/* text and a line end, with further lines at column indent where a line would be longer than columns. */
void knob_wrap(const char *text, int indent, int columns, struct buffer *out);
/* The help text of all rows, by section, at most columns wide. */
int knob_help(const struct knob_table *table, int columns, struct buffer *out);
const char *knob_source_name(enum knob_source source);

#ifdef __cplusplus
}
#endif
#endif
