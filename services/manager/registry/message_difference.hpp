// Where two messages of one type differ.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace google::protobuf {
class Message;
}

namespace cenote::manager {

struct message_difference {
  std::string field = {};  ///< its path: "model_deployment.dtype"
  std::string base = {};   ///< its value, "(none)" where it is not there
  std::string other = {};
};

/// The first field, by number, that differs; nothing: there is none. Fields whose path is `ignored` are not compared.
/// Thread-safe.
[[nodiscard]] std::optional<message_difference> first_difference(const google::protobuf::Message& base,
                                                                 const google::protobuf::Message& other,
                                                                 std::string_view ignored = {});

}  // namespace cenote::manager
