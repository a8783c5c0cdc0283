/* md5.h - MD5 (RFC 1321), for hashes that other programs form so; it protects nothing. */
#ifndef MUSTER_RUNTIME_HASH_MD5_H
#define MUSTER_RUNTIME_HASH_MD5_H

#include <stddef.h>
#include <stdint.h>

enum { MD5_BYTES = 16 };
void md5(const void *data, size_t length, uint8_t out[MD5_BYTES]);

#endif
