#include "commands/node_status.hpp"

namespace cenote {

const nlohmann::json& at_path(const nlohmann::json& object, std::string_view path) {
  const nlohmann::json* found = &object;
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    found = &member(*found, path.substr(0, dot));
    path.remove_prefix(dot + 1);
  }
  return member(*found, path);
}

std::uint64_t ended_by(const nlohmann::json& status, prefetch::reason why) {
  return count_of(at_path(status, "prefetch.ended"), name_of(why));
}

}  // namespace cenote
