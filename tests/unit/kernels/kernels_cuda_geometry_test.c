/* kernels_cuda_geometry_test.c - launch sizes of the CUDA operations: everything is covered, once, within
 * CUDA's limits, for the sizes at which a division by hand goes wrong. No CUDA is needed. */
#include "tests/support/cmocka_all.h"

#include "kernels/cuda/geometry.h"

/* CUDA C++ Programming Guide, compute capabilities: the limits that all of 7.5 to 9.0 share. */
enum { GRID_X_LIMIT = 2147483647, GRID_Y_LIMIT = 65535, BLOCK_LIMIT = 1024 };

static const int64_t sizes[] = {1,         2,         31,
                                32,        33,        255,
                                256,       257,       1023,
                                1024,      1025,      65535,
                                65536,     1 << 20,   50257LL * 4096,
                                INT32_MAX, 1LL << 32, (1LL << 40) + 1,
                                INT64_MAX};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void check_limits(struct cuda_grid grid)
{
    assert_in_range(grid.blocks, 1, GRID_X_LIMIT);
    assert_in_range(grid.threads, CUDA_WARP, BLOCK_LIMIT);
    assert_int_equal(grid.threads % CUDA_WARP, 0);
}

/* Enough workers of one pass, unless the cap made them stride; and no block without work. */
static void check_covers(struct cuda_grid grid, int64_t n, int64_t workers_per_block, int64_t cap)
{
    check_limits(grid);
    if (grid.blocks < cap)
        assert_true((int64_t)grid.blocks * workers_per_block >= n);
    assert_true((int64_t)(grid.blocks - 1) * workers_per_block < n);
}

static void no_work_is_no_blocks(void **state)
{
    (void)state;
    assert_int_equal(cuda_grid_elements(0).blocks, 0);
    assert_int_equal(cuda_grid_warp_rows(0).blocks, 0);
    assert_int_equal(cuda_grid_block_rows(0, 768).blocks, 0);
    assert_int_equal(cuda_grid_columns(0).blocks, 0);
    assert_int_equal(cuda_grid_norm(0).blocks, 0);
    assert_int_equal(cuda_row_chunks(0).count, 0);
    assert_int_equal(cuda_layernorm_work_bytes(0, 768), 0);
}

static void every_size_is_covered(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++) {
        int64_t n = sizes[i];
        check_covers(cuda_grid_elements(n), n, CUDA_BLOCK, CUDA_ELEMENT_BLOCKS);
        check_covers(cuda_grid_warp_rows(n), n, CUDA_BLOCK / CUDA_WARP, CUDA_ROW_BLOCKS);
        check_covers(cuda_grid_block_rows(n, n), n, 1, CUDA_ROW_BLOCKS);
        check_covers(cuda_grid_norm(n), n, CUDA_BLOCK, CUDA_NORM_BLOCKS);
        if (n <= INT32_MAX)
            check_covers(cuda_grid_columns((int)n), n, CUDA_BLOCK, INT32_MAX);
    }
}

static void sums_fit_their_work(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++)
        assert_true(cuda_grid_norm(sizes[i]).blocks * sizeof(double) <= cuda_norm_work_bytes());
    assert_int_equal(cuda_layernorm_work_bytes(1, 3), 2 * 3 * sizeof(float));
    /* 2,147,483,647 columns of 128 chunks: more than 32 bits of bytes. */
    assert_true(cuda_layernorm_work_bytes(INT32_MAX, INT32_MAX) == (size_t)CUDA_CHUNKS * INT32_MAX * 8);
}

static void a_row_gets_whole_warps(void **state)
{
    static const struct {
        int64_t width;
        unsigned threads;
    } known[] = {{0, 32}, {1, 32}, {32, 32}, {33, 64}, {300, 320}, {511, 512}, {513, 512}, {50257, 512}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_int_equal(cuda_grid_block_rows(5, known[i].width).threads, known[i].threads);
    assert_true(CUDA_BLOCK_LARGEST % CUDA_WARP == 0 && CUDA_BLOCK % CUDA_WARP == 0);
}

/* Every row is in exactly one chunk and no chunk is empty, for all small N and some large. */
static void check_chunks(int rows)
{
    struct cuda_chunks chunks = cuda_row_chunks(rows);
    assert_in_range(chunks.count, 1, CUDA_CHUNKS);
    assert_in_range(chunks.count, 1, GRID_Y_LIMIT);
    assert_true((int64_t)chunks.count * chunks.rows >= rows);
    assert_true((int64_t)(chunks.count - 1) * chunks.rows < rows);
}

/* The same of a run that is compressed. */
static void check_compress_chunks(int64_t count)
{
    const int64_t chunk = cuda_compress_chunk(count), chunks = cuda_compress_chunks(count);
    assert_in_range(chunks, 1, CUDA_COMPRESS_CHUNKS);
    assert_int_equal(chunk % CUDA_COMPRESS_CHUNK, 0);
    assert_true(chunks * chunk >= count && (chunks - 1) * chunk < count);
}

static void chunks_are_whole(void **state)
{
    (void)state;
    for (int rows = 1; rows < 5000; rows++)
        check_chunks(rows);
    for (int64_t count = 1; count < INT64_C(1) << 40; count += 1 + count / 50)
        check_compress_chunks(count);
    check_compress_chunks(UINT32_MAX);
    assert_int_equal(cuda_compress_chunks(0), 0);
    check_chunks(INT32_MAX);
    check_chunks(INT32_MAX - 1);
    assert_int_equal(cuda_row_chunks(8192).rows, 64);
    assert_int_equal(cuda_row_chunks(8192).count, 128);
    assert_int_equal(cuda_row_chunks(17).count, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_work_is_no_blocks), cmocka_unit_test(every_size_is_covered),
        cmocka_unit_test(sums_fit_their_work),  cmocka_unit_test(a_row_gets_whole_warps),
        cmocka_unit_test(chunks_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
