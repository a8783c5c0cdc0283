/* manual.h - pure: a program's manual page for man(1), made of its knob table and a few texts, so that it
 * cannot differ from --help. */
#ifndef MUSTER_PROTO_BASE_MANUAL_H
#define MUSTER_PROTO_BASE_MANUAL_H

#include <stddef.h>

#include "proto/base/buffer.h"
#include "proto/base/knob.h"

#ifdef __cplusplus
extern "C" {
#endif

struct manual_row {
    const char *name, *meaning;
};
/* A section of terms and their meanings: exit codes, subcommands. */
struct manual_list {
    const char *title; /* "EXIT STATUS"; NULL: no such section */
    const struct manual_row *rows;
    size_t count;
};

struct manual {
    const char *page;        /* "muster-run" */
    const char *version;     /* "muster 0.1.0" */
    const char *brief;       /* one line, after the dash of NAME */
    const char *synopsis;    /* "muster run [flags] program"; one line each */
    const char *description; /* a blank line between paragraphs */
    const char *options; /* title of the table's section; a table without sections of its own needs no more */
    const struct knob_table *table; /* NULL: none */
    struct manual_list lists[3];
    const char *see_also; /* "muster(1), muster-train(1)" */
};

/* The page in the language of man(7), appended. */
int manual_print(const struct manual *manual, struct buffer *out);

#ifdef __cplusplus
}
#endif
#endif
