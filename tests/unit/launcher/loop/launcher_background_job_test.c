/* background_job.h: the end of a job reaches the loop once, and not at all if the caller has released it.
 */
#include "launcher/loop/background_job.h"

#include <sched.h>
#include <semaphore.h>

#include "proto/base/clock.h"
#include "tests/support/cmocka_all.h"

/* Shared with the thread; as static memory it outlives both. */
static struct {
    sem_t may_end;
    int released; /* atomic */
} payload;

struct fixture {
    struct loop loop;
    struct background_watch watch;
    int ends;
};

static void run(void *context)
{
    (void)context;
    while (sem_wait(&payload.may_end) < 0)
        ;
}

static void release(void *context)
{
    (void)context;
    __atomic_add_fetch(&payload.released, 1, __ATOMIC_SEQ_CST);
}

static void begin(struct fixture *f);

static void ended(void *context)
{
    struct fixture *f = context;
    background_watch_end(&f->watch);
    if (++f->ends == 1)
        begin(f); /* one after another, from inside */
}

static void begin(struct fixture *f)
{
    struct muster_error err = {0};
    struct background_job *job = background_job_start("a test", run, &payload, release, &err);
    assert_int_equal(background_watch_begin(&f->watch, &f->loop, job, ended, f, &err), 0);
}

static void turn(struct fixture *f, int64_t wait_ns)
{
    assert_int_equal(loop_turn(&f->loop, instant_add(clock_now(NULL), wait_ns), NULL), 0);
}

static void wait_for_release(int count)
{
    struct instant limit = instant_add(clock_now(NULL), 240 * NS_PER_S);
    while (__atomic_load_n(&payload.released, __ATOMIC_SEQ_CST) < count)
        assert_false(instant_reached(clock_now(NULL), limit) || sched_yield());
}

static void the_loop_hears_of_each_end_once(void **state)
{
    struct fixture *f = *state;
    begin(f);
    turn(f, 0);
    assert_int_equal(f->ends, 0);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(sem_post(&payload.may_end), 0);
        while (f->ends < i)
            turn(f, 240 * NS_PER_S);
    }
    turn(f, 0);
    assert_int_equal(f->ends, 2);
    assert_null(f->watch.job);
    wait_for_release(2);
}

static void who_lets_go_hears_nothing(void **state)
{
    struct fixture *f = *state;
    begin(f);
    background_watch_end(&f->watch);
    background_watch_end(&f->watch);
    assert_int_equal(sem_post(&payload.may_end), 0);
    wait_for_release(1); /* by the thread, which was the last one out */
    turn(f, 0);
    assert_int_equal(f->ends, 0);
    assert_int_equal(background_watch_begin(&f->watch, &f->loop, NULL, ended, f, NULL), -1);
    assert_null(f->watch.job);
}

static int set_up(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){0};
    __atomic_store_n(&payload.released, 0, __ATOMIC_SEQ_CST);
    *state = &fixture;
    return sem_init(&payload.may_end, 0, 0) < 0 || loop_init(&fixture.loop, NULL) < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    loop_close(&f->loop);
    return sem_destroy(&payload.may_end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_loop_hears_of_each_end_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_lets_go_hears_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
