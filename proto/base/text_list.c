/* text_list.c - see text_list.h. */
#include "proto/base/text_list.h"

#include <string.h>

#include "proto/base/mem.h"

int text_list_take(struct text_list *list, char *text)
{
    if (text && list->count + 2 > list->room) {
        size_t room = list->room ? list->room * 2 : 16;
        char **items = mem_realloc(list->items, room, sizeof *items);
        if (!items) {
            mem_free(text);
            return -1;
        }
        list->items = items;
        list->room = room;
    }
    if (!text)
        return -1;
    list->items[list->count++] = text;
    list->items[list->count] = NULL;
    return 0;
}

/* Whether entry sets the variable whose name has length bytes. */
static int sets(const char *entry, const char *name, size_t length)
{
    return !strncmp(entry, name, length) && entry[length] == '=';
}

int text_list_set(struct text_list *list, const char *name, const char *value)
{
    size_t length = strlen(name);
    char *entry = mem_printf("%s=%s", name, value);
    for (size_t i = 0; entry && i < list->count; i++)
        if (sets(list->items[i], name, length)) {
            mem_free(list->items[i]);
            list->items[i] = entry;
            return 0;
        }
    return text_list_take(list, entry);
}

const char *text_list_value(char *const *items, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; items && items[i]; i++)
        if (sets(items[i], name, length))
            return items[i] + length + 1;
    return NULL;
}

void text_list_free_items(char **items)
{
    for (size_t i = 0; items && items[i]; i++)
        mem_free(items[i]);
    mem_free(items);
}

void text_list_free(struct text_list *list)
{
    if (!list)
        return;
    text_list_free_items(list->items);
    *list = (struct text_list){0};
}
