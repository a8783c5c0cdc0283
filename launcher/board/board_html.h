/* board_html.h - pieces of HTML and SVG that board_report.c is made of. */
#ifndef MUSTER_LAUNCHER_BOARD_BOARD_HTML_H
#define MUSTER_LAUNCHER_BOARD_BOARD_HTML_H

#include "launcher/board/board.h"

/* Text with what HTML would read in it quoted; control characters but newline become '?'. */
void board_html_text(struct buffer *out, const char *text);
/* "812 ms", "3.4 s", "2:05 min", "1:10 h"; a dash for -1. out of 24 bytes at least. */
const char *board_duration(char *out, size_t size, int64_t ms);
/* "1,234", "5.68 k", "0.0012"; a dash for NAN. */
const char *board_number(char *out, size_t size, double value);

enum { BOARD_PARTS = 6 };
extern const char *const board_part_names[BOARD_PARTS];
int64_t board_part(const struct board_round *round, int part);

/* All rounds over the whole time of the job: how long each ran and in what of it steps were made. */
void board_svg_timeline(struct buffer *out, const struct board *board, int64_t end);
/* The parts of one recovery, side by side. */
void board_svg_recovery(struct buffer *out, const struct board_round *round);
/* A curve; value picks the drawn figure. Nothing where there are less than two points. */
void board_svg_curve(struct buffer *out, const struct board *board, const char *name,
                     double (*value)(const struct board_point *point));

#endif
