/* program_internal.h - a recorded program, for the parts of program.h and their tests.
 *
 * program_write.c and program_step.c record, program_place.c decides places when a layer is closed,
 * program_run.c walks the steps. */
#ifndef MUSTER_RUNTIME_MODEL_PROGRAM_INTERNAL_H
#define MUSTER_RUNTIME_MODEL_PROGRAM_INTERNAL_H

#include "runtime/model/program.h"

__extension__ typedef unsigned __int128 program_set; /* a set of values */
static_assert(PROGRAM_VALUES <= 128, "a set of values is two words");

static inline program_set program_bit(int value)
{
    return (program_set)1 << value;
}

struct program_value {
    int64_t width;
    bool sample;    /* a row for each sample, not for each position */
    bool statistic; /* its type is the kernels' statistic, not value */
    int source;     /* index into layer_desc.source; -1: formed by a step */
    int step;       /* step that forms it; -1 */
    int last_use;   /* last step that has it as an input; -1 */
};

struct program_step {
    const struct operation *op;
    struct operation_settings settings;
    int in[OPERATION_INPUTS], in_count;
    int out; /* -1: a loss */
    int statistics[OPERATION_STATISTICS], statistic_count;
    int param[OPERATION_PARAMS]; /* index into layer_desc.param; -1: none */
    bool needed;                 /* another needed step, or backward, reads the result */
    /* Gradients: 1 where a step that runs earlier in backward has written one. */
    uint8_t add[OPERATION_INPUTS], weight_add[OPERATION_PARAMS];
};

enum program_memory {
    PROGRAM_NOWHERE,
    PROGRAM_INPUT,  /* context.in or din [source] */
    PROGRAM_OUTPUT, /* context.out or dout */
    PROGRAM_SAVED,
    PROGRAM_WORK,
};

/* Places of values (or of their gradients). A value lies in the memory of its home, which is the value itself
 * or another value with the same width and number of rows. A home in saved or work memory begins at the
 * largest end of the homes in `below`, so that the same decision serves every shape. */
struct program_layout {
    uint8_t home[PROGRAM_VALUES], memory[PROGRAM_VALUES];
    program_set below[PROGRAM_VALUES];
    uint8_t order[PROGRAM_VALUES]; /* homes in saved and work memory; a home comes after the homes below it */
    int order_count;
    program_set alive[PROGRAM_STEPS]; /* homes in work memory that the step's scratch memory is above */
};

struct program {
    char name[MODEL_NAME_LIMIT]; /* the layer's name */
    struct program_value values[PROGRAM_VALUES];
    int value_count;
    struct program_step steps[PROGRAM_STEPS];
    int step_count;
    int result; /* value; -1: ends in a loss */
    bool closed;
    struct program_layout train, eval, backward;
};

/* program_write.c: for operations. All return -1 or false with the writer's error. */
int writer_fail(struct writer *w, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool program_is_open(struct writer *w);
/* A new one; sample: see struct program_value. */
int program_value(struct writer *w, int64_t width, bool sample, int source, int step);
/* The index of the model's parameter `param` among the open layer's parameters. */
int program_use(struct writer *w, int param);
void program_close(struct writer *w, int result); /* the open layer */

/* program_step.c: for the files that write operations down. */

/* Whether values exist and there is room for a step; false with an error otherwise. */
bool program_step_fits(struct writer *w, const struct operation *op, const int *in, int in_count);
/* The step's result, or -1; of a loss -1, too. statistics: their widths, ended by 0; NULL: none. */
int program_step_add(struct writer *w, const struct operation *op, const struct operation_settings *settings,
                     const int *in, int in_count, int weight, int bias, int64_t width,
                     const int64_t statistics[OPERATION_STATISTICS]);
/* An array of the batch; NULL with an error: there is none. */
const struct batch_input *program_batch_input(struct writer *w, const struct operation *op, int input);
/* Whether it is one i32 a position, or one a sample. */
bool program_integers(struct writer *w, const struct operation *op, int input, bool sample);

/* program_place.c: all places, from the steps. */
void program_place(struct program *program);

/* Offsets for a shape and the types of kernels, in bytes. */
struct program_offsets {
    int64_t at[PROGRAM_VALUES]; /* offsets of homes */
    int64_t saved;              /* bytes of saved memory */
};
int64_t program_rows(const struct program *program, int value, struct shape shape);
void program_offsets(const struct program *program, const struct program_layout *layout, struct shape shape,
                     const struct kernels *kernels, struct program_offsets *offsets);
int64_t program_top(const struct program *program, const struct program_offsets *offsets, program_set homes,
                    struct shape shape, const struct kernels *kernels); /* where the last of them ends */

/* program_run.c: the forward pass of a layer that ends in a loss, with the logits of the last position of
 * each row, (B, vocabulary), in place of the loss. context: mode LAYER_EVAL. */
void program_logits(const struct program *program, const struct layer_context *context, void *logits);

#endif
