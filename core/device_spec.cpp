#include "core/device_spec.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

namespace cenote {

namespace {

std::optional<std::uint32_t> number_of(std::string_view text) noexcept {
  std::uint32_t value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// One of "fail=N", "lose=N", "hang=N", "mib=N". False: none of them.
bool take_fault(std::string_view text, device_spec& to) noexcept {
  const std::size_t equals = std::min(text.find('='), text.size());
  const auto number = equals == text.size() ? std::nullopt : number_of(text.substr(equals + 1));
  if (number.value_or(0) == 0) return false;
  const std::string_view what = text.substr(0, equals);
  if (what == "fail") to.fail_work = *number;
  if (what == "lose") to.lose_event = *number;
  if (what == "hang") to.hang_at = *number;
  if (what == "mib") to.memory_bytes = std::uint64_t{*number} << 20;
  return what == "fail" || what == "lose" || what == "hang" || what == "mib";
}

bool take_sim(std::string_view name, device_spec& to) {
  const std::size_t comma = std::min(name.find(','), name.size());
  const auto number = number_of(name.substr(0, comma));
  if (!number) return false;
  to.kind = device_kind::sim;
  to.name = "sim:" + std::to_string(*number);
  for (std::string_view rest = name.substr(comma); !rest.empty();) {
    rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find(','), rest.size());
    if (!take_fault(rest.substr(0, end), to)) return false;
    rest.remove_prefix(end);
  }
  return true;
}

bool take_cuda(std::string_view name, device_spec& to) {
  const auto number = number_of(name);
  if (!number && !name.starts_with("GPU-")) return false;
  to.kind = device_kind::cuda;
  to.name = "cuda:" + (number ? std::to_string(*number) : std::string(name));
  return true;
}

}  // namespace

result<device_spec> parse_device(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.starts_with("GPU-") ? "cuda" : text.substr(0, std::min(colon, text.size()));
  const std::string_view name = text.starts_with("GPU-")          ? text
                                : colon == std::string_view::npos ? std::string_view()
                                                                  : text.substr(colon + 1);
  device_spec found;
  if (kind == "sim" && take_sim(name, found)) return found;
  if (kind == "cuda" && take_cuda(name, found)) return found;
  return fail(error_code::invalid_argument,
              "`" + std::string(text) +
                  "` is no device; GPU-UUID, cuda:GPU-UUID, cuda:NUMBER and sim:NUMBER are, and for tests "
                  "sim:NUMBER,fail=N,lose=N,hang=N,mib=N");
}

std::uint32_t part_on_device(const group_spec& group, std::uint32_t rank) noexcept {
  return group.parts.size() == 1 ? 0 : rank;
}

result<instance_spec> instance_on_device(const instance_share& share, const std::string& device) {
  instance_spec made = share.whole;
  made.instance_group = share.whole.paying_group();
  bool is_shared = false;  // by several ranks
  for (group_spec& group : made.groups) {
    const std::uint32_t part = part_on_device(group, share.rank);
    if (part >= group.parts.size()) {
      return fail(error_code::invalid_argument, "group `" + group.name + "` has " + std::to_string(group.parts.size()) +
                                                    " parts, there is no part " + std::to_string(share.rank));
    }
    is_shared |= group.parts.size() > 1;
    group.parts = {group.parts[part]};
  }
  made.id += "@" + device + (is_shared ? "#" + std::to_string(share.rank) : std::string());
  if (auto sound = validate(made); !sound) return std::unexpected(sound.error());
  return made;
}

}  // namespace cenote
