/* train_config_fuzz.c - arbitrary bytes as a configuration file: an answer or an error with a text, never a
 * crash or a leak. */
#include <stdlib.h>
#include <string.h>

#include "runtime/app/train_file.h"
#include "tests/fuzz/random_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct train_config config;
    struct muster_error err = {0};
    if (!train_config_parse("fuzz.yaml", (const char *)data, size, NULL, 0, &config, &err))
        train_config_free(&config);
    else if (!err.text[0])
        abort();
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char good[] =
        "training:\n  steps: 12\n  strategy: NO_SHARD # why\nmodel: {layers: 2, channels: 64}\n"
        "data:\n  path: \"/tmp/a b\"\nlogging:\n  sample_prompt: 'x'\n";
    const struct fuzz_seed seeds[] = {{good, sizeof good - 1}};
    return fuzz_main(argc, argv, seeds, 1);
}
#endif
