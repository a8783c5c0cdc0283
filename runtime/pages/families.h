/* families.h - the pages of families/, embedded by families/embed.cmake. */
#ifndef MUSTER_RUNTIME_PAGES_FAMILIES_H
#define MUSTER_RUNTIME_PAGES_FAMILIES_H

#include <stddef.h>

struct page_text {
    const char *model_type, *text;
    size_t length;
};
extern const struct page_text page_texts[]; /* model_type NULL at the end */
extern const char page_text_names[];        /* "gemma, gemma2, mistral" */

#endif
