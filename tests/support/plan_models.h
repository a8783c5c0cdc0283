/* plan_models.h - models that are sizes only, for tests of the plan: nothing in them can be executed. */
#ifndef MUSTER_TESTS_PLAN_MODELS_H
#define MUSTER_TESTS_PLAN_MODELS_H

#include "runtime/plan/model.h"

/* A layer of a test model. */
struct plan_model_layer {
    int64_t out, saved, work; /* bytes in training */
};

struct plan_model {
    struct model model;
    struct param_desc *params;
    struct layer_desc *layers;
    struct plan_model_layer *sizes;
    int param_capacity, layer_capacity;
};

/* Empty; room for as many parameters and layers as are given. Asserts that memory is there. */
struct plan_model *plan_model_create(const char *name, int params, int layers);
void plan_model_destroy(struct plan_model *model);

int plan_model_param(struct plan_model *model, const char *name, int64_t rows, int64_t columns,
                     bool trainable, int unit);
/* source -1 is the batch. Returns the layer. */
int plan_model_layer(struct plan_model *model, const char *name, struct plan_model_layer sizes, int source);
void plan_model_use(struct plan_model *model, int layer, int param);
void plan_model_source(struct plan_model *model, int layer, int source);
/* Cuts the layers into equal runs. */
void plan_model_stages(struct plan_model *model, int stages);

/* GPT-2 of blocks, channels, vocab, positions for micro-batches of rows tokens; wte is tied. lora: rank of
 * adapters on the block's four products, everything else frozen; 0: none. */
struct plan_model *plan_model_gpt(int blocks, int channels, int vocab, int positions, int rows, int lora);
/* The same with a head of its own table. */
struct plan_model *plan_model_untied(int blocks, int channels, int vocab, int positions, int rows);
/* Makes the first layer of a random model a lookup, if it has few enough parameters. Changes shapes. */
void plan_model_look_up(struct plan_model *model);
/* Every frozen matrix is held in few bits; with STORED_PLAIN: in a form that follows from the matrix's
 * number. */
void plan_model_store(struct plan_model *model, enum stored stored);
/* Convolutions of odd sizes with a shortcut around each pair, a pool and a classifier. */
struct plan_model *plan_model_cnn(int pairs, int rows);
/* Running statistics of `width` elements for each layer that has a parameter; there is room for them. */
void plan_model_statistics(struct plan_model *model, int width);
/* Anything that is a model, from a seed. */
struct plan_model *plan_model_random(uint64_t *seed, int stages);

/* xorshift64*: the next number below limit. */
uint64_t plan_model_next(uint64_t *seed, uint64_t limit);

#endif
