/* gptq.h - a matrix in 4 bits by what its product reads (Frantar et al. 2022, arXiv 2210.17323). Pure.
 *
 * Columns are rounded one after the other, and what a column's rounding changes in the product over the
 * calibration set is made up for by the columns behind it. */
#ifndef MUSTER_RUNTIME_ROUNDING_GPTQ_H
#define MUSTER_RUNTIME_ROUNDING_GPTQ_H

#include "runtime/rounding/coded.h"

/* Added to the diagonal of the moments: this part of its mean. */
#define GPTQ_DAMPING 0.01

/* What one or more matrices that read the same values need of them; made once. */
struct gptq {
    int64_t columns;
    float *upper;    /* (columns, columns) upper triangular U with (moments + damping)^-1 = U^T U */
    uint8_t *silent; /* [columns] not 0: the product never read anything but 0 there */
};

/* moments: (columns, columns), the sum of x x^T over the calibration set; symmetric. MUSTER_E_NOMEM,
 * MUSTER_E_INVALID: a moment is not finite. */
int gptq_create(struct gptq *gptq, const float *moments, int64_t columns, struct muster_error *err);
void gptq_free(struct gptq *gptq);

/* Codes of coded_create. values: (rows, columns); scales of a group are set by what its values have become
 * when its first column is reached. */
int gptq_round(const struct gptq *gptq, struct coded *coded, const float *values, const char *name,
               struct muster_error *err);

#endif
