/* sentencepiece_module.cc - the functions of sentencepiece.h over libsentencepiece. No exception leaves a
 * function. */
#include "trainer/tokens/sentencepiece.h"

#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

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

namespace
{

/* The caller's sentences, as the trainer asks for them. */
class Sentences : public sentencepiece::SentenceIterator
{
  public:
    Sentences(muster_sentencepiece_next next, void *context) : next_(next), context_(context)
    {
        Next();
    }
    bool done() const override
    {
        return state_ <= 0;
    }
    void Next() override
    {
        const char *text = nullptr;
        size_t length = 0;
        state_ = next_(context_, &text, &length);
        value_.assign(state_ > 0 ? text : "", state_ > 0 ? length : 0);
    }
    const std::string &value() const override
    {
        return value_;
    }
    sentencepiece::util::Status status() const override
    {
        return state_ < 0 ? sentencepiece::util::Status(sentencepiece::util::StatusCode::kInternal,
                                                        "the sentences end")
                          : sentencepiece::util::Status();
    }

  private:
    muster_sentencepiece_next next_;
    void *context_;
    int state_ = 0;
    std::string value_;
};

} // namespace

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

EXPORTED int muster_sentencepiece_train(const char *const *options, muster_sentencepiece_next next,
                                        void *sentences, muster_sentencepiece_text take, void *context,
                                        char *error, size_t error_size)
try {
    std::unordered_map<std::string, std::string> settings;
    for (; *options; options += 2)
        settings[options[0]] = options[1];
    Sentences iterator(next, sentences);
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
    error[0] = '\0';
    return status.ok() ? take(context, model.data(), model.size())
                       : failed(status.ToString().c_str(), error, error_size);
} catch (const std::exception &problem) {
    return failed(problem.what(), error, error_size);
}
}
