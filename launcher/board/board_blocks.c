/* board_blocks.c - a job of more nodes than are shown one by one: what is kept of a node without room, and
 * blocks of nodes. See board.h. */
#include <string.h>

#include "launcher/board/board.h"
#include "proto/base/mem.h"

int64_t board_sample_ms(int nodes)
{
    enum { AT_ONCE = 1000 };
    return nodes > AT_ONCE ? nodes : 1000;
}

static void add_step(struct board_block *block, int64_t low, int64_t high)
{
    if (low >= 0 && (block->low_step < 0 || low < block->low_step))
        block->low_step = low;
    if (high > block->high_step)
        block->high_step = high;
}

static void add_block(struct board_block *block, const struct board_block *of)
{
    block->nodes += of->nodes;
    block->silent += of->silent;
    block->ranks += of->ranks;
    block->running += of->running;
    block->failed += of->failed;
    block->exited += of->exited;
    block->memory += of->memory;
    add_step(block, of->low_step, of->high_step);
}

struct board_block board_block_of(const struct board_node *node)
{
    struct board_block block = {.first = node->group_rank,
                                .last = node->group_rank,
                                .nodes = 1,
                                .ranks = node->rank_count,
                                .low_step = -1,
                                .high_step = -1};
    for (int i = 0; i < node->rank_count; i++) {
        const struct board_rank *rank = &node->ranks[i];
        block.running += !strcmp(rank->state, "running");
        block.failed += !strcmp(rank->state, "failed");
        block.exited += !strcmp(rank->state, "exited");
        block.memory += rank->memory > 0 ? rank->memory : 0;
        add_step(&block, rank->step, rank->step);
    }
    return block;
}

bool board_keep_sum(struct board *board, const struct board_node *node, int64_t now)
{
    const int place = node->group_rank;
    if (place < 0 || place >= BOARD_SUMS)
        return false;
    if (place >= board->sum_count) {
        int count = board->sum_count ? board->sum_count : 1024;
        while (count <= place)
            count *= 2;
        struct board_sum *sums = mem_realloc(board->sums, (size_t)count, sizeof *sums);
        if (!sums)
            return false;
        memset(sums + board->sum_count, 0, (size_t)(count - board->sum_count) * sizeof *sums);
        board->sums = sums;
        board->sum_count = count;
    }
    board->sums[place] = (struct board_sum){true, node->round, now, board_block_of(node)};
    return true;
}

void board_forget_sum(struct board *board, int group_rank)
{
    if (group_rank >= 0 && group_rank < board->sum_count)
        board->sums[group_rank].there = false;
}

void board_forget_sums_before(struct board *board, int64_t round)
{
    for (int i = 0; i < board->sum_count; i++)
        if (board->sums[i].round < round)
            board->sums[i].there = false;
}

/* The node's block, with whether it is silent now. */
static struct board_block now_of(const struct board *board, struct board_block block, int64_t heard_at,
                                 int64_t now)
{
    enum { SAMPLES = 3 };
    block.silent =
        !board->over && heard_at >= 0 && now - heard_at > SAMPLES * board_sample_ms(board->max_nodes);
    return block;
}

bool board_is_silent(const struct board *board, const struct board_node *node, int64_t now)
{
    return now_of(board, (struct board_block){0}, node->heard_at, now).silent;
}

struct board_block board_total(const struct board *board, int64_t now)
{
    struct board_block total = {.first = 0, .last = -1, .low_step = -1, .high_step = -1};
    if (board->total.nodes) /* a board that was read */
        return board->total;
    for (int i = 0; i < board->node_count; i++) {
        struct board_block block =
            now_of(board, board_block_of(&board->nodes[i]), board->nodes[i].heard_at, now);
        add_block(&total, &block);
        total.last = block.last > total.last ? block.last : total.last;
    }
    for (int i = 0; i < board->sum_count; i++) {
        if (!board->sums[i].there)
            continue;
        struct board_block block = now_of(board, board->sums[i].of, board->sums[i].heard_at, now);
        add_block(&total, &block);
        total.last = i > total.last ? i : total.last;
    }
    return total;
}

int board_blocks(const struct board *board, int64_t now, struct board_block blocks[BOARD_BLOCKS])
{
    const struct board_block total = board_total(board, now);
    int each = 1, count = 0;
    if (total.nodes <= BOARD_SINGLE_NODES)
        return 0;
    if (board->block_count) { /* a board that was read */
        memcpy(blocks, board->blocks, (size_t)board->block_count * sizeof blocks[0]);
        return board->block_count;
    }
    while (total.last / each >= BOARD_BLOCKS)
        each *= 2;
    for (int i = 0; i < BOARD_BLOCKS; i++)
        blocks[i] = (struct board_block){
            .first = i * each, .last = (i + 1) * each - 1, .low_step = -1, .high_step = -1};
    for (int i = 0; i < board->node_count; i++)
        if (board->nodes[i].group_rank >= 0) {
            const struct board_node *node = &board->nodes[i];
            struct board_block block = now_of(board, board_block_of(node), node->heard_at, now);
            add_block(&blocks[node->group_rank / each], &block);
        }
    for (int i = 0; i < board->sum_count; i++)
        if (board->sums[i].there) {
            struct board_block block = now_of(board, board->sums[i].of, board->sums[i].heard_at, now);
            add_block(&blocks[i / each], &block);
        }
    for (int i = 0; i < BOARD_BLOCKS; i++)
        if (blocks[i].nodes)
            blocks[count++] = blocks[i];
    if (count && blocks[count - 1].last > total.last)
        blocks[count - 1].last = total.last;
    return count;
}
