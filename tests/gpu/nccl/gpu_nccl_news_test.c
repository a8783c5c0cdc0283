/* gpu_nccl_news_test.c - the notes of a family's ranks (comm_nccl_news.h), here objects of one thread that
 * serve when the test says so, and questions to NCCL's RAS at an address where the test answers. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/cmocka_all.h"

#include "proto/base/buffer.h"
#include "tests/gpu/nccl/nccl_test_ranks.h"

enum { RANKS = 11, HEARD = 16 };

static struct nccl_news *ranks[RANKS];
static struct heard {
    struct nccl_note notes[HEARD];
    int count;
} heard[RANKS];

static const struct comm_op add = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 100};
static const struct comm_op gather = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_F32, .count = 100};

static int open_one(int rank, int size, void *context)
{
    const struct comm_options options = {
        .rank = rank, .size = size, .store = context, .key = "news", .timeout_ns = 60 * NS_PER_S};
    struct muster_error err = {0};
    ranks[rank] = nccl_news_open(&options, &err);
    return ranks[rank] ? 0 : -1;
}

static void open_all(int size)
{
    struct kv_memory *memory = kv_memory_create(NULL);
    struct kv_store store = kv_memory_store(memory);
    memset(heard, 0, sizeof heard);
    assert_int_equal(rank_threads_run(size, open_one, &store), 0);
    kv_memory_destroy(memory);
}

static int close_all(void **state)
{
    (void)state;
    for (int rank = 0; rank < RANKS; rank++) {
        nccl_news_close(ranks[rank]);
        ranks[rank] = NULL;
    }
    return 0;
}

static void hear(void *context, const struct nccl_note *note)
{
    struct heard *of = context;
    if (of->count < HEARD)
        of->notes[of->count] = *note;
    of->count++;
}

static void tell(int rank, struct nccl_note note)
{
    const struct nccl_news_events events = {&heard[rank], hear};
    (void)snprintf(note.name, sizeof note.name, "test");
    nccl_news_tell(ranks[rank], &note, &events);
}

static void serve(int rank)
{
    const struct nccl_news_events events = {&heard[rank], hear};
    if (ranks[rank])
        nccl_news_serve(ranks[rank], &events);
}

/* All ranks serve until nothing has come for a while: a note that would come has come then. */
static void settle(void)
{
    for (int quiet = 0; quiet < 20; quiet++) {
        int before = 0, now = 0;
        for (int rank = 0; rank < RANKS; rank++)
            before += heard[rank].count;
        for (int rank = 0; rank < RANKS; rank++)
            serve(rank);
        for (int rank = 0; rank < RANKS; rank++)
            now += heard[rank].count;
        quiet = now > before ? 0 : quiet;
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    }
}

/* Rank has issued `issued` collectives of comm 3, with that hash, the last of which is op. */
static struct nccl_note post(uint64_t issued, uint64_t chain, const struct comm_op *op)
{
    return (struct nccl_note){
        .kind = NOTE_POST, .comm = 3, .issued = issued, .at = issued, .chain = chain, .op = *op};
}

static struct nccl_note ask(uint64_t issued)
{
    return (struct nccl_note){.kind = NOTE_ASK, .comm = 3, .issued = issued};
}

/* ---- what ranks did ---- */

static void equal_posts_are_no_failure(void **state)
{
    (void)state;
    open_all(3);
    struct nccl_note another_color = post(2, 6, &gather), another_comm = another_color;
    another_color.color = 1;
    another_comm.comm = 4;
    tell(1, post(2, 5, &add));
    tell(0, post(2, 5, &add));
    settle();
    tell(2, post(3, 7, &gather)); /* one more than the others, whose hash up to there is not known */
    settle();
    tell(2, another_color);
    settle();
    tell(2, another_comm);
    settle();
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(heard[rank].count, 0);
}

static void other_posts_are_a_failure_of_all(void **state)
{
    (void)state;
    open_all(3);
    tell(1, post(2, 5, &add));
    settle();
    tell(2, post(2, 6, &gather));
    settle();
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(heard[rank].count, 1);
        assert_int_equal(heard[rank].notes[0].kind, NOTE_FAILURE);
        assert_string_equal(heard[rank].notes[0].error.text,
                            "ranks differ in comm test: rank 1 issued all_reduce of 100 f32 by sum as #2, "
                            "rank 2 issued all_gather of 100 f32 as #2");
    }
}

static void earlier_operations_differ_where_the_last_are_equal(void **state)
{
    (void)state;
    open_all(2);
    tell(0, post(4, 5, &add));
    tell(1, post(4, 6, &add));
    settle();
    for (int rank = 0; rank < 2; rank++)
        assert_string_equal(heard[rank].notes[0].error.text,
                            "rank 0 and rank 1 issued different operations in comm test before #4");
}

/* Operations of a rank that has left are compared with the operations that others issue later. */
static void a_rank_that_left_is_compared(void **state)
{
    (void)state;
    open_all(2);
    struct nccl_note leaves = post(2, 5, &add);
    leaves.kind = NOTE_LEFT;
    tell(1, leaves);
    settle();
    assert_int_equal(heard[0].count, 1); /* that it left */
    tell(0, post(2, 6, &gather));
    assert_int_equal(heard[0].count, 2);
    assert_int_equal(heard[0].notes[1].kind, NOTE_FAILURE);
}

/* ---- which ranks are late ---- */

static void late_ranks_are_those_that_have_posted_less(void **state)
{
    (void)state;
    open_all(5);
    struct nccl_note of_another_color = post(1, 9, &add);
    of_another_color.color = 1;
    tell(1, post(3, 5, &add)); /* the operation itself */
    tell(2, post(2, 4, &add));
    tell(3, of_another_color); /* 4 and 0 have posted nothing */
    settle();
    tell(1, ask(3));
    tell(0, ask(4));
    settle();
    assert_int_equal(heard[1].count, 1);
    assert_int_equal(heard[1].notes[0].kind, NOTE_ANSWER);
    assert_int_equal(heard[1].notes[0].issued, 3);
    assert_int_equal(heard[1].notes[0].missing_count, 1);
    assert_int_equal(heard[1].notes[0].missing[0], 2);
    assert_int_equal(heard[0].count, 1);
    assert_int_equal(heard[0].notes[0].missing_count, 2);
    for (int rank = 2; rank < 5; rank++)
        assert_int_equal(heard[rank].count, 0);
}

static void a_late_first_post_is_an_answer(void **state)
{
    (void)state;
    open_all(2);
    tell(1, ask(1));
    settle();
    assert_int_equal(heard[1].notes[0].missing_count, 0);
    tell(0, post(0, 0, &add));
    tell(1, ask(1));
    settle();
    assert_int_equal(heard[1].notes[1].missing_count, 1);
    assert_int_equal(heard[1].notes[1].missing[0], 0);
}

static void an_answer_has_eight_late_ranks_at_most(void **state)
{
    (void)state;
    open_all(RANKS);
    for (int rank = 0; rank < RANKS; rank++)
        tell(rank, post(0, 0, &add));
    settle();
    tell(0, ask(1));
    assert_int_equal(heard[0].notes[0].missing_count, NEWS_MISSING);
    assert_int_equal(heard[0].notes[0].missing[NEWS_MISSING - 1], NEWS_MISSING - 1);
}

/* ---- notes for all, and others ---- */

static void a_failure_reaches_all_others_once(void **state)
{
    (void)state;
    open_all(3);
    struct nccl_note failure = {.kind = NOTE_FAILURE, .comm = -1};
    (void)error_set(&failure.error, MUSTER_E_IO, "a disk is full");
    tell(1, failure);
    settle();
    assert_int_equal(heard[1].count, 0);
    for (int rank = 0; rank < 3; rank += 2) {
        assert_int_equal(heard[rank].count, 1);
        assert_int_equal(heard[rank].notes[0].rank, 1);
        assert_string_equal(heard[rank].notes[0].error.text, "a disk is full");
    }
}

/* No comm has such a number: nothing is kept, and nothing answered. */
static void numbers_of_no_comm_are_ignored(void **state)
{
    (void)state;
    open_all(2);
    static const int none[] = {-2, NEWS_COMMS, INT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct nccl_note note = post(1, 1, &add);
        note.comm = none[i];
        tell(1, note);
        note.kind = NOTE_ASK;
        tell(1, note);
    }
    settle();
    assert_int_equal(heard[0].count + heard[1].count, 0);
}

/* ---- ends ---- */

static void hello(int size)
{
    for (int rank = 0; rank < size; rank++)
        tell(rank, (struct nccl_note){.kind = NOTE_POST, .comm = -1});
    settle();
}

static void end(int rank)
{
    nccl_news_close(ranks[rank]);
    ranks[rank] = NULL;
    settle();
}

static void an_end_without_leaving_is_heard_by_all(void **state)
{
    (void)state;
    open_all(3);
    hello(3);
    end(2);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(heard[rank].count, 1);
        assert_int_equal(heard[rank].notes[0].kind, NOTE_GONE);
        assert_int_equal(heard[rank].notes[0].rank, 2);
        assert_int_equal(heard[rank].notes[0].pid, getpid());
    }
    struct pollfd entries[RANKS];
    assert_int_equal(nccl_news_polls(ranks[0], entries), 1); /* rank 1's */
}

static void the_end_of_rank_0_is_heard(void **state)
{
    (void)state;
    open_all(3);
    hello(3);
    end(0);
    for (int rank = 1; rank < 3; rank++) {
        assert_int_equal(heard[rank].count, 1);
        assert_int_equal(heard[rank].notes[0].rank, 0);
        assert_int_equal(heard[rank].notes[0].pid, getpid());
    }
}

/* A rank that has left everything may end; a rank that has left one comm may not, nor may another. */
static void an_end_after_leaving_is_none(void **state)
{
    (void)state;
    for (int leaver = 0; leaver < 3; leaver++) {
        open_all(3);
        hello(3);
        tell(leaver, (struct nccl_note){.kind = NOTE_LEFT, .comm = 3});
        settle();
        tell(leaver, (struct nccl_note){.kind = NOTE_LEFT, .comm = -1});
        settle();
        end(leaver);
        for (int rank = 0; rank < 3; rank++)
            assert_int_equal(heard[rank].count, rank == leaver ? 0 : 2);
        (void)close_all(NULL);
    }
    open_all(2);
    tell(1, (struct nccl_note){.kind = NOTE_LEFT, .comm = 3});
    end(1);
    assert_int_equal(heard[0].count, 2);
    assert_int_equal(heard[0].notes[1].kind, NOTE_GONE);
    (void)close_all(NULL);
    open_all(3);
    tell(2, (struct nccl_note){.kind = NOTE_LEFT, .comm = -1});
    settle();
    end(0);
    assert_int_equal(heard[1].count, 2);
    assert_int_equal(heard[1].notes[1].kind, NOTE_GONE);
}

/* A peer that does not read for a while: poll is told that notes wait, and they come in order. */
static void notes_wait_for_a_slow_reader(void **state)
{
    (void)state;
    open_all(2);
    struct pollfd entry;
    struct nccl_note note = {.kind = NOTE_FAILURE, .comm = -1};
    uint64_t told = 0;
    do {
        note.issued = ++told;
        tell(0, note);
        assert_int_equal(nccl_news_polls(ranks[0], &entry), 1);
    } while (!(entry.events & POLLOUT) && told < 100000);
    note.issued = ++told;
    tell(0, note);
    assert_true(entry.events & POLLOUT && entry.events & POLLIN);
    settle();
    assert_int_equal(nccl_news_polls(ranks[0], &entry), 1);
    assert_false(entry.events & POLLOUT);
    assert_int_equal(heard[1].count, told);
    for (int i = 0; i < HEARD; i++)
        assert_int_equal(heard[1].notes[i].issued, i + 1);
}

/* ---- RAS ---- */

struct service {
    const char *answer;
    bool stays; /* does not close */
    int listener;
    char commands[64];
};

static void *answer_once(void *context)
{
    struct service *s = context;
    int fd = accept(s->listener, NULL, NULL);
    for (size_t at = 0; at < sizeof s->commands - 1 && !strstr(s->commands, "status\n"); at++)
        if (recv(fd, s->commands + at, 1, 0) != 1)
            break;
    (void)!write(fd, s->answer, strlen(s->answer));
    char byte;
    while (s->stays && recv(fd, &byte, 1, 0) > 0) {
    }
    (void)close(fd);
    return NULL;
}

/* The result of nccl_ras_ask at a service that answers so. host: "127.0.0.1:%d". */
static int ask_ras(struct service *s, const char *host, struct buffer *out, struct muster_error *err)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    socklen_t size = sizeof address;
    int off = 0;
    char text[64];
    pthread_t thread;
    s->listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(s->listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off), 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(s->listener, 1), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(pthread_create(&thread, NULL, answer_once, s), 0);
    (void)snprintf(text, sizeof text, host, ntohs(address.sin6_port));
    setenv("NCCL_RAS_ADDR", text, 1);
    const int failed = nccl_ras_ask(out, err);
    unsetenv("NCCL_RAS_ADDR");
    (void)shutdown(s->listener, SHUT_RDWR); /* where nobody has called */
    (void)pthread_join(thread, NULL);
    (void)close(s->listener);
    return failed;
}

static void the_answer_of_ras_is_what_follows_its_ok(void **state)
{
    (void)state;
    static const char *const answers[][2] = {{"OK\nall is well\n", "all is well\n"},
                                             {"all is well\n", "all is well\n"}};
    static const char *const hosts[] = {"127.0.0.1:%d", "[::1]:%d"};
    for (int i = 0; i < 4; i++) {
        struct service s = {.answer = answers[i / 2][0]};
        scope_buffer text = {.limit = 3072};
        assert_int_equal(ask_ras(&s, hosts[i % 2], &text, NULL), 0);
        assert_int_equal(buffer_append(&text, "", 1), 0);
        assert_string_equal(text.data, answers[i / 2][1]);
        assert_string_equal(s.commands, "timeout 1\nverbose status\n");
    }
}

static void no_answer_of_ras_is_an_error(void **state)
{
    (void)state;
    static const char *const answers[] = {"OK\n", ""};
    for (int i = 0; i < 2; i++) {
        struct service s = {.answer = answers[i]};
        struct muster_error err = {0};
        scope_buffer text = {.limit = 3072};
        assert_int_equal(ask_ras(&s, "127.0.0.1:%d", &text, &err), -1);
        assert_string_equal(err.text, "NCCL's RAS gave no answer");
        assert_int_equal(text.length, 0);
    }
}

/* A service that does not close costs three seconds, and its text is kept, up to the limit. */
static void an_answer_of_ras_is_bounded(void **state)
{
    (void)state;
    struct service s = {.answer = "OK\nhalf of it", .stays = true};
    scope_buffer text = {.limit = 3072}, small = {.limit = 8};
    const struct instant start = clock_now(NULL);
    assert_int_equal(ask_ras(&s, "127.0.0.1:%d", &text, NULL), 0);
    assert_true(instant_diff_ns(clock_now(NULL), start) < 20 * NS_PER_S);
    assert_int_equal(text.length, strlen("half of it"));
    struct service full = {.answer = "OK\nhalf of it", .stays = true};
    assert_int_equal(buffer_append(&small, "abc", 3), 0);
    assert_int_equal(ask_ras(&full, "127.0.0.1:%d", &small, NULL), 0);
    assert_int_equal(small.length, 8);
    assert_memory_equal(small.data, "abchalf ", 8);
}

static void an_address_of_ras_without_a_port_is_refused(void **state)
{
    (void)state;
    static const char *const given[][2] = {{"somewhere", "NCCL_RAS_ADDR=somewhere has no port"},
                                           {"127.0.0.1:ras", "NCCL_RAS_ADDR: 127.0.0.1:ras is no address"},
                                           {"127.0.0.1:1", "no answer from NCCL's RAS at 127.0.0.1:1"}};
    for (int i = 0; i < 3; i++) {
        struct muster_error err = {0};
        scope_buffer text = {.limit = 3072};
        setenv("NCCL_RAS_ADDR", given[i][0], 1);
        assert_int_equal(nccl_ras_ask(&text, &err), -1);
        assert_string_equal(err.text, given[i][1]);
    }
    unsetenv("NCCL_RAS_ADDR");
}

/* gpu_nccl_news [TEST]: all tests, or the named test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(equal_posts_are_no_failure, close_all),
        cmocka_unit_test_teardown(other_posts_are_a_failure_of_all, close_all),
        cmocka_unit_test_teardown(earlier_operations_differ_where_the_last_are_equal, close_all),
        cmocka_unit_test_teardown(a_rank_that_left_is_compared, close_all),
        cmocka_unit_test_teardown(late_ranks_are_those_that_have_posted_less, close_all),
        cmocka_unit_test_teardown(a_late_first_post_is_an_answer, close_all),
        cmocka_unit_test_teardown(an_answer_has_eight_late_ranks_at_most, close_all),
        cmocka_unit_test_teardown(a_failure_reaches_all_others_once, close_all),
        cmocka_unit_test_teardown(numbers_of_no_comm_are_ignored, close_all),
        cmocka_unit_test_teardown(an_end_without_leaving_is_heard_by_all, close_all),
        cmocka_unit_test_teardown(the_end_of_rank_0_is_heard, close_all),
        cmocka_unit_test_teardown(an_end_after_leaving_is_none, close_all),
        cmocka_unit_test_teardown(notes_wait_for_a_slow_reader, close_all),
        cmocka_unit_test(the_answer_of_ras_is_what_follows_its_ok),
        cmocka_unit_test(no_answer_of_ras_is_an_error),
        cmocka_unit_test(an_answer_of_ras_is_bounded),
        cmocka_unit_test(an_address_of_ras_without_a_port_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
