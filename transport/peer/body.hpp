// What the codecs of frames' bodies share.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "core/byte_io.hpp"
#include "core/error.hpp"
#include "core/text.hpp"

namespace cenote::peer {

/// A text that another node wrote for people; bytes that are not UTF-8 are replaced, and what grows by that is cut. One
/// that is longer than allowed spoils the reader's message.
inline std::string get_text(byte_reader& reader, std::size_t longest, bool& is_good) {
  const auto bytes = reader.get_bytes();
  if (bytes.size() > longest) {
    is_good = false;
    return {};
  }
  const std::string text = as_utf8({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return std::string(cut_text(text, longest));
}

/// The name of a node or a cluster, compared byte by byte: one that is not plain spoils the message.
inline std::string get_name(byte_reader& reader, bool& is_good) {
  const auto bytes = reader.get_bytes();
  const std::string_view name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  is_good = is_good && is_plain_name(name);
  return is_good ? std::string(name) : std::string();
}

/// What was read, unless it was too short or made no sense. Errors: malformed, by its name.
template <class Message>
result<Message> checked(Message what, const byte_reader& reader, bool is_good, const char* name) {
  if (!reader.ok() || !is_good) return fail(error_code::malformed, std::string("a bad ") + name);
  return what;
}

}  // namespace cenote::peer
