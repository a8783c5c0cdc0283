/* config_json.h - config.json of a folder of Hugging Face: the sizes of a model, read and written. Pure.
 *
 * A key that would change the model's results, and is not supported here, is refused by its name. Keys that
 * change nothing (token numbers, initialisation, caches) are ignored. */
#ifndef MUSTER_RUNTIME_FILES_CONFIG_JSON_H
#define MUSTER_RUNTIME_FILES_CONFIG_JSON_H

#include "runtime/files/architecture.h"

/* Settings in config.json next to the sizes. */
struct config_notes {
    double dropout; /* the largest of its probabilities, which are not applied */
};

/* A page of the user's (runtime/pages/page.h), in place of those that libmuster brings; name: of its file. */
struct config_page {
    const char *name, *text;
    size_t length;
};

/* own NULL: none; architecture_drop ends what is filled in. name stands for the file in errors:
 * MUSTER_E_INVALID, MUSTER_E_UNSUPPORTED with the key and its value. Sizes are checked by architecture_model.
 */
int config_json_parse(const char *name, const char *text, size_t length, const struct config_page *own,
                      struct architecture *architecture, struct config_notes *notes,
                      struct muster_error *err);

/* A whole config.json, as transformers 4 and 5 read it. */
int config_json_format(const struct architecture *architecture, enum dtype dtype, struct buffer *out,
                       struct muster_error *err);
/* "quant_method" in quantization_config of a config.json whose tensors are in few bits (codes.h): other
 * programs that know no such method refuse them. */
#define CONFIG_QUANT_METHOD "muster"

/* An existing one for tensors in few bits. */
int config_json_mark(const char *name, const char *text, size_t length, struct buffer *out,
                     struct muster_error *err);
/* An existing one for parameters of dtype: the same bytes where it names that type already, and no
 * quantisation. */
int config_json_retype(const char *name, const char *text, size_t length, enum dtype dtype,
                       struct buffer *out, struct muster_error *err);

#endif
