/* geometry.h - the grid and block of an operation's launch, and the pieces of its work. The functions are
 * pure functions of the sizes, without CUDA, so that they are tested on any machine.
 *
 * Every function takes any size from 0 up. No work is a grid of 0 blocks, which CUDA refuses: the caller
 * launches nothing then. Grids are capped, and kernels stride over the remaining work. The pieces of a sum
 * depend on the sizes alone, never on the device: one input gives the same bits on every GPU of one build. */
#ifndef MUSTER_KERNELS_CUDA_GEOMETRY_H
#define MUSTER_KERNELS_CUDA_GEOMETRY_H

#include <stddef.h>
#include <stdint.h>

enum {
    CUDA_WARP = 32,             /* threads */
    CUDA_BLOCK = 256,           /* threads of kernels by element, by warp and by column */
    CUDA_BLOCK_LARGEST = 512,   /* threads that share one row */
    CUDA_ELEMENT_BLOCKS = 2048, /* more than 132 multiprocessors x 8 blocks run at once; the rest strides */
    CUDA_ROW_BLOCKS = 4096,     /* some rounds of what runs at once: rows may differ in length */
    CUDA_NORM_BLOCKS = 1024,    /* partial sums of norm_squared */
    CUDA_PIECES = 16,           /* runs of a gradient that one launch compresses */
    CUDA_COMPRESS_CHUNKS = 512, /* blocks of a run, at most */
    CUDA_COMPRESS_CHUNK = 1024, /* elements of a block, at least */
    CUDA_CHUNKS = 128,          /* partial sums of a column over rows, at most; blocks in y end at 65,535 */
    CUDA_CHUNK_ROWS = 8,        /* rows of one such sum, at least */
    CUDA_ATTENTION_TILE = 32,   /* queries, and keys, of attention's block */
    CUDA_ATTENTION_CHUNK = 64,  /* columns of its result */
    CUDA_ATTENTION_THREADS = 128,
    CUDA_ATTENTION_TENSOR_ROWS = 64, /* queries, or keys, of a block of attention by tensor cores */
    CUDA_ATTENTION_TENSOR_THREADS = 128,
    CUDA_ATTENTION_TENSOR_HEAD = 128 /* columns of the widest head that it takes */
};

#ifdef __CUDACC__
#define CUDA_HOST_DEVICE __host__ __device__
#else
#define CUDA_HOST_DEVICE
#endif

struct cuda_grid {
    unsigned blocks, threads;
};

/* Rows cut into `count` runs of `rows` each, the last one maybe shorter and none empty. */
struct cuda_chunks {
    int count, rows;
};

static inline int64_t cuda_ceil_divide(int64_t n, int64_t by)
{
    return n / by + (n % by != 0);
}

static inline struct cuda_grid cuda_grid_of(int64_t blocks, int64_t limit, unsigned threads)
{
    struct cuda_grid grid;
#if defined(CUDA_EMULATED) /* a test's lower limit: few rows are more than one round then */
    limit = emu_grid_limit(limit);
#endif
    grid.blocks = (unsigned)(blocks < limit ? blocks : limit);
    grid.threads = threads;
    return grid;
}

/* One thread an element. */
static inline struct cuda_grid cuda_grid_elements(int64_t n)
{
    return cuda_grid_of(cuda_ceil_divide(n, CUDA_BLOCK), CUDA_ELEMENT_BLOCKS, CUDA_BLOCK);
}

/* One warp a row. */
static inline struct cuda_grid cuda_grid_warp_rows(int64_t rows)
{
    return cuda_grid_of(cuda_ceil_divide(rows, CUDA_BLOCK / CUDA_WARP), CUDA_ROW_BLOCKS, CUDA_BLOCK);
}

/* One block a row of `width` elements: whole warps, no more of them than the row can use. */
static inline struct cuda_grid cuda_grid_block_rows(int64_t rows, int64_t width)
{
    int64_t threads = CUDA_BLOCK_LARGEST;
    if (width < CUDA_BLOCK_LARGEST) /* looked at first: rounding up the largest widths would overflow */
        threads = cuda_ceil_divide(width > 0 ? width : 1, CUDA_WARP) * CUDA_WARP;
    return cuda_grid_of(rows, CUDA_ROW_BLOCKS, (unsigned)threads);
}

/* One thread a column; a grid's y is for chunks of rows. */
static inline struct cuda_grid cuda_grid_columns(int columns)
{
    return cuda_grid_of(cuda_ceil_divide(columns, CUDA_BLOCK), INT32_MAX, CUDA_BLOCK);
}

/* One block a partial sum of n values. */
static inline struct cuda_grid cuda_grid_norm(int64_t n)
{
    return cuda_grid_of(cuda_ceil_divide(n, CUDA_BLOCK), CUDA_NORM_BLOCKS, CUDA_BLOCK);
}

/* One block a tile of rows and chunk of columns of each head. */
static inline struct cuda_grid cuda_grid_attention(int B, int heads, int T, int head_size)
{
    int64_t tiles = cuda_ceil_divide(T, CUDA_ATTENTION_TILE),
            chunks = cuda_ceil_divide(head_size, CUDA_ATTENTION_CHUNK);
    return cuda_grid_of((int64_t)B * heads * tiles * chunks, CUDA_ROW_BLOCKS, CUDA_ATTENTION_THREADS);
}

/* One block 64 rows of each head. */
static inline struct cuda_grid cuda_grid_attention_tensor(int B, int heads, int T)
{
    return cuda_grid_of((int64_t)B * heads * cuda_ceil_divide(T, CUDA_ATTENTION_TENSOR_ROWS), CUDA_ROW_BLOCKS,
                        CUDA_ATTENTION_TENSOR_THREADS);
}

static inline struct cuda_chunks cuda_row_chunks(int rows)
{
    struct cuda_chunks chunks;
    int64_t each = cuda_ceil_divide(rows, CUDA_CHUNKS);
    chunks.rows = each > CUDA_CHUNK_ROWS ? (int)each : (int)CUDA_CHUNK_ROWS;
    chunks.count = (int)cuda_ceil_divide(rows, chunks.rows);
    return chunks;
}

/* Elements of a chunk of a run that is compressed, and chunks of the run; none is empty. */
CUDA_HOST_DEVICE static inline int64_t cuda_compress_chunk(int64_t count)
{
    const int64_t each = count / CUDA_COMPRESS_CHUNKS + (count % CUDA_COMPRESS_CHUNKS != 0);
    const int64_t units = (each + CUDA_COMPRESS_CHUNK - 1) / CUDA_COMPRESS_CHUNK;
    return (units > 0 ? units : 1) * CUDA_COMPRESS_CHUNK;
}
CUDA_HOST_DEVICE static inline int64_t cuda_compress_chunks(int64_t count)
{
    const int64_t chunk = cuda_compress_chunk(count);
    return (count + chunk - 1) / chunk;
}

/* Bytes of work memory: one double a block. The same for every n, so that it can be planned once. */
static inline size_t cuda_norm_work_bytes(void)
{
    return CUDA_NORM_BLOCKS * sizeof(double);
}

/* Bytes of work memory: two floats (dweight, dbias) a chunk and column. */
static inline size_t cuda_layernorm_work_bytes(int N, int C)
{
    return (size_t)cuda_row_chunks(N).count * (size_t)C * 2 * sizeof(float);
}

/* Bytes of work memory: a float a query and head. */
static inline size_t cuda_attention_work_bytes(int B, int heads, int T)
{
    return (size_t)B * (size_t)heads * (size_t)T * sizeof(float);
}

#endif
