/* board_screen.h - a board as lines of text for a terminal: what muster top shows. Pure. */
#ifndef MUSTER_LAUNCHER_BOARD_BOARD_SCREEN_H
#define MUSTER_LAUNCHER_BOARD_BOARD_SCREEN_H

#include "launcher/board/board.h"

/* How a line is to look; each begins with one of these bytes, which is not part of it. */
enum { SCREEN_PLAIN = ' ', SCREEN_HEAD = '#', SCREEN_GOOD = '+', SCREEN_BAD = '!', SCREEN_DIM = '.' };

/* Lines of at most `columns` characters behind their mark, ASCII but for what hosts and workers have written;
 * at most `rows`, of which the ranks from first_rank on get what the rest leaves. Returns how many ranks
 * there are. */
int board_screen(const struct board *board, int64_t now, int columns, int rows, int first_rank,
                 struct buffer *out);

#endif
