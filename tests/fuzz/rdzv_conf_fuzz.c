/* rdzv_conf_fuzz.c - arbitrary text as --rdzv-conf: typed values in their ranges, or an error with a text. */
#include <stdlib.h>
#include <string.h>

#include "launcher/config/config.h"
#include "proto/base/mem.h"
#include "tests/fuzz/random_main.h"

static void check(bool holds)
{
    if (!holds)
        abort();
}

static bool is_duration(double seconds)
{
    return seconds == RDZV_CONF_UNSET || (seconds > 0 && seconds <= 1e7);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rdzv_conf conf;
    struct muster_error err = {0};
    scope_buffer aside = {0};
    char *text = mem_strndup((const char *)data, size);
    check(text != NULL);
    if (rdzv_conf_parse(text, "--rdzv-conf", &conf, &aside, &err) < 0) {
        check(*err.text != 0);
    } else {
        check(is_duration(conf.join_timeout) && is_duration(conf.last_call_timeout) &&
              is_duration(conf.timeout));
        check(conf.is_host >= -1 && conf.is_host <= 1 && conf.rank >= -1);
        check(!aside.failed && aside.length <= 12 * strlen(text)); /* with nearest keys */
    }
    mem_free(text);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char good[] = "'join_timeout=5,last_call_timeout=1.5,timeout=900,is_host=True,store_type="
                               "tcp,rank=1,keep_alive_max_attempt=3'";
    static const char other[] = "a=b=c, close_timeout = 3 ,a=1,use_libuv=0";
    const struct fuzz_seed seeds[] = {{good, sizeof good - 1}, {other, sizeof other - 1}};
    return fuzz_main(argc, argv, seeds, 2);
}
#endif
