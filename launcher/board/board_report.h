/* board_report.h - a board as one HTML file without script, for reading later: verdict, timeline of the
 * rounds with each recovery split into its parts, curves, ranks, the last lines of failed ranks. Pure.
 *
 * Nothing is loaded from elsewhere, and every text of the board is quoted. At most BOARD_REPORT_LIMIT bytes:
 * ranks, then lines and warnings that would go beyond are left out, with a note. */
#ifndef MUSTER_LAUNCHER_BOARD_BOARD_REPORT_H
#define MUSTER_LAUNCHER_BOARD_BOARD_REPORT_H

#include "launcher/board/board.h"

enum { BOARD_REPORT_LIMIT = 200 * 1000 };

/* style: of the file, constant text of our own. now: as of the board; out remembers a failure. */
void board_report(const struct board *board, const char *style, size_t style_length, struct buffer *out);

#endif
