/* sentencepiece_module.cc - libsentencepiece behind functions of C. See sentencepiece.h. No exception leaves
 * it. */
#include "runtime/tokens/sentencepiece.h"

#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <sentencepiece_processor.h>

#define EXPORTED __attribute__((visibility("default")))

using sentencepiece::SentencePieceProcessor;

static const SentencePieceProcessor &processor(const void *model)
{
    return *static_cast<const SentencePieceProcessor *>(model);
}

static int failed(const char *reason, char *error, size_t error_size)
{
    std::snprintf(error, error_size, "%s", reason);
    return -1;
}

extern "C" {

EXPORTED void *muster_sentencepiece_open(const char *data, size_t length, char *error, size_t error_size)
try {
    auto model = std::make_unique<SentencePieceProcessor>();
    const auto status = model->LoadFromSerializedProto(std::string(data, length));
    if (status.ok())
        return model.release();
    (void)failed(status.ToString().c_str(), error, error_size);
    return nullptr;
} catch (const std::exception &problem) {
    (void)failed(problem.what(), error, error_size);
    return nullptr;
}

EXPORTED void muster_sentencepiece_close(void *model)
{
    delete static_cast<SentencePieceProcessor *>(model);
}

EXPORTED int muster_sentencepiece_size(const void *model)
{
    return processor(model).GetPieceSize();
}

EXPORTED void muster_sentencepiece_special(const void *model, int special[3])
{
    special[0] = processor(model).unk_id();
    special[1] = processor(model).bos_id();
    special[2] = processor(model).eos_id();
}

EXPORTED int muster_sentencepiece_find(const void *model, const char *piece)
try {
    const int id = processor(model).PieceToId(piece);
    return processor(model).IsUnknown(id) && processor(model).IdToPiece(id) != piece ? -1 : id;
} catch (const std::exception &) {
    return -1;
}

EXPORTED int muster_sentencepiece_encode(const void *model, const char *text, size_t length,
                                         muster_sentencepiece_ids take, void *context, char *error,
                                         size_t error_size)
try {
    std::vector<int> ids;
    const auto status = processor(model).Encode({text, length}, &ids);
    error[0] = '\0';
    return status.ok() ? take(context, ids.data(), ids.size())
                       : failed(status.ToString().c_str(), error, error_size);
} catch (const std::exception &problem) {
    return failed(problem.what(), error, error_size);
}

EXPORTED int muster_sentencepiece_decode(const void *model, const int *ids, size_t count,
                                         muster_sentencepiece_text take, void *context, char *error,
                                         size_t error_size)
try {
    std::string text;
    const auto status = processor(model).Decode(std::vector<int>(ids, ids + count), &text);
    error[0] = '\0';
    return status.ok() ? take(context, text.data(), text.size())
                       : failed(status.ToString().c_str(), error, error_size);
} catch (const std::exception &problem) {
    return failed(problem.what(), error, error_size);
}
}
