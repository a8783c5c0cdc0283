/* sentencepiece.h - the functions of libmuster_sentencepiece.so, the module that links libsentencepiece (a
 * C++ library); it is loaded when a .model file is opened. */
#ifndef MUSTER_TRAINER_TOKENS_SENTENCEPIECE_H
#define MUSTER_TRAINER_TOKENS_SENTENCEPIECE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SENTENCEPIECE_MODULE "libmuster_sentencepiece.so"

/* Takes the result of a call, in one piece. Returns 0 or -1; the call returns the same value. */
typedef int (*muster_sentencepiece_ids)(void *context, const int *ids, size_t count);
typedef int (*muster_sentencepiece_text)(void *context, const char *text, size_t length);

/* A model from the bytes of its file; NULL with the reason in error. */
void *muster_sentencepiece_open(const char *data, size_t length, char *error, size_t error_size);
void muster_sentencepiece_close(void *model);
int muster_sentencepiece_size(const void *model);
/* unk, bos, eos; -1: none. */
void muster_sentencepiece_special(const void *model, int special[3]);
int muster_sentencepiece_find(const void *model, const char *piece);
/* Return -1 with the reason in error; the reason is "" where take failed. */
int muster_sentencepiece_encode(const void *model, const char *text, size_t length,
                                muster_sentencepiece_ids take, void *context, char *error, size_t error_size);
int muster_sentencepiece_decode(const void *model, const int *ids, size_t count,
                                muster_sentencepiece_text take, void *context, char *error,
                                size_t error_size);

/* 1: the next sentence is *text, until the next call; 0: no more; -1: the training fails. */
typedef int (*muster_sentencepiece_next)(void *context, const char **text, size_t *length);
/* options: names and values of sentencepiece's trainer, ended by NULL. take gets the bytes of the model. */
int muster_sentencepiece_train(const char *const *options, muster_sentencepiece_next next, void *sentences,
                               muster_sentencepiece_text take, void *context, char *error, size_t error_size);

#ifdef __cplusplus
}
#endif
#endif
