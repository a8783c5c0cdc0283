/* train_config_fuzz.c - arbitrary bytes as a configuration file: an answer or an error with a text, never a
 * crash or a leak. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/random_main.h"
#include "trainer/formats/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct formats_settings settings;
    struct muster_error err = {0};
    if (formats_parse("fuzz", (const char *)data, size, NULL, 0, 2, &settings, &err) < 0 && !err.text[0])
        abort();
    formats_free(&settings);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char good[] =
        "training:\n  steps: 12\n  strategy: NO_SHARD # why\nmodel: {layers: 2, channels: 64}\n"
        "data:\n  path: \"/tmp/a b\"\nlogging:\n  sample_prompt: 'x'\n";
    static const char deepspeed[] =
        "{\"train_batch_size\": 64, // all\n\"gradient_accumulation_steps\": 2, \"zero_optimization\": "
        "{\"stage\": 3,"
        "\"stage3_param_persistence_threshold\": \"auto\", \"mics_shard_size\": 2}, \"fp16\": {\"enabled\": "
        "true},"
        "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1e-3, \"betas\": [0.9, 0.99]}},"
        "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 90}}, \"x\": "
        "\"\\ud83d\\ude00\"}";
    static const char arguments[] = "{\"per_device_train_batch_size\": 2, \"max_steps\": 4, \"output_dir\": "
                                    "\"o\", \"fsdp\": \"full_shard auto_wrap\","
                                    "\"warmup_ratio\": 0.5, \"report_to\": [\"tensorboard\"], "
                                    "\"lr_scheduler_type\": \"cosine\", \"deepspeed\": {}}";
    static const char model[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_key_value_heads\": 2, "
        "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"tie_word_embeddings\": true}";
    static const char manifest[] =
        "kind: ConfigMap\napiVersion: v1\ndata:\n  config.json: |\n    {\"batch_size\": 4}\n";
    const struct fuzz_seed seeds[] = {{good, sizeof good - 1},
                                      {deepspeed, sizeof deepspeed - 1},
                                      {arguments, sizeof arguments - 1},
                                      {model, sizeof model - 1},
                                      {manifest, sizeof manifest - 1}};
    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof *seeds);
}
#endif
