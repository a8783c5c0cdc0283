/* expect_trace.c - see expect_trace.h. */
#include "tests/simulation/expect_trace.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/cmocka_all.h"

void expect_trace(struct cluster *cluster, int64_t until_ms, const char *expected)
{
    cluster_run(cluster, until_ms);
    const char *broken;
    if (cluster_broken(cluster, &broken))
        fail_msg("%s\n%s", broken, cluster_trace(cluster));
    if (strcmp(cluster_trace(cluster), expected) != 0)
        (void)fputs(cluster_trace(cluster), stderr); /* cmocka's message has a limit */
    assert_string_equal(cluster_trace(cluster), expected);
}
