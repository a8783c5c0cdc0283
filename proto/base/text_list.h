/* text_list.h - a growing NULL-terminated list of owned texts: an argv, an environment. */
#ifndef MUSTER_PROTO_BASE_TEXT_LIST_H
#define MUSTER_PROTO_BASE_TEXT_LIST_H

#include <stddef.h>

struct text_list {
    char **items; /* NULL-terminated; NULL while empty */
    size_t count, room;
};

/* Appends text and takes ownership of it, also on failure. NULL (an allocation of the caller's failed) or
 * no memory: -1. */
int text_list_take(struct text_list *list, char *text);
/* For an environment: name=value replaces the entry of that name, or is appended. */
int text_list_set(struct text_list *list, const char *name, const char *value);
/* For an environment: the value of name, or NULL. items may be NULL. */
const char *text_list_value(char *const *items, const char *name);
/* Frees the list and its texts, and zeroes it. Accepts NULL. */
void text_list_free(struct text_list *list);
/* The same for items that were taken out of a list. Accepts NULL. */
void text_list_free_items(char **items);

#define scope_text_list __attribute__((cleanup(text_list_free))) struct text_list

#endif
