/* inputs_internal.h - the kinds of inputs, for inputs_*.c. */
#ifndef MUSTER_TRAINER_RUN_INPUTS_INTERNAL_H
#define MUSTER_TRAINER_RUN_INPUTS_INTERNAL_H

#include "trainer/run/inputs.h"

/* One kind of samples. `set` is the object of its library. */
struct input_kind {
    const char *unit; /* name of samples; of texts of a language model: "tokens" */
    bool classifies;
    bool varies; /* samples have lengths of their own */
    /* Fills set, source, held and identity. */
    int (*open)(struct inputs *inputs, struct train_config *config, int rank, struct muster_error *err);
    void (*show)(const struct inputs *inputs, const struct train_config *config,
                 const struct muster_trainer *trainer);
    int (*info)(const struct inputs *inputs, struct buffer *out);
    void (*close)(void *set);
};
extern const struct input_kind input_texts, input_pictures, input_labelled;

struct inputs {
    const struct input_kind *kind; /* NULL: the tokenizer alone */
    void *set;
    struct batch_source source, held; /* held.samples 0: nothing is held out */
    const char *identity;
    double padding;       /* see inputs_padding */
    char *tokenizer_name; /* for tokenizer_open */
    char *tokenizer_path; /* NULL: bytes */
    const char *tokenizer_kind;
    int64_t vocabulary;
    struct next_batch *next;
};

/* inputs_text.c. The tokenizer of the settings, which is the caller's; tokenizer_... and vocabulary are
 * filled.
 */
struct tokenizer *inputs_find_tokenizer(struct inputs *inputs, const struct train_config *config,
                                        struct muster_error *err);
void inputs_show_tokenizer(const struct inputs *inputs);
/* Prints how far tokenizing is, now and then, for struct data_progress: the other ranks of the node wait. */
struct inputs_tokenizing {
    struct instant begun, next;
    const char *path; /* source whose time is measured */
};
void inputs_print_tokenized(void *context, const char *path, int64_t bytes, int64_t all);
/* "epochs: 3 of 1000 samples are 375 steps", where training.epochs is set. */
void inputs_show_epochs(const struct inputs *inputs, const struct train_config *config, const char *unit);

#endif
