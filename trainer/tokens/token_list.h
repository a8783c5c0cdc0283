/* token_list.h - a growable run of token ids that remembers its first failure, as struct buffer does. */
#ifndef MUSTER_TRAINER_TOKENS_TOKEN_LIST_H
#define MUSTER_TRAINER_TOKENS_TOKEN_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/base/mem.h"

struct token_list {
    int32_t *tokens;
    size_t count, capacity;
    bool failed; /* no memory; later additions do nothing */
};

/* Room for `more` tokens behind those that are there; NULL once it failed. Add to count what was written. */
static inline int32_t *token_list_reserve(struct token_list *list, size_t more)
{
    if (list->failed)
        return NULL;
    if (list->capacity - list->count < more) {
        const size_t wanted = (list->count + more) * 2 + 64;
        int32_t *grown = (int32_t *)mem_realloc(list->tokens, wanted, sizeof *grown);
        if (!grown) {
            list->failed = true;
            return NULL;
        }
        list->tokens = grown;
        list->capacity = wanted;
    }
    return list->tokens + list->count;
}

static inline void token_list_add(struct token_list *list, const int32_t *tokens, size_t count)
{
    int32_t *to = token_list_reserve(list, count);
    if (to && count) {
        memcpy(to, tokens, count * sizeof *to);
        list->count += count;
    }
}

/* Accepts NULL. */
static inline void token_list_free(struct token_list *list)
{
    if (list) {
        mem_free(list->tokens);
        memset(list, 0, sizeof *list);
    }
}

#define scope_token_list __attribute__((cleanup(token_list_free))) struct token_list

#endif
