// Operator commands to a running node: one JSON object there, one back, over a connection of its own.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace cenote::local {

/// Sends `request` (a JSON object with "command") and returns the reply's text. Errors: not_running (the message says
/// how to start a node), deadline_exceeded, and whatever the node refuses with. Thread-safe.
[[nodiscard]] result<std::string> ask_node(const std::string& socket, std::string_view request,
                                           std::chrono::milliseconds limit = std::chrono::seconds(10));

}  // namespace cenote::local
