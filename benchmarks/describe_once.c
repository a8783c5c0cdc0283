/* describe_once.c - the cost of NCCL's environment in a launch: this machine read once (without NVML) and
 * decided upon once, in a fresh process. Prints the nanoseconds of both. */
#include <stdio.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "runtime/nccl/decide/decide.h"
#include "runtime/nccl/read/reader.h"

int main(void)
{
    const struct reader_options options = {.root = "",
                                           .environment = environ,
                                           .home = "/root",
                                           .host = "host",
                                           .master = "10.0.0.1",
                                           .master_address = "10.0.0.1",
                                           .nnodes = 2,
                                           .local_workers = 8,
                                           .gpus_wanted = -1};
    struct description machine;
    struct decision_list decisions = {0};
    struct muster_error err = {0};
    struct instant start = clock_now(NULL);
    if (reader_read(&options, &machine, &err) < 0) {
        (void)fprintf(stderr, "describe_once: %s\n", err.text);
        return 1;
    }
    struct instant read = clock_now(NULL);
    if (decide(&machine, NULL, &decisions, &err) < 0) {
        (void)fprintf(stderr, "describe_once: %s\n", err.text);
        return 1;
    }
    struct instant decided = clock_now(NULL);
    int result = printf("%lld %lld\n", (long long)instant_diff_ns(read, start),
                        (long long)instant_diff_ns(decided, read)) < 0;
    decision_list_free(&decisions);
    description_free(&machine);
    return result;
}
