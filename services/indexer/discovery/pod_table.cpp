#include "services/indexer/discovery/pod_table.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace cenote::indexer {

namespace {

using json = nlohmann::json;

// Null where there is no such member.
const json& member(const json& object, const char* name) {
  static const json none;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::string text_of(const json& object, const char* name) {
  const json& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

bool is_address(const std::string& text) noexcept {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

// Nothing: it has no name that a label of Kubernetes may have.
std::optional<std::string> name_of(const json& pod) {
  constexpr std::size_t longest = 253;
  const json& metadata = member(pod, "metadata");
  std::string name = text_of(metadata, "name");
  const std::string place = text_of(metadata, "namespace");
  const auto is_plain = [](const std::string& text) {
    return !text.empty() && text.size() <= longest && std::ranges::all_of(text, [](char each) {
      return (each >= 'a' && each <= 'z') || (each >= '0' && each <= '9') || each == '-' || each == '.';
    });
  };
  if (!is_plain(name) || !is_plain(place)) return std::nullopt;
  return place + "/" + name;
}

// Empty: it does not run.
std::string address_of(const json& pod) {
  const json& status = member(pod, "status");
  if (text_of(status, "phase") != "Running" || member(pod, "metadata").contains("deletionTimestamp")) return {};
  std::string address = text_of(status, "podIP");
  return is_address(address) ? address : std::string();
}

}  // namespace

void pod_table::begin_list() {
  listed_.clear();
}

result<std::string> pod_table::add_page(std::string_view text) {
  const json page = json::parse(text, nullptr, false);
  const json& metadata = member(page, "metadata");
  const json& items = member(page, "items");
  std::string version = text_of(metadata, "resourceVersion");
  std::string next = text_of(metadata, "continue");
  if (version.empty() || (!items.is_array() && !items.is_null()) ||
      std::max(version.size(), next.size()) > most_token) {
    return fail(error_code::malformed, "the API server's answer is no list of pods");
  }
  for (const json& pod : items) {
    auto name = name_of(pod);
    if (!name || (listed_.size() >= most_pods && !listed_.contains(*name))) {
      ++refused_;
      continue;
    }
    if (std::string address = address_of(pod); !address.empty()) listed_[std::move(*name)] = std::move(address);
  }
  if (!next.empty()) return next;
  pods_ = std::exchange(listed_, {});
  version_ = std::move(version);
  return next;
}

result<watch_part> pod_table::add_changes(std::string_view part) {
  watch_part sum;
  while (!part.empty()) {
    const std::size_t end = part.find('\n');
    if (rest_.size() + std::min(end, part.size()) > most_line) {
      return fail(error_code::malformed, "a change of the API server's watch is longer than 4 MiB");
    }
    if (end == std::string_view::npos) {
      rest_ += part;
      break;
    }
    const std::string line = std::exchange(rest_, {}) + std::string(part.substr(0, end));
    part.remove_prefix(end + 1);
    if (auto added = add_change(line, sum); !added) return std::unexpected(added.error());
    if (sum.is_expired) break;
  }
  return sum;
}

result<void> pod_table::add_change(std::string_view line, watch_part& sum) {
  constexpr int gone = 410;
  const json change = json::parse(line, nullptr, false);
  const std::string type = text_of(change, "type");
  const json& object = member(change, "object");
  if (type == "ERROR") {
    const json& code = member(object, "code");
    sum.is_expired = code.is_number_integer() && code.get<std::int64_t>() == gone;
    if (sum.is_expired) return {};
    return fail(error_code::system, "the API server ends its watch: " + text_of(object, "message").substr(0, 512));
  }
  std::string version = text_of(member(object, "metadata"), "resourceVersion");
  if (!version.empty() && version.size() <= most_token) version_ = std::move(version);
  if (type == "BOOKMARK") return {};
  const auto name = name_of(object);
  if (!name) {
    ++refused_;
    return {};
  }
  const std::string address = type == "ADDED" || type == "MODIFIED" ? address_of(object) : std::string();
  if (address.empty()) {
    sum.has_changes = pods_.erase(*name) > 0 || sum.has_changes;
  } else if (pods_.size() >= most_pods && !pods_.contains(*name)) {
    ++refused_;
  } else {
    sum.has_changes = std::exchange(pods_[*name], address) != address || sum.has_changes;
  }
  return {};
}

}  // namespace cenote::indexer
