#include "transport/redis/reply_reader.hpp"

#include <hiredis/hiredis.h>

#include <charconv>
#include <span>

#include "core/text.hpp"

namespace cenote::redis {

namespace {

const redisReplyObjectFunctions& library_functions() {
  static const redisReplyObjectFunctions functions = [] {
    redisReader* const made = redisReaderCreate();
    const redisReplyObjectFunctions copied = made == nullptr ? redisReplyObjectFunctions{} : *made->fn;
    if (made != nullptr) redisReaderFree(made);
    return copied;
  }();
  return functions;
}

// A list gets its memory when its length comes, which is any number that the server sends.
const redisReplyObjectFunctions& bounded_functions() {
  static const redisReplyObjectFunctions functions = [] {
    redisReplyObjectFunctions made = library_functions();
    made.createArray = [](const redisReadTask* task, auto elements) -> void* {
      if (elements > reply_reader::most_elements) return nullptr;
      return library_functions().createArray(task, elements);
    };
    return made;
  }();
  return functions;
}

/// Bytes behind a line "$5", the end of the string included; 0: no string follows, or the library refuses it.
std::size_t string_bytes_behind(std::string_view line) noexcept {
  long long size = -1;
  if (line.starts_with('$')) std::from_chars(line.data() + 1, line.data() + line.size(), size);
  constexpr std::size_t end = 2;
  return size < 0 ? 0 : static_cast<std::size_t>(size) + end;
}

}  // namespace

std::unexpected<error> not_the_protocol(std::string_view description) {
  return fail(error_code::malformed, "not the protocol of Redis: " + std::string(description));
}

void reply_reader::free_reply::operator()(redisReply* reply) const noexcept {
  freeReplyObject(reply);
}

result<void> reply_reader::begin() {
  fed_ = string_bytes_ = 0;
  reply_ = {};
  parsed_.reset();
  reader_.reset();
  if (library_functions().createArray != nullptr) {
    auto& functions = const_cast<redisReplyObjectFunctions&>(bounded_functions());  // NOLINT: it is only read
    reader_.reset(redisReaderCreateWithFunctions(&functions));
  }
  if (!reader_) return fail(error_code::system, "no memory for a reader of replies");
  reader_->maxbuf = 0;  // what is read line by line must not free and allocate at each line
  return {};
}

result<bool> reply_reader::take(std::string_view bytes) {
  fed_ += bytes.size();
  string_bytes_ = string_bytes_ > 0 ? string_bytes_ - bytes.size() : string_bytes_behind(bytes);
  void* parsed = nullptr;
  if (redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) != REDIS_OK ||
      redisReaderGetReply(reader_.get(), &parsed) != REDIS_OK) {
    return not_the_protocol(printable(reader_->errstr));
  }
  if (parsed == nullptr) return false;
  parsed_.reset(static_cast<redisReply*>(parsed));
  fed_ = 0;
  show();
  return true;
}

void reply_reader::show() {
  const redisReply& from = *parsed_;
  using type = server_reply::type;
  switch (from.type) {
    case REDIS_REPLY_NIL: reply_ = {}; break;
    case REDIS_REPLY_INTEGER: reply_ = {.kind = type::integer, .number = from.integer}; break;
    case REDIS_REPLY_ARRAY:
      texts_.clear();
      add_texts(from);
      reply_ = {.kind = type::list, .list = texts_};
      break;
    default:
      reply_ = {.kind = from.type == REDIS_REPLY_ERROR ? type::failure : type::text, .text = {from.str, from.len}};
      break;
  }
}

void reply_reader::add_texts(const redisReply& list) {
  for (const redisReply* each : std::span(list.element, list.elements)) {
    if (each->type == REDIS_REPLY_ARRAY) {
      add_texts(*each);
    } else if (each->str != nullptr) {
      texts_.emplace_back(each->str, each->len);
    } else {
      texts_.emplace_back();
    }
  }
}

}  // namespace cenote::redis
