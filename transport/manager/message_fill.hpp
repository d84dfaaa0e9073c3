// Messages out of JSON that is parsed already.
#pragma once

#include <google/protobuf/message.h>
#include <simdjson.h>

#include <string>

namespace cenote::manager {

/// Fills `message`, which is empty, as proto3's JSON mapping has it, by the fields that its type has. The text of the
/// first fault, with its place; empty: none. Of several members of one name the last one counts. Thread-safe.
[[nodiscard]] std::string fill_message(simdjson::dom::object object, google::protobuf::Message& message);

}  // namespace cenote::manager
