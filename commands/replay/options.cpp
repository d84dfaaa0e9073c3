#include "commands/replay/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/device_spec.hpp"
#include "core/units.hpp"

namespace cenote {

namespace {

constexpr std::uint64_t most_blocks = std::uint64_t{1} << 31;
constexpr std::size_t most_capacities = 1000;
constexpr std::size_t most_tiers = 4;

std::unexpected<error> refuse(std::string message) {
  return fail(error_code::invalid_argument, std::move(message));
}

/// The factor in "2x"; nothing if this is no factor.
result<double> parse_factor(std::string_view text) {
  double factor = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size() - 1, factor);
  if (bad != std::errc() || end != text.data() + text.size() - 1 || !(factor > 1)) {
    return refuse(fmt::format("`{}` is no step; right are 2x (any factor above 1) or a number of blocks", text));
  }
  return factor;
}

/// Bytes are offered where they are known of a block.
std::string wrong_count_text(std::string_view text, std::uint64_t block_bytes, std::uint64_t least) {
  const bool is_size = block_bytes == 0 && text.ends_with("iB");
  return fmt::format("`{}` is {}; right are {} to {}, with k or M (64k is 64,000){}", text,
                     is_size ? "a size, and the bytes of a block are not known here" : "no number of blocks", least,
                     most_blocks, block_bytes == 0 ? "" : ", or bytes as in 2GiB");
}

result<std::vector<std::uint32_t>> capacities_from(std::string_view first, std::string_view last, std::string_view step,
                                                   std::uint64_t block_bytes) {
  const auto from = parse_block_count(first, block_bytes);
  if (!from) return std::unexpected(from.error());
  const auto to = parse_block_count(last, block_bytes);
  if (!to) return std::unexpected(to.error());
  if (*from > *to) return refuse(fmt::format("a sweep goes upwards, not from {} to {}", first, last));
  double factor = 1;
  std::uint64_t addend = 0;
  if (step.ends_with('x')) {
    const auto parsed = parse_factor(step);
    if (!parsed) return std::unexpected(parsed.error());
    factor = *parsed;
  } else {
    const auto parsed = parse_block_count(step, block_bytes);
    if (!parsed) return std::unexpected(parsed.error());
    addend = *parsed;
  }
  std::vector<std::uint32_t> all;
  for (std::uint64_t at = *from; at <= *to;) {
    if (all.size() == most_capacities) return refuse(fmt::format("a sweep of over {} capacities", most_capacities));
    all.push_back(static_cast<std::uint32_t>(at));
    const auto next = static_cast<std::uint64_t>(static_cast<double>(at) * factor) + addend;
    at = next > at ? next : at + 1;
  }
  return all;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

result<std::uint32_t> parse_block_count(std::string_view text, std::uint64_t block_bytes, std::uint64_t least) {
  if (block_bytes != 0 && text.ends_with("iB")) {
    const auto bytes = parse_bytes(text);
    if (!bytes) return std::unexpected(bytes.error());
    if (*bytes < block_bytes || *bytes / block_bytes > most_blocks) {
      return refuse(fmt::format("`{}` is no capacity for blocks of {}: it holds {} of them", text,
                                format_bytes(block_bytes), *bytes / block_bytes));
    }
    return static_cast<std::uint32_t>(*bytes / block_bytes);
  }
  std::uint64_t number = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const std::uint64_t scale = unit == "k" ? 1'000 : unit == "M" ? 1'000'000 : 1;
  const bool sound =
      bad == std::errc() && (unit.empty() || scale != 1) && number >= least && number <= most_blocks / scale;
  if (!sound) return refuse(wrong_count_text(text, block_bytes, least));
  return static_cast<std::uint32_t>(number * scale);
}

result<std::vector<std::uint32_t>> parse_capacities(std::string_view text, std::uint64_t block_bytes,
                                                    std::uint64_t least) {
  if (const auto range = split(text, ':'); range.size() == 3)
    return capacities_from(range[0], range[1], range[2], block_bytes);
  std::vector<std::uint32_t> all;
  for (const std::string_view part : split(text, ',')) {
    const auto count = parse_block_count(part, block_bytes, least);
    if (!count) return std::unexpected(count.error());
    all.push_back(*count);
  }
  return all;
}

result<std::vector<named_tier>> parse_tiers(std::string_view text, std::uint64_t block_bytes) {
  std::vector<named_tier> tiers;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      return refuse(fmt::format("`{}` is no tier; right is NAME=BLOCKS, as in dram=1000", part));
    }
    const auto capacity = parse_block_count(part.substr(equals + 1), block_bytes);
    if (!capacity) return std::unexpected(capacity.error());
    tiers.push_back({std::string(part.substr(0, equals)), *capacity});
  }
  for (auto each = tiers.begin(); each != tiers.end(); ++each) {
    const auto same = std::ranges::find(tiers.begin(), each, each->name, &named_tier::name);
    if (same != each) return refuse(fmt::format("`{}`: {} stands there twice", text, each->name));
  }
  if (tiers.size() < 2 || tiers.size() > most_tiers) {
    return refuse(fmt::format("`{}`: two to {} tiers were expected, the upper one first, as in dram=1000,nvme=10000",
                              text, most_tiers));
  }
  return tiers;
}

result<std::vector<std::optional<std::string>>> parse_by_tier(std::string_view text, std::span<const named_tier> tiers,
                                                              std::string_view option) {
  std::vector<std::optional<std::string>> values(tiers.size());
  if (!text.contains('=')) {
    if (!text.empty()) std::ranges::fill(values, std::string(text));
    return values;
  }
  for (const std::string_view part : split(text, ',')) {
    const std::string_view name = part.substr(0, part.find('='));
    const auto tier = std::ranges::find(tiers, name, &named_tier::name);
    if (tier == tiers.end() || name.size() == part.size()) {
      return refuse(fmt::format("{}: `{}` names no lower tier; right is TIER=VALUE, as in {}=…", option, part,
                                tiers.back().name));
    }
    values[static_cast<std::size_t>(tier - tiers.begin())] = std::string(part.substr(name.size() + 1));
  }
  return values;
}

ingest standard_ingest(std::string_view tier, std::string_view upper) noexcept {
  return tier == "remote" || upper == "gpu" ? ingest::all : ingest::evicted;
}

result<gpu_tier> parse_gpu(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return refuse(fmt::format("`{}` is no device and size; right are sim:1GiB and GPU-UUID:8GiB", text));
  }
  const auto bytes = parse_bytes(text.substr(colon + 1));
  if (!bytes) return std::unexpected(bytes.error());
  const std::string_view said = text.substr(0, colon);
  gpu_tier tier{.device = said == "sim" ? "sim:0" : std::string(said), .name = {}, .bytes = *bytes};
  const auto device = parse_device(tier.device);
  if (!device) return std::unexpected(device.error());
  if (tier.bytes == 0) return refuse(fmt::format("`{}`: a tier of 0 bytes is none; leave the option out", text));
  tier.name = device->name;
  return tier;
}

result<double> parse_speed(std::string_view text) {
  if (text == "max") return 0.0;
  double factor = 0;
  const bool has_sign = text.ends_with('x');
  const std::string_view digits = has_sign ? text.substr(0, text.size() - 1) : text;
  const auto [end, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), factor);
  if (!has_sign || bad != std::errc() || end != digits.data() + digits.size() || !(factor > 0) || factor > 1e9) {
    return refuse(fmt::format("`{}` is no speed; right are max, or a factor as in 20x", text));
  }
  return factor;
}

}  // namespace cenote
