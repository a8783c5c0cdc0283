/* families.c - see page.h: the pages that libmuster brings. */
#include "runtime/pages/families.h"

#include <string.h>

#include "runtime/pages/page.h"

const char *page_of_family(const char *model_type, size_t *length)
{
    for (const struct page_text *page = page_texts; page->model_type; page++)
        if (!strcmp(page->model_type, model_type)) {
            *length = page->length;
            return page->text;
        }
    return NULL;
}

const char *page_families(void)
{
    return page_text_names;
}
