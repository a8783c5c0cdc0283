/* buffer.h - a growable run of bytes that remembers its first failure, so that a chain of appends needs one
 * check. */
#ifndef MUSTER_PROTO_BASE_BUFFER_H
#define MUSTER_PROTO_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct buffer {
    char *data;    /* NUL after the last byte once anything was appended; NULL while empty */
    size_t length; /* bytes, without that NUL */
    size_t capacity;
    size_t limit; /* bytes; an append beyond it fails; 0 means no limit */
    bool failed;  /* an append failed (limit or memory); later appends do nothing */
};

/* All return 0, or -1 once the buffer has failed. A zeroed struct is an empty buffer. */
int buffer_append(struct buffer *b, const void *data, size_t length);
int buffer_text(struct buffer *b, const char *text);
int buffer_printf(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* text as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. text NULL: null. */
int buffer_json_string(struct buffer *b, const char *text);
/* The same for length bytes, which may hold NULs. */
int buffer_json_bytes(struct buffer *b, const char *data, size_t length);
/* Text for a terminal: line ends, tabs and valid UTF-8 stay; other control characters (C0, DEL, C1) and bytes
 * that are no UTF-8 become "\\x1b", byte by byte. */
int buffer_printable(struct buffer *b, const char *data, size_t length);
/* text so that a shell reads it as one word; what needs no quotes gets none. */
int buffer_shell_word(struct buffer *b, const char *text);
/* Makes room for more bytes and returns where they go (then add to length), or NULL. */
char *buffer_reserve(struct buffer *b, size_t more);
/* Drops length bytes at the front. */
void buffer_consume(struct buffer *b, size_t length);
/* Empties, keeps the memory, forgets a failure. */
void buffer_clear(struct buffer *b);
/* Frees the memory and zeroes everything but the limit. Accepts NULL. */
void buffer_free(struct buffer *b);
/* The text, owned by the caller (mem_free); the buffer becomes empty. NULL if it had failed. "" if it was
 * empty. */
char *buffer_take(struct buffer *b);

#define scope_buffer __attribute__((cleanup(buffer_free))) struct buffer

#ifdef __cplusplus
}
#endif
#endif
