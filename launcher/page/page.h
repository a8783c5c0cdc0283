/* page.h - the job's page as one text, made of page.html, page.css and page.js by embed.cmake at build time.
 * It loads nothing from elsewhere but its data (board.json, lines.json). */
#ifndef MUSTER_LAUNCHER_PAGE_PAGE_H
#define MUSTER_LAUNCHER_PAGE_PAGE_H

#include <stddef.h>

extern const char page_html[]; /* not terminated */
extern const size_t page_html_length;
/* Its Content-Security-Policy, with the hashes of its style and script: no other script runs. */
extern const char page_policy[];

/* The style of muster report, which has no script. */
extern const char report_style[]; /* not terminated */
extern const size_t report_style_length;

#endif
