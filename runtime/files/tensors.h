/* tensors.h - the tensors that one or more files hold, by name: where each one's bytes are. */
#ifndef MUSTER_RUNTIME_FILES_TENSORS_H
#define MUSTER_RUNTIME_FILES_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "runtime/rounding/coded.h"

enum { TENSOR_DIMS = 8, TENSOR_TYPE = 16 };

/* A matrix that is kept in few bits (codes.h): where its scales and zeros are; the codes are the tensor's own
 * bytes. */
struct file_codes {
    bool there;
    enum coding coding;
    int64_t group;
    int scale_file, zero_file;
    int64_t scales, zeros; /* offsets in these files */
};

struct file_tensor {
    char *name;
    char type[TENSOR_TYPE]; /* as in the file: "BF16" */
    enum dtype dtype;       /* DTYPE_COUNT: a type that no parameter can have */
    bool integer;           /* elements are int64, as a PARAM_COUNT is in files (dtype is DTYPE_COUNT) */
    int ndim;
    int64_t dim[TENSOR_DIMS];
    int file;                    /* index of the file */
    int64_t offset, bytes;       /* in the file */
    bool strided;                /* elements are not one after the other: */
    int64_t stride[TENSOR_DIMS]; /* distance of neighbours in each dimension, in elements */
    bool out_in; /* matrices are (out,in) even where the model's description of files has (in,out) */
    struct file_codes codes; /* if present, values are decoded from it, as DTYPE_F32 */
};

/* A zeroed struct is an empty list. */
struct file_tensors {
    struct file_tensor *item;
    int count, room;
};

/* Appends a copy, of the name too. MUSTER_E_NOMEM. */
int tensors_add(struct file_tensors *tensors, const struct file_tensor *tensor, struct muster_error *err);
/* Takes wrappers' parts out of the names: _orig_mod (torch.compile), _fsdp_wrapped_module,
 * _checkpoint_wrapped_module; and module (DataParallel, DDP) in front, where every name has it. */
void tensors_unwrap(struct file_tensors *tensors);
/* Sorts by name; two of one name are MUSTER_E_INVALID. path names the source in the error. */
int tensors_sort(struct file_tensors *tensors, const char *path, struct muster_error *err);
/* tensors: sorted. NULL: there is none. */
const struct file_tensor *tensors_find(const struct file_tensors *tensors, const char *name);
void tensors_free(struct file_tensors *tensors);

/* Product of the dimensions, -1 where one is negative or the product is above INT64_MAX / 16. */
int64_t tensor_elements(int ndim, const int64_t *dim);
/* "(3, 4)" */
int tensor_shape_text(struct buffer *out, int ndim, const int64_t *dim);

#endif
