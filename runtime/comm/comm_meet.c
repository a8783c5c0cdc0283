/* comm_meet.c - see comm_meet.h. */
#include "runtime/comm/comm_meet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "runtime/comm/comm_internal.h"

enum { KEY_BYTES = 256 };

static int key_of(char key[KEY_BYTES], const struct comm_board *board, const char *what, int rank,
                  struct muster_error *err)
{
    int length = snprintf(key, KEY_BYTES, "%s/%s/%lld/%s/%d", board->key, board->kind,
                          (long long)board->generation, what, rank);
    if (length < KEY_BYTES)
        return 0;
    return error_set(err, MUSTER_E_LIMIT,
                     "the key %.100s... with %.60s is too long for a comm: all of it takes %d bytes, the "
                     "limit is %d",
                     board->key, what, length, KEY_BYTES - 1);
}

int comm_board_open(struct comm_board *board, struct muster_error *err)
{
    char key[KEY_BYTES];
    board->generation = 0;
    if (key_of(key, board, "uses-by", board->rank, err))
        return -1;
    return board->store->add(board->store->ctx, key, 1, &board->generation, err);
}

int comm_board_put(const struct comm_board *board, const char *what, const void *data, size_t length,
                   struct muster_error *err)
{
    char key[KEY_BYTES];
    if (key_of(key, board, what, board->rank, err))
        return -1;
    return board->store->set(board->store->ctx, key, data, length, err);
}

int comm_board_get(const struct comm_board *board, const char *what, int rank, const char *absent, void *data,
                   size_t length, struct muster_error *err)
{
    char key[KEY_BYTES];
    scope_buffer value = {0};
    int64_t left = instant_diff_ns(board->deadline, clock_now(NULL));
    if (key_of(key, board, what, rank, err))
        return -1;
    if (board->store->get(board->store->ctx, key, &value, left > 0 ? left : 1, err))
        return error_wrap(err, "rank %d %s", rank, absent);
    if (value.length != length)
        return error_set(err, MUSTER_E_PROTOCOL,
                         "%s holds %zu bytes in place of %zu; do all ranks run the same version?", key,
                         value.length, length);
    memcpy(data, value.data, length);
    return 0;
}

int comm_await_peer(const struct kv_store *store, struct pollfd *entries, int count, struct instant deadline,
                    const char *what, struct muster_error *err)
{
    for (;;) {
        struct muster_error late = {0};
        const struct instant slice = instant_min(deadline, instant_add(clock_now(NULL), COMM_SLICE_NS));
        if (!comm_await(entries, count, slice, what, &late))
            return 0;
        if (late.code == MUSTER_E_TIMEOUT && store && store->is_gone && store->is_gone(store->ctx))
            return error_set(err, MUSTER_E_PEER, "%s: the store is gone, and with it this round", what);
        if (late.code != MUSTER_E_TIMEOUT || instant_reached(clock_now(NULL), deadline)) {
            if (err)
                *err = late;
            return -1;
        }
    }
}

int comm_await(struct pollfd *entries, int count, struct instant deadline, const char *what,
               struct muster_error *err)
{
    for (;;) {
        int64_t left = instant_diff_ns(deadline, clock_now(NULL));
        if (left <= 0)
            return error_set(err, MUSTER_E_TIMEOUT, "%s: timed out", what);
        struct timespec limit = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
        int ready = ppoll(entries, (nfds_t)count, &limit, NULL);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return error_errno(err, "%s: poll", what);
    }
}
