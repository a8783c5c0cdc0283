/* base_kernel_log_test.c - records of a kernel log that the test makes up, read by read: also those that the
 * kernel has written over. */
#include "tests/support/cmocka_all.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>

#include "proto/kernel_log.h"

enum { LOG = -7, RECORDS = 8 };

/* Answers of the next reads: a record, "" for its end, or NULL for an error. */
static struct {
    const char *record;
    int error;
} answers[RECORDS];
static int answered;

ssize_t __real_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size);

ssize_t __wrap_read(int fd, void *to, size_t size)
{
    if (fd != LOG)
        return __real_read(fd, to, size);
    const char *record = answered < RECORDS ? answers[answered].record : NULL;
    errno = answered < RECORDS && answers[answered].error ? answers[answered].error : EAGAIN;
    answered++;
    if (!record)
        return -1;
    const size_t length = strlen(record) < size ? strlen(record) : size;
    memcpy(to, record, length);
    return (ssize_t)length;
}

static char taken[256];

static void take(void *context, char *record)
{
    assert_ptr_equal(context, taken);
    strcat(taken, record); /* NOLINT: of this test's records */
}

static bool read_all(int limit)
{
    *taken = '\0';
    answered = 0;
    return kernel_log_read(LOG, limit, take, taken);
}

static void answer(int at, const char *record, int error)
{
    answers[at].record = record;
    answers[at].error = error;
}

static void records_to_the_end(void **state)
{
    (void)state;
    memset(answers, 0, sizeof answers);
    answer(0, "one ", 0);
    answer(1, NULL, EINTR);
    answer(2, "two", 0);
    answer(4, "later", 0);
    assert_false(read_all(100));
    assert_string_equal(taken, "one two");
    assert_int_equal(answered, 4);
    assert_false(read_all(1));
    assert_string_equal(taken, "one ");
    answer(2, "", 0); /* the end of a file */
    assert_false(read_all(100));
    assert_string_equal(taken, "one ");
}

static void records_that_are_lost_are_said_and_reading_goes_on(void **state)
{
    (void)state;
    static const int errors[] = {EPIPE, EINVAL};
    for (int i = 0; i < 2; i++) {
        memset(answers, 0, sizeof answers);
        answer(0, "one ", 0);
        answer(1, NULL, errors[i]);
        answer(2, "four ", 0);
        answer(3, NULL, errors[i]);
        answer(4, "nine", 0);
        assert_true(read_all(100));
        assert_string_equal(taken, "one four nine");
    }
    assert_true(read_all(2)); /* a log that is written faster than it is read has an end, too */
    assert_int_equal(answered, 2);
}

static void other_errors_end_it(void **state)
{
    (void)state;
    memset(answers, 0, sizeof answers);
    answer(0, NULL, EBADF);
    answer(1, "one", 0);
    assert_false(read_all(100));
    assert_string_equal(taken, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_to_the_end),
        cmocka_unit_test(records_that_are_lost_are_said_and_reading_goes_on),
        cmocka_unit_test(other_errors_end_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
