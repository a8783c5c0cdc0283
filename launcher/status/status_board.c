/* status_board.c - see status_board.h. */
#include "launcher/status/status_board.h"

#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

struct status_board {
    struct status_board_options options;
    struct loop_source knock; /* an eventfd */
    pthread_mutex_t lock;
    pthread_cond_t answer;
    /* below: under the lock */
    uint64_t asked, answered;    /* questions so far */
    struct instant since;        /* of the oldest question without an answer */
    struct agent_status *latest; /* NULL: taken, or no memory for it */
    bool closed;
};

static void knocked(void *context, uint32_t events)
{
    struct status_board *board = context;
    uint64_t count;
    (void)events;
    ssize_t got = read(board->knock.fd, &count, sizeof count);
    (void)got; /* nothing there: the knock was answered already */
    (void)pthread_mutex_lock(&board->lock);
    uint64_t asked = board->asked;
    (void)pthread_mutex_unlock(&board->lock);
    struct agent_status *status = board->options.fill(board->options.context);
    (void)pthread_mutex_lock(&board->lock);
    struct agent_status *old = board->latest; /* whoever asked for it did not wait */
    board->latest = status;
    board->answered = asked;
    board->since = board->asked == asked ? INSTANT_NEVER : clock_now(NULL);
    (void)pthread_cond_broadcast(&board->answer);
    (void)pthread_mutex_unlock(&board->lock);
    mem_free(old);
}

static int init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes))
        return -1;
    int failed = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!failed)
        failed = pthread_cond_init(condition, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return failed ? -1 : 0;
}

struct status_board *status_board_create(const struct status_board_options *options, struct muster_error *err)
{
    scope_free struct status_board *board = mem_calloc(1, sizeof *board);
    scope_close int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!board || fd < 0) {
        (void)(board ? error_errno(err, "eventfd") : error_set(err, MUSTER_E_NOMEM, "no memory"));
        return NULL;
    }
    board->options = *options;
    board->since = INSTANT_NEVER;
    if (init_condition(&board->answer)) {
        (void)error_set(err, MUSTER_E_NOMEM, "no condition variable");
        return NULL;
    }
    (void)pthread_mutex_init(&board->lock, NULL); /* cannot fail without attributes */
    board->knock = (struct loop_source){fd, knocked, board};
    if (loop_add(options->loop, &board->knock, EPOLLIN, err) < 0) {
        (void)pthread_cond_destroy(&board->answer);
        (void)pthread_mutex_destroy(&board->lock);
        return NULL;
    }
    (void)take_fd(&fd);
    return take_pointer(&board);
}

static void wait_for(struct status_board *board, uint64_t question, struct instant deadline)
{
    struct timespec until = instant_timespec(deadline);
    while (!board->closed && board->answered < question)
        if (pthread_cond_timedwait(&board->answer, &board->lock, &until) == ETIMEDOUT)
            return;
}

int status_board_ask(struct status_board *board, int64_t patience_ns, struct agent_status **status,
                     struct muster_error *err)
{
    const uint64_t one = 1;
    struct instant now = clock_now(NULL);
    (void)pthread_mutex_lock(&board->lock);
    if (board->asked == board->answered)
        board->since = now;
    uint64_t question = ++board->asked;
    ssize_t written = write(board->knock.fd, &one, sizeof one);
    (void)written; /* full after 2^64 questions */
    wait_for(board, question, instant_add(now, patience_ns));
    bool closed = board->closed, answered = board->answered >= question;
    struct agent_status *found = answered ? take_pointer(&board->latest) : NULL;
    (void)pthread_mutex_unlock(&board->lock);
    if (closed) {
        mem_free(found);
        return error_set(err, MUSTER_E_CANCELLED, "the agent is leaving");
    }
    if (!answered)
        return error_set(err, MUSTER_E_TIMEOUT, "the agent's loop did not answer within %.3g s",
                         (double)patience_ns / (double)NS_PER_S);
    if (!found)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the status");
    *status = found;
    return 0;
}

struct instant status_board_unanswered_since(struct status_board *board)
{
    (void)pthread_mutex_lock(&board->lock);
    struct instant since = board->since;
    (void)pthread_mutex_unlock(&board->lock);
    return since;
}

void status_board_close(struct status_board *board)
{
    (void)pthread_mutex_lock(&board->lock);
    board->closed = true;
    (void)pthread_cond_broadcast(&board->answer);
    (void)pthread_mutex_unlock(&board->lock);
}

void status_board_destroy(struct status_board *board)
{
    if (!board)
        return;
    loop_remove(board->options.loop, &board->knock);
    (void)close(board->knock.fd);
    (void)pthread_cond_destroy(&board->answer);
    (void)pthread_mutex_destroy(&board->lock);
    mem_free(board->latest);
    mem_free(board);
}
