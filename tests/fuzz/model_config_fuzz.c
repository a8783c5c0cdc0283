/* model_config_fuzz.c - arbitrary bytes as a config.json: sizes or an error with a text; sizes of which a
 * model can be described are written, and read again as the same. */
#include <stdlib.h>
#include <string.h>

#include "runtime/files/config_json.h"
#include "tests/fuzz/random_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct architecture architecture, again;
    struct config_notes notes;
    struct muster_error err = {0};
    struct buffer text = {0}, second = {0};
    int result =
        config_json_parse("config.json", (const char *)data, size, NULL, &architecture, &notes, &err);
    if (result && !err.text[0])
        abort();
    if (!result && !config_json_format(&architecture, DTYPE_F32, &text, &err)) {
        if (config_json_parse("again", text.data, text.length, NULL, &again, &notes, &err) ||
            config_json_format(&again, DTYPE_F32, &second, &err) || strcmp(text.data, second.data))
            abort();
        architecture_drop(&again);
    }
    architecture_drop(&architecture);
    buffer_free(&text);
    buffer_free(&second);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char gpt2[] = "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":32,\"n_head\":4,\"n_"
                               "positions\":20,\"vocab_size\":48,\"n_inner\":null}";
    static const char llama[] = "{\"model_type\":\"llama\",\"num_hidden_layers\":3,\"hidden_size\":48,\"num_"
                                "attention_heads\":6,\"intermediate_size\":80,"
                                "\"vocab_size\":97,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
                                "\"low_freq_factor\":1,\"high_freq_factor\":4}}";
    static const char gemma[] =
        "{\"model_type\":\"gemma2\",\"num_hidden_layers\":2,\"hidden_size\":32,\"num_"
        "attention_heads\":4,\"head_dim\":8,\"intermediate_size\":48,\"vocab_size\":61,"
        "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}";
    const struct fuzz_seed seeds[] = {
        {gpt2, sizeof gpt2 - 1}, {llama, sizeof llama - 1}, {gemma, sizeof gemma - 1}};
    return fuzz_main(argc, argv, seeds, 3);
}
#endif
