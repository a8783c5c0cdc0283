/* plain.cuh - what both directions of attention without tensor cores share: products in float of tiles of 32
 * rows in shared memory, for values V of any type, heads of any size, windows on both sides and caps.
 *
 * A block of 128 threads has a tile of 32 x 32 scores: thread i has rows i/8 and i/8 + 16 of columns i%8, i%8
 * + 8, ... (so a row is 8 neighbouring lanes), and of a result of 64 columns the same rows. A head may have
 * any size: products over it are formed 32 columns at a time, and a result wider than 64 columns is several
 * blocks'. Rows and columns that are not there are loaded as 0. Sums are in a fixed order. */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/attention/call.cuh"

enum {
    TILE = CUDA_ATTENTION_TILE,
    CHUNK = CUDA_ATTENTION_CHUNK,
    THREADS = CUDA_ATTENTION_THREADS,
    LANES = 8, /* threads that share a row */
    PAIR = 2,  /* rows of a thread */
    SCORES = TILE / LANES,
    RESULTS = CHUNK / LANES
};
static_assert(THREADS / LANES * PAIR == TILE, "every row of a tile has its threads");

/* Columns one apart from a multiple of 32: a column of a tile is in as many banks as it has rows. */
typedef float tile_slice[TILE][TILE + 1];
typedef float tile_chunk[TILE][CHUNK + 1];

/* Whether a query of a sequence of `length`, whose first key is `from`, sees a key. */
static __device__ inline bool attention_sees(const struct attention_call *c, int from, int query, int key,
                                             int length)
{
    return query < length && key < length && (!c->causal || key <= query) && key >= from &&
           (c->window == 0 || key - query < c->window);
}
/* The first key that a tile of queries from `first` on may see, at a tile's begin. */
static __device__ inline int attention_start(const struct attention_call *c, int b, int first)
{
    return attention_from(c, b, first) / TILE * TILE;
}
/* The end of the keys that one of `rows` queries from `first` on sees in a sequence of `length`. */
static __device__ inline int attention_end(const struct attention_call *c, int first, int rows, int length)
{
    if (rows == 0)
        return 0;
    if (c->causal)
        return first + rows;
    return c->window > 0 && length - first >= c->window + rows ? first + rows - 1 + c->window : length;
}
/* A score after the scale and the cap, and the slope of the cap there. */
static __device__ inline float attention_score(const struct attention_call *c, float product)
{
    float score = product * c->scale;
    return c->cap > 0 ? c->cap * tanhf(score / c->cap) : score;
}
static __device__ inline float attention_slope(const struct attention_call *c, float score)
{
    return c->cap > 0 ? 1.0f - score / c->cap * (score / c->cap) : 1.0f;
}

static __device__ inline int row_of(int i)
{
    return (int)threadIdx.x / LANES + i * (TILE / PAIR);
}
static __device__ inline int column_of(int j)
{
    return (int)threadIdx.x % LANES + j * LANES;
}

/* to (32, WIDTH) = columns first..first+WIDTH of the rows. The whole block calls; it is the caller's to wait
 * before and after. */
template <int WIDTH, typename V>
static __device__ void load_columns(float (*to)[WIDTH + 1], struct attention_rows<V> from, int first, int HS,
                                    int vectors)
{
    int columns = HS - first;
    if (vectors) {
        const int VECTOR = value_vector<V>::COUNT;
        for (int i = (int)threadIdx.x; i < TILE * WIDTH / VECTOR; i += THREADS) {
            int row = i / (WIDTH / VECTOR), column = i % (WIDTH / VECTOR) * VECTOR;
            value_vector<V> x = {};
            if (row < from.rows && column < columns)
                x = vector_load(from.at + row * from.stride + first + column);
            CUDA_EACH (j, 0, VECTOR)
                to[row][column + j] = value_get(x.of[j]);
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < TILE * WIDTH; i += THREADS) {
        int row = i / WIDTH, column = i % WIDTH;
        bool there = row < from.rows && column < columns;
        to[row][column] = there ? value_get(from.at[row * from.stride + first + column]) : 0.0f;
    }
}

/* product (32, 32) = a (32, HS) b (32, HS)^T, this thread's part of it. Begins with a barrier, so that the
 * slices may be in use before. */
template <typename V>
static __device__ inline void rows_product(float product[PAIR][SCORES], struct attention_rows<V> a,
                                           struct attention_rows<V> b, tile_slice slice_a, tile_slice slice_b,
                                           int HS, int vectors)
{
    for (int i = 0; i < PAIR; i++)
        for (int j = 0; j < SCORES; j++)
            product[i][j] = 0;
    for (int first = 0; first < HS; first += TILE) {
        __syncthreads();
        load_columns<TILE>(slice_a, a, first, HS, vectors);
        load_columns<TILE>(slice_b, b, first, HS, vectors);
        __syncthreads();
        const int columns = HS - first < TILE ? HS - first : (int)TILE;
        for (int c = 0; c < columns; c++)
            for (int i = 0; i < PAIR; i++)
                for (int j = 0; j < SCORES; j++)
                    product[i][j] += slice_a[row_of(i)][c] * slice_b[column_of(j)][c];
    }
}

/* sum (32, columns of 64) += weights (32, rows of 32) values (rows, columns), this thread's part of it. */
static __device__ inline void add_product(float sum[PAIR][RESULTS], const tile_slice weights,
                                          const tile_chunk values, int rows, int columns)
{
    for (int k = 0; k < rows; k++)
        for (int j = 0; j < RESULTS; j++)
            if (j * LANES < columns)
                for (int i = 0; i < PAIR; i++)
                    sum[i][j] += weights[row_of(i)][k] * values[k][column_of(j)];
}

static __device__ inline struct attention_item item_of(const struct attention_call *c, int64_t index,
                                                       int heads)
{
    int chunks = (c->HS + CHUNK - 1) / CHUNK, tiles = (c->T + TILE - 1) / TILE;
    struct attention_item item;
    item.chunk = (int)(index % chunks) * CHUNK;
    item.first = (int)(index / chunks % tiles) * TILE;
    int64_t head = index / chunks / tiles;
    item.head = (int)(head % heads);
    item.b = (int)(head / heads);
    item.length = c->lengths ? c->lengths[item.b] : c->T;
    int rows = item.length - item.first;
    item.rows = rows < 0 ? 0 : rows < TILE ? rows : (int)TILE;
    return item;
}
static __device__ inline int64_t item_count(const struct attention_call *c, int heads)
{
    int64_t chunks = (c->HS + CHUNK - 1) / CHUNK, tiles = (c->T + TILE - 1) / TILE;
    return chunks * tiles * c->B * heads;
}

#endif
