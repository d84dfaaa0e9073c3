#include "transport/redis/command_text.hpp"

namespace cenote::redis {

void begin_command(std::string& text, std::size_t arguments) {
  text += "*" + std::to_string(arguments) + "\r\n";
}

void add_argument(std::string& text, std::string_view argument) {
  text += "$" + std::to_string(argument.size()) + "\r\n";
  text += argument;
  text += "\r\n";
}

std::string wire_command(std::initializer_list<std::string_view> arguments) {
  std::string text;
  begin_command(text, arguments.size());
  for (const std::string_view each : arguments) add_argument(text, each);
  return text;
}

}  // namespace cenote::redis
