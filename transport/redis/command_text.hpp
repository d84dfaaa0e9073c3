// Commands as the protocol of Redis has them.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace cenote::redis {

/// Begins a command of so many arguments, behind what `text` has.
void begin_command(std::string& text, std::size_t arguments);
/// Appends the next argument of the command that was begun.
void add_argument(std::string& text, std::string_view argument);

/// A command of whole arguments.
[[nodiscard]] std::string wire_command(std::initializer_list<std::string_view> arguments);

}  // namespace cenote::redis
