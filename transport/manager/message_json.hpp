// The JSON form of the manager's messages, for all calls that are made seldom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "transport/manager/answer_code.hpp"

namespace google::protobuf {
class Message;
}

namespace cenote::manager {

/// The bounds of a text that is read.
inline constexpr std::size_t longest_json = 64U << 20U;  ///< bytes
inline constexpr std::size_t deepest_json = 64;          ///< objects and lists in one another

/// The kind of a text that is no message.
enum class json_fault : std::uint8_t {
  malformed,  ///< not JSON, too deep or long, or a value of a wrong type: status 400
  no_object,  ///< empty, null, a list or a single value: a body that could be read, but holds no request
};

struct json_refusal {
  json_fault fault = json_fault::malformed;
  rpc_refusal cause = {};  ///< always invalid_argument; the message has the place
};

/// Fills `message`, which is cleared first, out of proto3's JSON: names as in the proto or in camelCase, unknown ones
/// ignored; enumerators by name or number, where an unknown name means the default; 64-bit integers as numbers or
/// texts; null is the default; bytes in base64. Nothing but strict JSON in UTF-8 is taken. Thread-safe; throws nothing.
[[nodiscard]] std::expected<void, json_refusal> read_json(std::string_view text, google::protobuf::Message& message);

/// Appends `message` as JSON: names as in the proto, defaults included, enumerators by name, 64-bit integers as texts.
/// Parts that are messages and absent are left out. Thread-safe.
void write_json(const google::protobuf::Message& message, std::string& out);

}  // namespace cenote::manager
