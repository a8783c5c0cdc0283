/* gptq.h - a matrix in 4 bits, rounded by its product's inputs (Frantar et al. 2022, arXiv 2210.17323). Pure.
 *
 * Columns are rounded one after the other. Later columns make up for the change that a column's rounding
 * causes in the product over the calibration set. The columns with the largest inputs come first, while many
 * columns are left to make up for them (the paper's authors call it act-order). Scales come from the original
 * values, so that groups stay runs of neighbours in memory. */
#ifndef MUSTER_RUNTIME_ROUNDING_GPTQ_H
#define MUSTER_RUNTIME_ROUNDING_GPTQ_H

#include "runtime/rounding/coded.h"

/* Each moment on the diagonal grows by this part of itself. A part of the moments' mean would not do. Where
 * products read one column a thousand times as much as the others, as a Llama's down_proj does, the mean's
 * part would exceed the other columns' own moments, and no error would be made up for. */
#define GPTQ_DAMPING 0.01

/* What one or more matrices that read the same values need of them; made once. */
struct gptq {
    int64_t columns;
    int64_t *order; /* [columns] the column that is rounded first, second, ... */
    float *
        upper; /* (columns, columns), in that order: upper triangular U with (moments + damping)^-1 = U^T U */
    uint8_t *silent; /* [columns] not 0: the product never read anything but 0 there */
};

/* moments: (columns, columns), the sum of x x^T over the calibration set; symmetric. MUSTER_E_NOMEM,
 * MUSTER_E_INVALID: a moment is not finite. */
int gptq_create(struct gptq *gptq, const float *moments, int64_t columns, struct muster_error *err);
void gptq_free(struct gptq *gptq);

/* Codes of coded_create. values: (rows, columns). */
int gptq_round(const struct gptq *gptq, struct coded *coded, const float *values, const char *name,
               struct muster_error *err);

#endif
