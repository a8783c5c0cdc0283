/* llmc.h - GPT-2 checkpoints of llm.c (gpt2_124M.bin), read. Pure.
 *
 * 256 32-bit little-endian words: magic 20240326, version (3: float32, 5: bfloat16), max_seq_len, vocab_size,
 * num_layers, num_heads, channels, padded vocab_size; then each kind of parameter for all layers, wte with
 * the padded rows, matrices as (out,in). Format: github.com/karpathy/llm.c, write_model in train_gpt2.py. */
#ifndef MUSTER_RUNTIME_FILES_LLMC_H
#define MUSTER_RUNTIME_FILES_LLMC_H

#include "runtime/files/architecture.h"
#include "runtime/files/tensors.h"

enum { LLMC_HEADER = 1024, LLMC_MAGIC = 20240326 };

/* header: the file's first LLMC_HEADER bytes. Fills the sizes and appends the tensors under the names of our
 * gpt2. MUSTER_E_INVALID where a number is out of bounds or the file has another size than they give;
 * MUSTER_E_UNSUPPORTED names a version. */
int llmc_parse(const char *name, const void *header, int64_t file_bytes, struct gpt2_config *config,
               struct file_tensors *tensors, struct muster_error *err);

#endif
