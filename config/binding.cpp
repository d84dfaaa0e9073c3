#include "config/binding.hpp"

#include <utility>

namespace cenote::config::detail {

result<> assign(std::vector<uid_t>& member, const typed_value& value) {
  for (const auto id : std::get<std::vector<std::int64_t>>(value)) member.push_back(static_cast<uid_t>(id));
  return {};
}

result<> assign(std::vector<full_key>& member, const typed_value& value) {
  for (const std::string& text : std::get<std::vector<std::string>>(value)) {
    auto key = key_from_hex(text);
    if (!key) return std::unexpected(key.error());
    member.push_back(*key);
  }
  return {};
}

result<> assign(std::optional<endpoint>& member, const typed_value& value) {
  const auto& text = std::get<std::string>(value);
  if (text == "off") return {};
  auto where = parse_endpoint(text);
  if (!where) return fail(where.error().code(), where.error().message() + ", or off");
  member = std::move(*where);
  return {};
}

}  // namespace cenote::config::detail
