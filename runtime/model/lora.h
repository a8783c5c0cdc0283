/* lora.h - low-rank adapters (Hu et al. 2021). The product of a frozen weight gets a trained product of
 * two thin matrices added: x W^T + (alpha / rank) dropout(x) A^T B^T.
 *
 * A page is written without regard to adapters. Its writer adds an adapter to each product that the settings
 * name (writer_adapt). Parameters have PEFT's names: q_proj.lora_A.weight (rank, in) and q_proj.lora_B.weight
 * (out, rank). All other parameters are frozen. */
#ifndef MUSTER_RUNTIME_MODEL_LORA_H
#define MUSTER_RUNTIME_MODEL_LORA_H

#include <stdbool.h>

#include "runtime/plan/model.h"

enum {
    LORA_TARGETS = 16,
    LORA_RANK_LIMIT = 4096,
};

/* A name among the targets that stands for every product of the blocks. */
#define LORA_ALL "all-linear"

/* A value: copied freely. rank 0: no adapters. */
struct lora {
    int rank;
    double alpha;   /* an adapter's product is multiplied by alpha / rank */
    double dropout; /* probability for elements of A's input, while training */
    enum stored
        base;    /* how the frozen weights of products are held (QLoRA); STORED_PLAIN: as other parameters */
    bool tables; /* tables of embeddings and the head too */
    int target_count;
    char target[LORA_TARGETS][MODEL_NAME_LIMIT]; /* a module's name, or its last parts: "q_proj" */
};

/* MUSTER_E_INVALID names the value and its bounds. */
int lora_check(const struct lora *lora, struct muster_error *err);
/* Adds a target, unless the list has it. MUSTER_E_LIMIT: the list is full. MUSTER_E_INVALID: the name is
 * empty or too long. */
int lora_add_target(struct lora *lora, const char *name, struct muster_error *err);
/* The targets that a module's full name ends with, by PEFT's rule: the target is the whole name, or the part
 * after one of its dots. Bits; 0: none. */
uint32_t lora_targets_of(const struct lora *lora, const char *module);
double lora_scale(const struct lora *lora);

#endif
