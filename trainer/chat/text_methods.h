/* text_methods.h - private header of this folder: the methods of texts, as tables of names. */
#ifndef MUSTER_TRAINER_CHAT_TEXT_METHODS_H
#define MUSTER_TRAINER_CHAT_TEXT_METHODS_H

#include "trainer/chat/jinja_internal.h"

/* A method of a text that is called. The arguments stay the caller's. */
struct jinja_called {
    struct jinja_run *run;
    struct jinja_text text;
    const struct jinja_arguments *arguments;
};

struct jinja_text_method {
    const char *name;
    struct jinja_value (*call)(const struct jinja_called *c); /* a failure is in c->run */
};

/* Tables of Python's names; the last row has no name. */
extern const struct jinja_text_method jinja_form_methods[]; /* text_methods.c: letters, ends, kinds, widths */
extern const struct jinja_text_method
    jinja_part_methods[]; /* text_parts.c: finding, replacing, cutting, joining */

#endif
