/* board_screen.h - a board as lines of text for a terminal: what muster top shows. Pure. */
#ifndef MUSTER_LAUNCHER_BOARD_BOARD_SCREEN_H
#define MUSTER_LAUNCHER_BOARD_BOARD_SCREEN_H

#include "launcher/board/board.h"

/* How a line is to look; each line begins with such a byte, which is not part of it. */
enum { SCREEN_PLAIN = ' ', SCREEN_HEAD = '#', SCREEN_GOOD = '+', SCREEN_BAD = '!', SCREEN_DIM = '.' };

/* Lines of at most `columns` characters after their mark, ASCII but for texts of hosts and workers; at most
 * `rows`. The ranks from first_rank on get the rows that the rest leaves. Returns how many ranks there are.
 */
int board_screen(const struct board *board, int64_t now, int columns, int rows, int first_rank,
                 struct buffer *out);

#endif
