/* facts.c - see page.h: a page's facts about its model: names, dropout, order, labels, targets of
 * adapters. */
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "runtime/pages/labels.h"
#include "runtime/pages/page_internal.h"

const char *page_own(const struct page *page)
{
    return page->own ? page->name : NULL;
}

const char *page_model_type(const struct page *page)
{
    return page->section[MODEL_TYPE]->text;
}

const json_t *page_config(const struct page *page)
{
    return page->config;
}

double page_dropout(const struct page *page)
{
    return page->dropout;
}

const char *page_base(const struct page *page)
{
    return page->section[BASE] ? page->section[BASE]->text : "";
}

const char *page_tied(const struct page *page)
{
    return *page->tied ? page->tied : NULL;
}

const char *page_tied_to(const struct page *page)
{
    return *page->tied ? page->tied_to : NULL;
}

/* The embedding, the blocks, whose parts are in the order of the page, and the head. */
int page_order(const struct page *page, const char *param)
{
    const struct tree_node *order = page->section[ORDER];
    const char *pattern = page->section[NAMES]->text;
    const size_t before = (size_t)(strstr(pattern, "{}") - pattern);
    const int parts = order ? (int)order->count + 1 : 1;
    int layer = 0, end = 0, part = 0;
    for (int i = 0; i < HEAD_PARAMS; i++)
        if (!strcmp(param, page->head[i]))
            return parts * (page->layers + 1);
    if (strncmp(param, pattern, before) != 0 || sscanf(param + before, "%d.%n", &layer, &end) != 1 || !end)
        return 0;
    for (; order && part < (int)order->count; part++) {
        const char *of = tree_text(order->items[part]);
        if (of && !strncmp(param + before + end, of, strlen(of)))
            break;
    }
    return parts * (1 + layer) + part;
}

/* ---- classifiers ---- */

bool page_classifies(const struct page *page)
{
    return page->section[CLASSIFIER] != NULL;
}

int page_labels(const struct page *page)
{
    return labels_count(page->config);
}

const char *page_label(const struct page *page, int label)
{
    return labels_name(page->config, label);
}

bool page_changes_config(const struct page *page)
{
    return page->changed;
}

/* Whether a name begins with a text of the list, with the page's base or without it. */
static bool page_name_begins(const struct page *page, enum section section, const char *name)
{
    const struct tree_node *list = page->section[section];
    const size_t base = strlen(page_base(page));
    for (size_t i = 0; list && i < list->count; i++) {
        const char *start = tree_text(list->items[i]);
        if (start &&
            (!strncmp(name, start, strlen(start)) || (base && !strncmp(start, page_base(page), base) &&
                                                      !strncmp(name, start + base, strlen(start + base)))))
            return true;
    }
    return false;
}

bool page_may_lack(const struct page *page, const char *param)
{
    return page_name_begins(page, DRAWN, param);
}

bool page_saves(const struct page *page, const char *param)
{
    return page_name_begins(page, SAVED, param);
}

bool page_leaves_unread(const struct page *page, const char *tensor)
{
    return page_name_begins(page, UNREAD, tensor);
}

int page_targets(const struct page *page, struct lora *lora, struct muster_error *err)
{
    const struct tree_node *targets = page->section[ADAPTERS];
    for (size_t i = 0; i < targets->count; i++) {
        const char *target = tree_text(targets->items[i]);
        if (!target)
            return error_set(err, MUSTER_E_INVALID, "%s:%d: a target is a text", page->name,
                             targets->items[i]->line);
        if (lora_add_target(lora, target, err) < 0)
            return -1;
    }
    return 0;
}
