/* text.h - small pure functions on text: strict numbers, nearest names, hashes. */
#ifndef MUSTER_PROTO_BASE_TEXT_H
#define MUSTER_PROTO_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The whole text as a decimal integer (sign allowed, surrounding blanks not). false where it is not one or
 * overflows. */
bool text_int64(const char *text, int64_t *out);
/* The whole text as a finite floating-point number ("1e-3"); always with a point, in any locale. */
bool text_double(const char *text, double *out);
/* Removes blanks, tabs and line ends around text, in its place. */
void text_trim(char *text);
/* 1/true/yes/y/on/t and 0/false/no/n/off/f, any case. */
bool text_bool(const char *text, bool *out);
/* A count of bytes with an optional suffix K, M, G, T (powers of 1,024; a trailing "B" or "iB" is allowed).
 */
bool text_bytes(const char *text, int64_t *out);

/* Bytes of the UTF-8 byte order mark (U+FEFF) that a text begins with: 3, or 0. */
size_t text_byte_order_mark(const char *text, size_t length);

/* Edit distance (a transposition counts one), dash and underscore being equal, without case; of the first 64
 * bytes. */
size_t text_distance(const char *a, const char *b);

/* Control characters become "?", but for tabs and the bytes of `kept` (may be NULL): a terminal obeys them,
 * and a text may hold bytes of a file or of a peer. */
void text_make_plain(char *text, const char *kept);

/* Among count names the one nearest to text by edit distance (transposition counts one), dash and
 * underscore being equal; NULL if none is nearer than half the length of text. */
const char *text_nearest(const char *text, const char *const *names, size_t count);

/* The value of the row `name` in text in the form of /proc/meminfo ("name: 12 kB", which becomes bytes) or of
 * a control group's memory.stat ("name 12"); -1 where it is not there or no number. */
int64_t text_row(const char *text, const char *name);

/* Bytes of the scheme that a text begins with before "://", as in s3://bucket/key; 0: it begins with none. */
size_t text_scheme_length(const char *text);
/* -1 with MUSTER_E_INVALID where a path begins with one: "<where>: s3://... is ...", and what to use in its
 * place. As a path it would name a folder "s3:" in the working directory, and a run would say that it has
 * saved s3://bucket/key. where: the setting or flag, or NULL; path NULL: 0. */
int text_refuse_scheme(const char *where, const char *path, struct muster_error *err);

/* FNV-1a, 64 bits: for fingerprints and tables, not against an adversary. Start with TEXT_HASH_START. */
#define TEXT_HASH_START UINT64_C(14695981039346656037)
uint64_t text_hash(uint64_t hash, const void *data, size_t length);

/* Adds to the text in out, which has `size` bytes in all and ends within them; false where it was cut. */
bool text_append(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Formats bytes for display: "64 B", "3.2 KB", "1.50 GB" (powers of 1,024). */
const char *text_format_bytes(char *out, size_t size, int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
