/* block.c - see block.h. */
#include "trainer/pictures/block.h"

#include "proto/base/mem.h"

void picture_block_free(struct picture_block *block)
{
    for (int i = 0; block && i < 2; i++) {
        mapping_close(&block->mapping[i]);
        mem_free(block->owned[i]);
    }
    if (block)
        *block = (struct picture_block){0};
}
